"""The release's calibration of Shockwave: measured against profiled samples, over the cluster's time."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.job_index import rows_of
from fairlead.model.snapshot import Snapshot

_TOLERANCE = 0.4  # of the profiled samples


@dataclass(frozen=True, slots=True)
class MeasuredProgress:
    """Samples that jobs count as having trained since round 0. Arrays are (jobs,), ids ascending.

    Each round in which a job ran stands for all rounds since the last one in which it did, or since
    round 0: waiting time, and time before arrival, count as if it had run. That is a defect of the
    release, kept for comparison (Shockwave (NSDI'23), release, calibration of epoch durations).
    """

    jobs: Ints
    samples: Floats
    round: Floats  # the last round in which the job ran
    factor: Floats  # on the profiled times of its epochs; stays until another is found

    @staticmethod
    def none() -> "MeasuredProgress":
        """Progress of no jobs."""
        return MeasuredProgress(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))

    def of(self, jobs: Ints) -> "MeasuredProgress":
        """Progress of these jobs; those that are not known have trained nothing."""
        at, here = rows_of(self.jobs, jobs)
        rows = at[here]
        samples, last, factor = np.zeros(len(jobs)), np.zeros(len(jobs)), np.ones(len(jobs))
        samples[here], last[here] = self.samples[rows], self.round[rows]
        factor[here] = self.factor[rows]
        return MeasuredProgress(jobs.copy(), samples, last, factor)

    def after(self, snapshot: Snapshot, ended: int) -> "MeasuredProgress":
        """Progress with the round ``ended`` added, the number of the one that has just ended."""
        new = self.of(snapshot.jobs)
        running = np.flatnonzero(snapshot.running_on >= 0)
        rate = snapshot.solo_rate[running, snapshot.running_on[running]]
        batch = np.ones(len(running))
        if snapshot.regimes is not None:
            batch = snapshot.regimes.batch[running, snapshot.regimes.current[running]].astype(
                np.float64
            )
        new.samples[running] += batch * rate * snapshot.round_s * (ended - new.round[running])
        new.round[running] = ended
        return new

    def calibrated(self, snapshot: Snapshot) -> "MeasuredProgress":
        """Progress with new factors for jobs whose samples are off by more than the tolerance."""
        new = self.of(snapshot.jobs)
        factor = new.factor.copy()
        for j in np.flatnonzero(new.samples > 0).tolist():
            profiled = _profiled(snapshot, j, new.round[j] * snapshot.round_s, factor[j])
            if profiled > 0 and abs(new.samples[j] - profiled) > _TOLERANCE * profiled:
                factor[j] = profiled / new.samples[j]
        return replace(new, factor=factor)


def _profiled(snapshot: Snapshot, job: int, until_s: float, factor: float) -> float:
    """Samples that a job would train in so much time by its announced schedule; the last epoch counts in
    part, by its time as calibrated so far."""
    regimes = snapshot.regimes
    announced = None if regimes is None else regimes.announced[job]
    if regimes is None or announced is None:
        return 0.0
    rate = snapshot.job_type_rate[regimes.job_type[job, : len(announced.batches)], 0]
    batch = np.array(announced.batches)
    epoch_s = np.maximum(1.0, np.round(announced.samples / batch / np.maximum(rate, 1e-12)))
    starts = np.append(announced.starts, np.ceil(announced.epochs)).astype(np.float64)
    trained, left_s, regime = 0.0, until_s, 0
    for stage, regime in enumerate(announced.regimes.tolist()):
        epochs = starts[stage + 1] - starts[stage]
        whole = min(epochs, np.floor(left_s / epoch_s[regime]))
        trained += whole
        left_s -= whole * epoch_s[regime]
        if whole < epochs:
            break
    return float(announced.samples * (trained + left_s / (epoch_s[regime] * factor)))
