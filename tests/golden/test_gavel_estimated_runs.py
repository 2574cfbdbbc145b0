"""Runs of a packing policy whose rates of pairs are estimated, against those of the release."""

import json
from pathlib import Path

import pytest

from fairlead.simulator.simulation_input import SimulationInput

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_runs_are_close(seed: int, shared: Path) -> None:
    """The release's draws are not ours, nor is which of equally good shares it finds."""
    name = f"packed_est_pp0.8__max_min_fairness_packed__6-6-6__lam6000__s{seed}"
    folder = shared / "golden/gavel/continuous"
    given = SimulationInput(
        trace=str(folder / f"{name}.jobs.json.gz"),
        throughputs=str(shared / "data/gavel/simulation_throughputs.json"),
        cluster="v100=6,p100=6,k80=6",
        estimator="gavel:profiling=0.8",
        window="40:80",
        seed=seed,
    )
    found = given.prepare("las_packed", "gavel").execute().metrics["avg_jct_s"]
    assert found == pytest.approx(
        json.loads((folder / f"{name}.json").read_text())["avg_jct"], rel=0.01
    )
