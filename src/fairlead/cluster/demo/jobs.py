"""The jobs of the demonstration."""

import sys
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.protocol.job_spec import JobSpec

POLICY = "max_min_fairness_perf"  # LAS with regard to types
ROUND_S = 2.0
NODES = {"node-a": "v100=2", "node-b": "k80=2"}


@dataclass(frozen=True, slots=True)
class Family:
    """Jobs that are alike: milliseconds of a step on each accelerator type."""

    name: str
    tenant: str
    v100_ms: float
    k80_ms: float

    def job(self, number: int, work_s: float, checkpoints: Path) -> JobSpec:
        """work_s: seconds that it takes alone on a v100; checkpoints: where all nodes find them."""
        times = f"v100={self.v100_ms:g},k80={self.k80_ms:g}"
        script = (sys.executable, "-m", "fairlead.cluster.demo.job")
        return JobSpec(
            command=(*script, "--step-ms", times, "--seed", str(number)),
            total_steps=round(work_s * 1e3 / self.v100_ms),
            name=f"{self.name}-{number}",
            rates={"v100": 1e3 / self.v100_ms, "k80": 1e3 / self.k80_ms},
            cwd="/",
            checkpoint_dir=str(checkpoints / f"{self.name}-{number}"),
            grace_s=10.0,
            prefork=True,
        )


VISION = Family("vision", "ann", 10.0, 60.0)
LANGUAGE = Family("language", "ann", 12.0, 40.0)
SPEECH = Family("speech", "bob", 15.0, 30.0)
RANKING = Family("ranking", "bob", 20.0, 24.0)

# (seconds after the first, family, seconds of work alone on a v100)
JOBS = (
    (0.0, VISION, 10.0),
    (0.0, LANGUAGE, 12.0),
    (0.0, SPEECH, 9.0),
    (1.0, RANKING, 8.0),
    (2.0, VISION, 8.0),
    (4.0, RANKING, 10.0),
    (6.0, LANGUAGE, 6.0),
    (8.0, SPEECH, 6.0),
)
