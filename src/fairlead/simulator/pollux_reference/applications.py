"""Applications as Pollux's release measured them: a folder of CSV files each.

``placements.csv`` and ``scalability.csv`` have the seconds of a step by placement, or by counts of nodes and
replicas; ``validation-B.csv`` has one row per epoch of a training with a total batch of B samples.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fairlead.errors import ThroughputError
from fairlead.estimation.goodput.best_batch import BatchLimits, GradientNoise
from fairlead.estimation.goodput.fit_step_time import MeasuredStep
from fairlead.simulator.traces import fields
from fairlead.simulator.traces.source import Source, csv_cells

Placement: TypeAlias = tuple[
    int, ...
]  # replicas on each node that a job uses, in the order of its ranks

MAX_NODES = 16  # of a placement that was not measured: more count as so many
_MAX_STATISTIC = 1e30  # gradients of the first steps are large
# The release trains YOLOv3 on at most so many samples at once, fewer than its measurements have.
_MAX_LOCAL_BATCH = {"yolov3": 8}


class Epoch(NamedTuple):
    """The end of an epoch of a training with a constant total batch: what was done, and how noisy the
    gradients were."""

    progress: float  # steps at the smallest batch that are worth as much
    iteration: float  # steps
    grad_sqr: float  # squared norm of the gradient
    grad_var: float  # variance of the gradients of single samples

    @property
    def noise(self) -> GradientNoise:
        """Return that of the gradients."""
        return GradientNoise(self.grad_sqr, self.grad_var)


class BatchChoice(NamedTuple):
    """How the replicas of a job share a total batch."""

    local: int  # samples at once on a replica
    accumulation_steps: int  # steps before the one that synchronises

    def total(self, replicas: int) -> int:
        """Samples of a step of the whole job."""
        return replicas * self.local * (self.accumulation_steps + 1)

    def iteration_s(self, step: MeasuredStep) -> float:
        """The seconds of a step of the whole job, with those before it that only accumulate."""
        return step.step_s + (step.step_s - step.sync_s) * self.accumulation_steps


@dataclass(frozen=True, eq=False)
class Application:
    """A model and its training. ``read_applications`` makes it."""

    name: str
    measured: dict[str, np.ndarray]  # placement as digits -> (rows, 3) local batch, step_s, sync_s
    points: np.ndarray  # (points, 5) nodes, replicas, local batch, step_s, sync_s
    trainings: dict[int, tuple[Epoch, ...]]  # by total batch, ascending
    limits: BatchLimits
    _known: dict[tuple[Placement, int], MeasuredStep] = field(default_factory=dict, repr=False)

    @property
    def batches(self) -> tuple[int, ...]:
        """Total batches with which it was trained, ascending: the first is that in which progress counts."""
        return tuple(self.trainings)

    @property
    def epochs(self) -> int:
        """Epochs of a training; a job is done when it has begun its last one."""
        return min(map(len, self.trainings.values()))

    def progress_at(self, epoch: int) -> float:
        """The progress with which so many epochs are over, whatever the batch."""
        if not epoch:
            return 0.0
        return min(training[epoch - 1].progress for training in self.trainings.values())

    def between(self, batch: int, epoch: int) -> Epoch:
        """Return the row of an epoch (from 0) for a total batch, linear between the nearest trainings."""
        batches = self.batches
        upper = bisect.bisect_left(batches, batch)
        high = batches[min(upper, len(batches) - 1)]
        low = high if high == batch else batches[max(upper - 1, 0)]
        one, other = self.trainings[low][epoch], self.trainings[high][epoch]
        if low == high:
            return one
        return Epoch(
            *(
                ((batch - low) * y + (high - batch) * x) / (high - low)
                for x, y in zip(one, other, strict=True)
            )
        )

    def gain(self, batch: int, epoch: int) -> float:
        """Progress of one step with this total batch (Pollux, section 3.1)."""
        return self.between(batch, epoch).noise.gain(batch / self.batches[0])

    def choose_batch(self, total: int, replicas: int, *, accumulates: bool = True) -> BatchChoice:
        """Return how replicas share a total batch of about this size. accumulates: a single replica with more
        than the smallest batch accumulates, for its gradients' noise is measured between steps."""
        local = _ceil(total / replicas)
        steps = _ceil(local / self.limits.max_local) - 1
        if accumulates and replicas == 1 and total > self.batches[0]:
            steps = max(steps, 1)
        most = self.batches[-1] // (replicas * (steps + 1))
        return BatchChoice(min(_ceil(local / (steps + 1)), most), steps)

    def step_time(self, placement: Placement, local_batch: int) -> MeasuredStep:
        """The seconds of a step without accumulation. Raises ThroughputError where nothing was measured from
        which they follow."""
        rotated = min(placement[k:] + placement[:k] for k in range(len(placement)))
        key = rotated, local_batch
        if key not in self._known:
            self._known[key] = self._step_time(rotated, local_batch)
        found = self._known[key]
        if not (math.isfinite(found.step_s) and found.step_s > 0):
            raise ThroughputError(
                f"{self.name}: no step time for {sum(placement)} replicas on {len(placement)} node(s) with "
                f"{local_batch} samples each"
            )
        return found

    def iteration_s(self, placement: Placement, choice: BatchChoice) -> float:
        """The seconds of a step of the whole job."""
        return choice.iteration_s(self.step_time(placement, choice.local))

    def _step_time(self, placement: Placement, local_batch: int) -> MeasuredStep:
        rows = self.measured.get("".join(map(str, placement)))
        if rows is not None:
            step_s, sync_s = (np.interp(local_batch, rows[:, 0], rows[:, k]) for k in (1, 2))
        else:
            nodes = min(len(placement), MAX_NODES)
            step_s, sync_s = self._interpolate([nodes, sum(placement), local_batch])[0]
        return MeasuredStep(float(step_s), float(sync_s))

    def _interpolate(self, point: list[int]) -> Any:
        """Linear on the Delaunay triangulation of what was measured."""
        if "interpolator" not in self.__dict__:
            from scipy.interpolate import LinearNDInterpolator

            made = LinearNDInterpolator(self.points[:, :3], self.points[:, 3:])
            object.__setattr__(self, "interpolator", made)
        return self.__dict__["interpolator"](point)


