"""Policies that learn the goodput of jobs, and choose devices and batches by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.estimation.goodput.best_batch import GradientNoise
from fairlead.estimation.goodput.step_times import StepTimes
from fairlead.model.arrays import Floats, Ints
from fairlead.policies.elastic.elastic_round import ElasticRound
from fairlead.policies.elastic.objectives import ElasticObjective
from fairlead.policies.solve.multiple_choice import solve_multiple_choice
from fairlead.simulator.pollux_reference.policies import ElasticDecision, Nodes
from fairlead.simulator.pollux_reference.training import RESTART_S, ElasticTraining
from fairlead.simulator.pollux_reference.whole_nodes import device_counts, place_on_whole_nodes

# The release's NCF trains on one device whatever the policy; its own step times are those of one device.
ONE_DEVICE = frozenset({"ncf"})


@dataclass
class AdaptivePolicy:
    """The best configurations by an objective. A job starts on one device at first, and gets at most twice as
    many as it was measured on.

    shares_times: jobs of one application learn from each other, and are moved whatever their application.
    """

    objective: ElasticObjective
    shares_times: bool = False
    adapts_batch: bool = field(default=True, init=False)
    _times: dict[str, StepTimes] = field(default_factory=dict, init=False)
    _first_noise: dict[str, GradientNoise] = field(default_factory=dict, init=False)
    _rows: dict[str, tuple[object, Floats]] = field(default_factory=dict, init=False)

    def allocate(
        self, jobs: Mapping[str, ElasticTraining], before: Mapping[str, Nodes], sizes: Sequence[int]
    ) -> ElasticDecision:
        """See ``ElasticPolicy``. Raises ConfigError for nodes of several sizes."""
        counts = device_counts(sizes)
        trainings = list(jobs.values())
        if self.shares_times:
            self._share(trainings)
        goodput = np.array([self._row(one, counts, sizes[0]) for one in trainings])
        held = [len(before.get(name, ())) for name in jobs]
        choice = solve_multiple_choice(
            self.objective.program(
                ElasticRound(
                    goodput=goodput,
                    devices=counts,
                    accelerator=np.zeros(len(counts), np.int64),
                    capacity=np.array([sum(sizes)]),
                    present=np.where(held, np.searchsorted(counts, held), -1),
                    starts=np.array([one.starts for one in trainings]),
                    age_s=np.array([one.now_s - one.job.submitted_s for one in trainings]),
                    remaining_s=np.array(
                        [
                            _remaining_s(one, row)
                            for one, row in zip(trainings, goodput, strict=True)
                        ]
                    ),
                    restart_s=RESTART_S,
                )
            )
        )
        devices = {
            name: int(counts[c]) for name, c in zip(jobs, choice.option, strict=True) if c >= 0
        }
        return ElasticDecision(place_on_whole_nodes(devices, before, sizes), choice.gap)

    def _share(self, trainings: Sequence[ElasticTraining]) -> None:
        """Let jobs of one application have the same step times, and begin with the noise that the first one
        began with."""
        for one in trainings:
            name, goodput = one.job.application.name, one.goodput
            if not one.starts:
                goodput.times = self._times.setdefault(name, goodput.times)
                goodput.noise = self._first_noise.get(name)
            elif goodput.noise is not None:
                self._first_noise.setdefault(name, goodput.noise)

    def _row(self, one: ElasticTraining, counts: Ints, per_node: int) -> Floats:
        """(counts,) the goodput of a job, 0 = it may not have so many devices."""
        goodput, name = one.goodput, one.job.name
        most = min(max(1, 2 * goodput.times.max_replicas), goodput.limits.max_replicas())
        if not self.shares_times and one.job.application.name in ONE_DEVICE:
            most = 1
        if not goodput.is_known:
            return np.where(counts == 1, 1.0, 0.0)
        if name not in self._rows or self._rows[name][0] != goodput.version:
            best = goodput.best(-(-counts // per_node), counts)
            self._rows[name] = goodput.version, best.goodput
        return np.where(counts <= most, self._rows[name][1], 0.0)


def _remaining_s(one: ElasticTraining, goodput: Floats) -> float:
    """Seconds of useful steps until the end of the job on its slowest configuration; nan while its goodput
    is not known. The steps are those of a training with the smallest batch, as its owner would state
    them."""
    if not one.goodput.is_known:
        return float("nan")
    application = one.job.application
    steps = application.trainings[application.batches[0]][application.epochs - 1].progress
    return float(max(steps - one.progress, 1.0) / goodput[goodput > 0].min())
