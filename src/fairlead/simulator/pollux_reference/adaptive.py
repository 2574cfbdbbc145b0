"""Policies that learn the goodput of jobs, and choose devices and batches by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fairlead.estimation.goodput.best_batch import GradientNoise
from fairlead.estimation.goodput.fit_step_time import ReplicaSetting
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


class _Pool(NamedTuple):
    """The nodes of one accelerator type. accelerator: "" = the only one that there is."""

    accelerator: str
    nodes: list[int]
    sizes: list[int]  # devices of each
    counts: Ints  # numbers of devices that a job may have


@dataclass
class AdaptivePolicy:
    """The best configurations by an objective. A job starts on one device at first, and gets at most twice as
    many as it was measured on, on whatever type. Where there are several types, it is measured on one device
    of each before it starts, which is taken to cost nothing.

    shares_times: jobs of one application learn from each other, and are moved whatever their application.
    accelerators: type of each node, () = there is one.
    """

    objective: ElasticObjective
    shares_times: bool = False
    accelerators: Sequence[str] = ()
    adapts_batch: bool = field(default=True, init=False)
    _times: dict[tuple[str, str], StepTimes] = field(default_factory=dict, init=False)
    _first_noise: dict[str, GradientNoise] = field(default_factory=dict, init=False)
    _rows: dict[str, tuple[object, Floats]] = field(default_factory=dict, init=False)

    def allocate(
        self, jobs: Mapping[str, ElasticTraining], before: Mapping[str, Nodes], sizes: Sequence[int]
    ) -> ElasticDecision:
        """See ``ElasticPolicy``. Raises ConfigError for nodes of several sizes of one type."""
        pools = self._pools(sizes)
        trainings = list(jobs.values())
        for one in trainings:
            if not one.starts:
                self._begin(one, measures=len(pools) > 1)
            elif self.shares_times and one.goodput.noise is not None:
                self._first_noise.setdefault(one.job.application.name, one.goodput.noise)
        goodput = np.array([self._row(one, pools) for one in trainings])
        counts = np.concatenate([pool.counts for pool in pools])
        pool_of = np.repeat(np.arange(len(pools)), [len(pool.counts) for pool in pools])
        choice = solve_multiple_choice(
            self.objective.program(
                ElasticRound(
                    goodput=goodput,
                    devices=counts,
                    accelerator=pool_of,
                    capacity=np.array([sum(pool.sizes) for pool in pools]),
                    present=np.array([_present(before.get(name, ()), pools) for name in jobs]),
                    starts=np.array([one.starts for one in trainings]),
                    age_s=np.array([one.now_s - one.job.submitted_s for one in trainings]),
                    remaining_s=np.array(
                        [
                            _remaining_s(one, row)
                            for one, row in zip(trainings, goodput, strict=True)
                        ]
                    ),
                    restart_s=np.full(len(jobs), RESTART_S),
                )
            )
        )
        chosen = {name: c for name, c in zip(jobs, choice.option.tolist(), strict=True) if c >= 0}
        nodes = dict[str, Nodes]()
        for k, pool in enumerate(pools):
            mine = {name: int(counts[c]) for name, c in chosen.items() if pool_of[c] == k}
            nodes |= _placed(mine, before, pool)
        return ElasticDecision({name: nodes[name] for name in chosen}, choice.gap)

    def _pools(self, sizes: Sequence[int]) -> list[_Pool]:
        types = self.accelerators or [""] * len(sizes)
        found = []
        for accelerator in dict.fromkeys(types):
            nodes = [node for node, name in enumerate(types) if name == accelerator]
            theirs = [sizes[node] for node in nodes]
            found.append(_Pool(accelerator, nodes, theirs, device_counts(theirs)))
        return found

    def _begin(self, one: ElasticTraining, *, measures: bool) -> None:
        """Tell a job that has not run yet what is known. measures: it is measured on one device of each
        type."""
        name = one.job.application.name
        for accelerator, goodput in one.goodputs.items():
            if self.shares_times:
                goodput.times = self._times.setdefault((name, accelerator), goodput.times)
                goodput.noise = self._first_noise.get(name)
            if measures:
                application = one.job.on[accelerator]
                alone = _alone(one)
                goodput.observe(alone, application.step_time((1,), alone.local_batch))
                goodput.noise = (
                    goodput.noise or application.between(goodput.limits.smallest, 0).noise
                )

    def _row(self, one: ElasticTraining, pools: Sequence[_Pool]) -> Floats:
        """(configurations,) the goodput of a job, 0 = it may not have so many devices."""
        known = tuple(one.goodputs.values())
        version = tuple(goodput.version for goodput in known)
        name = one.job.name
        if name not in self._rows or self._rows[name][0] != version:
            self._rows[name] = version, np.concatenate([_goodput(one, pool) for pool in pools])
        most = max(1, 2 * max(goodput.times.max_replicas for goodput in known))
        most = min(most, *(goodput.limits.max_replicas() for goodput in known))
        if not self.shares_times and one.job.application.name in ONE_DEVICE:
            most = 1
        counts = np.concatenate([pool.counts for pool in pools])
        return np.where(counts <= most, self._rows[name][1], 0.0)


def _alone(one: ElasticTraining) -> ReplicaSetting:
    """How a job is measured on one device of each type."""
    limits = [goodput.limits for goodput in one.goodputs.values()]
    return ReplicaSetting(1, 1, min(limits[0].smallest, *(each.max_local for each in limits)))


def _goodput(one: ElasticTraining, pool: _Pool) -> Floats:
    """(counts,) the goodput of a job on devices of a type. Where it ran on several devices of another type
    alone, the times of those are carried over (Sia, section 3.3)."""
    goodput = one.goodputs[pool.accelerator] if pool.accelerator else one.goodput
    nodes = -(-pool.counts // pool.sizes[0])
    if not goodput.is_known:
        return np.where(pool.counts == 1, 1.0, 0.0)
    wider = max(one.goodputs.values(), key=lambda other: other.times.max_replicas)
    if goodput.times.max_replicas > 1 or wider.times.max_replicas == goodput.times.max_replicas:
        return goodput.best(nodes, pool.counts).goodput
    alone = _alone(one)
    ratio = goodput.times.measured[alone].step_s / wider.times.measured[alone].step_s
    return goodput.best(nodes, pool.counts, wider.times.model().scaled(ratio)).goodput


def _present(nodes: Nodes, pools: Sequence[_Pool]) -> int:
    """The configuration of a job that has these nodes; -1 for none."""
    first = 0
    for pool in pools:
        if nodes and nodes[0] in pool.nodes:
            return first + int(np.searchsorted(pool.counts, len(nodes)))
        first += len(pool.counts)
    return -1


def _placed(
    counts: Mapping[str, int], before: Mapping[str, Nodes], pool: _Pool
) -> dict[str, Nodes]:
    """The nodes of jobs that have devices of a type."""
    inside = {node: k for k, node in enumerate(pool.nodes)}
    held = {
        name: tuple(inside[node] for node in nodes)
        for name, nodes in before.items()
        if nodes and nodes[0] in inside
    }
    found = place_on_whole_nodes(counts, held, pool.sizes)
    return {name: tuple(pool.nodes[k] for k in theirs) for name, theirs in found.items()}


def _remaining_s(one: ElasticTraining, goodput: Floats) -> float:
    """Seconds of useful steps until the end of the job on its slowest configuration; nan while its goodput
    is not known. The steps are those of a training with the smallest batch, as its owner would state
    them."""
    if not one.goodput.is_known:
        return float("nan")
    application = one.job.application
    steps = application.trainings[application.batches[0]][application.epochs - 1].progress
    return float(max(steps - one.progress, 1.0) / goodput[goodput > 0].min())
