"""The loop of Pollux's released simulator: time passes in intervals, and between two of them devices change
hands."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.simulator.pollux_reference.applications import Placement
from fairlead.simulator.pollux_reference.policies import ElasticPolicy, Nodes
from fairlead.simulator.pollux_reference.training import ElasticTraining
from fairlead.simulator.pollux_reference.workload import ElasticJob


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationChange:
    """The devices of a job from a moment on."""

    time_s: float
    job: str
    nodes: Nodes
    batch: int  # samples of a step of the whole job; 0 = it does not run


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRun:
    """The outcome of a simulation."""

    trainings: tuple[ElasticTraining, ...]  # in the order of the workload, all of them ended
    changes: tuple[AllocationChange, ...]
    solve_s: tuple[float, ...]  # of each decision
    gap: float | None  # the largest of the decisions', None = the policy has no objective

    def jct_s(self) -> dict[str, float]:
        """Return the completion time of each job, seconds from its submission to its end."""
        return {
            one.job.name: one.ended_s - one.job.submitted_s
            for one in self.trainings
            if one.ended_s is not None
        }


def simulate_elastic(
    jobs: Sequence[ElasticJob],
    policy: ElasticPolicy,
    sizes: Sequence[int],
    interval_s: float,
    *,
    accelerators: Sequence[str] = (),
    progressed: Callable[[int], None] = lambda _: None,
) -> ElasticRun:
    """Run until all jobs have ended.

    sizes: devices of each node; accelerators: their types, () = all are of one that all jobs were measured
    on; progressed: told how many have ended.
    Raises ConfigError for a job that the policy can never run."""
    trainings = {job.name: ElasticTraining(job, policy.adapts_batch) for job in jobs}
    held = dict[str, Nodes]()
    changes, solve_s, gaps = list[AllocationChange](), list[float](), list[float]()
    now_s = 0.0
    while any(one.ended_s is None for one in trainings.values()):
        for one in trainings.values():
            one.advance(interval_s)
        now_s += interval_s
        present = {
            name: one
            for name, one in trainings.items()
            if one.job.submitted_s <= now_s and one.ended_s is None
        }
        held = {name: nodes for name, nodes in held.items() if name in present}
        if present:
            began = time.perf_counter()
            decision = policy.allocate(present, held, sizes)
            solve_s.append(time.perf_counter() - began)
            if decision.gap is not None:
                gaps.append(decision.gap)
            changes += _reallocate(present, held, decision.nodes, now_s, accelerators)
            held = decision.nodes
        progressed(sum(one.ended_s is not None for one in trainings.values()))
    return ElasticRun(
        trainings=tuple(trainings.values()),
        changes=tuple(changes),
        solve_s=tuple(solve_s),
        gap=max(gaps, default=None),
    )


def _reallocate(
    present: Mapping[str, ElasticTraining],
    held: Mapping[str, Nodes],
    wanted: Mapping[str, Nodes],
    now_s: float,
    accelerators: Sequence[str],
) -> list[AllocationChange]:
    """Give jobs their new devices; what changed."""
    changes = []
    for name, one in present.items():
        nodes = wanted.get(name, ())
        if nodes != held.get(name, ()):
            on_type = accelerators[nodes[0]] if nodes and accelerators else None
            one.place(_placement(nodes), on_type)
            batch = one.choice.total(len(nodes))
            changes.append(AllocationChange(time_s=now_s, job=name, nodes=nodes, batch=batch))
    return changes


def _placement(nodes: Nodes) -> Placement:
    """Replicas on each node, in the order of the ranks."""
    placement = list[int]()
    for k, node in enumerate(nodes):
        if k and node == nodes[k - 1]:
            placement[-1] += 1
        else:
            placement.append(1)
    return tuple(placement)