def _ceil(value: float) -> int:
    return math.ceil(value - 1e-8)


# --- files ---------------------------------------------------------------------------------------


def read_applications(folder: Path, accelerator: str = "") -> dict[str, Application]:
    """The applications in a folder, by the names of their folders, as measured on an accelerator type: from
    ``placements-TYPE.csv`` and ``scalability-TYPE.csv``, or, "", from the files without a type. Raises
    ThroughputError."""
    if not folder.is_dir():
        raise ThroughputError(f"{folder}: no such folder; it needs one folder per application")
    suffix = f"-{accelerator}" * bool(accelerator)
    found = sorted(path.parent for path in folder.glob(f"*/placements{suffix}.csv"))
    if not found:
        raise ThroughputError(f"{folder}: has no folder with a placements{suffix}.csv")
    return {path.name: _read_application(path, suffix) for path in found}


def read_by_accelerator(
    folder: Path, accelerators: Sequence[str]
) -> dict[str, dict[str, Application]]:
    """The applications by name and accelerator type. For one type alone the files without a type will do,
    where there are none with it. Raises ThroughputError for an application that was not measured on all."""
    if len(accelerators) == 1 and not [*folder.glob(f"*/placements-{accelerators[0]}.csv")]:
        found = {name: {accelerators[0]: one} for name, one in read_applications(folder).items()}
    else:
        found = {}
        for accelerator in accelerators:
            for name, one in read_applications(folder, accelerator).items():
                found.setdefault(name, {})[accelerator] = one
    for name, measured in found.items():
        for accelerator in accelerators:
            if accelerator not in measured:
                raise ThroughputError(
                    f"{folder / name}: has no placements-{accelerator}.csv, and the cluster has {accelerator}"
                )
    return found


def _read_application(folder: Path, suffix: str) -> Application:
    measured, means = defaultdict(list), defaultdict(list)
    path = folder / f"placements{suffix}.csv"
    columns = ("placement", "local_bsz", "step_time", "sync_time")
    locals_ = set[int]()
    for source, line, cell in _cells(path, columns):
        digits = cell["placement"]
        if not digits.isdecimal() or "0" in digits:
            raise source.fault(
                line, f"placement: expected a digit from 1 to 9 for each node, got {digits!r}"
            )
        local = fields.whole(source, line, "local_bsz", cell["local_bsz"], 1)
        times = _times(source, line, cell)
        locals_.add(local)
        measured[digits].append((local, *times))
        means[len(digits), sum(map(int, digits)), local].append(times)
    if not locals_:
        raise ThroughputError(f"{path}: has no rows")
    trainings = _read_trainings(folder)
    points = [(*key, *np.mean(times, 0)) for key, times in sorted(means.items())]
    return Application(
        name=folder.name,
        measured={digits: np.array(rows, np.float64) for digits, rows in measured.items()},
        points=np.array([*points, *_scalability(folder / f"scalability{suffix}.csv")], np.float64),
        trainings=trainings,
        limits=BatchLimits(
            smallest=min(trainings),
            largest=max(trainings),
            min_local=min(locals_),
            max_local=_MAX_LOCAL_BATCH.get(folder.name, max(locals_)),
        ),
    )


def _scalability(path: Path) -> Iterator[tuple[float, ...]]:
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    for source, line, cell in _cells(path, columns):
        counts = (fields.whole(source, line, name, cell[name], 1) for name in columns[:3])
        yield (*counts, *_times(source, line, cell))


def _read_trainings(folder: Path) -> dict[int, tuple[Epoch, ...]]:
    found: dict[int, tuple[Epoch, ...]] = {}
    for path in folder.glob("validation-*.csv"):
        text = path.stem.removeprefix("validation-")
        if not text.isdecimal() or not int(text):
            raise ThroughputError(f"{path}: expected validation-B.csv, B samples of a total batch")
        rows = [
            Epoch(*(_statistic(source, line, name, cell[name]) for name in Epoch._fields))
            for source, line, cell in _cells(path, Epoch._fields)
        ]
        if not rows:
            raise ThroughputError(f"{path}: has no rows")
        found[int(text)] = tuple(rows)
    if not found:
        raise ThroughputError(f"{folder}: has no validation-B.csv")
    return dict(sorted(found.items()))


def _statistic(source: Source, line: int, name: str, text: str) -> float:
    return fields.at_least_zero(source, line, name, text, _MAX_STATISTIC)


def _times(source: Source, line: int, cell: dict[str, str]) -> MeasuredStep:
    step_s = fields.above_zero(source, line, "step_time", cell["step_time"])
    return MeasuredStep(step_s, fields.number(source, line, "sync_time", cell["sync_time"]))


def _cells(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Source, int, dict[str, str]]]:
    """Yield the file, the line and the cells of each row by column."""
    source = Source(path, ThroughputError)
    for line, cell in csv_cells(source, columns):
        yield source, line, cell
