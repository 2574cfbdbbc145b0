"""Seeing that a queue grows without bound, or that jobs starve, while the run goes on.

A cluster that keeps up has about as many jobs in it as yesterday, however many that are. One that does not
has more and more, and the JCT measured in a window says only how long the run had lasted. Such a run is
ended once its queue is both long, ``CROWDED`` jobs for each device, and has been growing all the time: the
last half of the run is cut in ``SPANS`` equal times, the queue is longer in each of them than in the one
before, and in the last it was never short. A burst makes a long queue, but not one that grew before; the
first hours make a growing one, but not a long one.

Where a policy starves single jobs the queue may stay short for ever while a measured job does not end. Such
a run is ended once ``MIN_SUBMISSIONS`` jobs, and ``MEASURED_MULTIPLE`` as many as it takes to get all
measured ones, have come.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.commands import Command, EndJobs
from fairlead.model.events import Event, JobsSubmitted

if TYPE_CHECKING:
    from fairlead.simulator.progress import Watch
    from fairlead.simulator.recording.metrics import Result
    from fairlead.simulator.simulation_run import SimulationRun

CROWDED = 10.0  # jobs in the system for each device
SPANS = 5
MEASURED_MULTIPLE, MIN_SUBMISSIONS = 4, 20_000
CHECK_EVERY = 64  # submissions between two looks


@dataclass
class DivergenceDetector:
    """An observer of a run; ask it between events whether to stop."""

    devices: int
    measured: int = 0  # jobs up to the last one that is measured; 0 = no such job
    reason: str = ""  # in a sentence, once it is clear
    active: int = 0  # jobs in the system
    _arrived: int = 0  # jobs
    _time_s: list[float] = field(default_factory=list)  # of each submission
    _queue: list[int] = field(default_factory=list)  # jobs in the system then

    def __call__(self) -> bool:
        """Return whether the queue grows without bound."""
        return bool(self.reason)

    def event(self, event: Event) -> None:
        """Count those who come."""
        if not isinstance(event, JobsSubmitted) or not event.jobs:
            return
        self.active += len(event.jobs)
        self._time_s.append(event.time_s)
        self._queue.append(self.active)
        self._arrived += len(event.jobs)
        if len(self._queue) % CHECK_EVERY == 0:
            self._check()

    def command(self, command: Command) -> None:
        """Count those who go."""
        if isinstance(command, EndJobs):
            self.active -= len(command.jobs)

    def _check(self) -> None:
        if self.active > CROWDED * self.devices:
            self._check_queue()
        if (
            self.measured
            and self._arrived >= max(MIN_SUBMISSIONS, MEASURED_MULTIPLE * self.measured)
            and not self.reason
        ):
            hours = self._time_s[-1] / 3600
            self.reason = (
                f"jobs starve: of the first {self.measured:,} some have not ended after {hours:,.0f} hours, "
                f"when {self._arrived:,} have come"
            )

    def _check_queue(self) -> None:
        time_s, queue = np.array(self._time_s), np.array(self._queue, np.float64)
        edges = np.linspace(time_s[-1] / 2, time_s[-1], SPANS + 1)
        cuts = np.searchsorted(time_s, edges)
        cuts[-1] = len(time_s)
        spans = [queue[a:b] for a, b in pairwise(cuts.tolist())]
        if all(map(len, spans)) and _grows(spans) and spans[-1].min() > CROWDED * self.devices:
            self.reason = self._sentence(spans, time_s[-1])

    def _sentence(self, spans: list[Floats], now_s: float) -> str:
        hours = now_s / 3600
        return (
            f"the queue grows without bound: {self.active:,} jobs for {self.devices:,} devices after "
            f"{hours:,.0f} hours, {self.active / spans[0].mean():.1f} times as many as after "
            f"{hours * (0.5 + 0.25 / SPANS):,.0f} hours"
        )


def run_until_diverged(run: "SimulationRun", watch: "Watch | None" = None) -> tuple["Result", str]:
    """Execute a run without its table of placement intervals; the result, and why the run was ended early,
    "" where it was not. Only a run that measures jobs of an endless stream is."""
    window = run.options.measured_jobs
    divergence = DivergenceDetector(int(run.cluster.capacity.sum()), window[1] if window else 0)
    endless = run.jobs.n is None and window is not None
    result = run.execute(
        stop=divergence,
        watch=watch,
        keep_intervals=False,
        observers=[divergence] if endless else [],
    )
    return result, divergence.reason if not result.complete else ""


def _grows(spans: list[Floats]) -> bool:
    means = [float(span.mean()) for span in spans]
    return all(after > before for before, after in pairwise(means))
