"""The policies of Pollux's release that need no model of its jobs: Tiresias and Optimus."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from fairlead.errors import ConfigError, ThroughputError
from fairlead.simulator.pollux_reference.applications import Placement
from fairlead.simulator.pollux_reference.training import ElasticTraining

Nodes: TypeAlias = tuple[int, ...]  # of each replica of a job, its node
DEMOTION_S = 16 * 3600.0  # device-seconds after which Tiresias prefers other jobs


class ElasticDecision(NamedTuple):
    """Of a policy. nodes: of the replicas of each job that is to run; gap: how far the policy's objective
    may be from the best one, relative to it, None = it has none."""

    nodes: dict[str, Nodes]
    gap: float | None = None


class ElasticPolicy(Protocol):
    """Decides how many devices each job has, and which."""

    @property
    def adapts_batch(self) -> bool:
        """Return whether batches are chosen by goodput, not by owners."""

    def allocate(
        self, jobs: Mapping[str, ElasticTraining], before: Mapping[str, Nodes], sizes: Sequence[int]
    ) -> ElasticDecision:
        """Return what each job has from now on.

        jobs: that have arrived and not ended, in order of the workload; before: what those of them hold that
        run; sizes: devices of each node.
        """


class ReleasedTiresias:
    """Two queues by attained service (NSDI'19), with the numbers of devices that owners ask for. A job that
    does not fit into what is left is passed over."""

    adapts_batch = False

    def __init__(self) -> None:
        self._queues: tuple[list[str], list[str]] = ([], [])

    def allocate(
        self, jobs: Mapping[str, ElasticTraining], before: Mapping[str, Nodes], sizes: Sequence[int]
    ) -> ElasticDecision:
        """See ``ElasticPolicy``. Raises ConfigError for a job that asks for more devices than there are."""
        first, second = self._queues
        for queue in self._queues:
            queue[:] = [name for name in queue if name in jobs]
        known = {*first, *second}
        first += [name for name in jobs if name not in known]
        demoted = [name for name in first if jobs[name].service_s >= DEMOTION_S]
        first[:] = [name for name in first if name not in demoted]
        second += demoted
        left, counts = sum(sizes), dict[str, int]()
        for name in (*first, *second):
            replicas = jobs[name].job.replicas
            if replicas > sum(sizes):
                raise ConfigError(
                    f"job {name!r}: asks for {replicas} devices, the cluster has {sum(sizes)}"
                )
            if replicas <= left:
                counts[name] = replicas
                left -= replicas
        return ElasticDecision(place(counts, before, sizes))


class ReleasedOptimus:
    """Devices one by one to the job that they save most time (EuroSys'18), by its true step times with the
    batch that its owner asks for."""

    adapts_batch = False

    def allocate(
        self, jobs: Mapping[str, ElasticTraining], before: Mapping[str, Nodes], sizes: Sequence[int]
    ) -> ElasticDecision:
        """See ``ElasticPolicy``. Jobs are placed in order of their numbers of devices."""
        per_node, left = sizes[0], sum(sizes)
        counts, saved = dict[str, int](), dict[str, float]()
        for name, one in jobs.items():
            counts[name] = min(left, 1)
            left -= counts[name]
            saved[name] = _saved_s(one, 1, per_node) if counts[name] else 0.0
        while left and max(saved.values()) > 0:
            name = max(saved, key=saved.__getitem__)
            counts[name] += 1
            left -= 1
            saved[name] = _saved_s(jobs[name], counts[name], per_node)
        in_order = sorted((name for name in counts if counts[name]), key=counts.__getitem__)
        return ElasticDecision(place({name: counts[name] for name in in_order}, before, sizes))


def _saved_s(one: ElasticTraining, replicas: int, per_node: int) -> float:
    """Seconds that one replica more would save the rest of a job; <= 0 where it would save nothing, or
    nothing is known of it."""
    now_s = _iteration_s(one, replicas, per_node)
    try:
        then_s = _iteration_s(one, replicas + 1, per_node)
    except ThroughputError:
        return 0.0
    return (now_s - then_s) * _iterations_left(one)


def _iteration_s(one: ElasticTraining, replicas: int, per_node: int) -> float:
    """Seconds of a step on as few nodes as hold so many replicas."""
    full, rest = divmod(replicas, per_node)
    placement: Placement = (per_node,) * full + ((rest,) if rest else ())
    application = one.job.application
    choice = application.choose_batch(one.job.batch, replicas, accumulates=False)
    return application.iteration_s(placement, choice)


def _iterations_left(one: ElasticTraining) -> float:
    """Steps from the present epoch to the last one, with the batch that the owner asks for."""
    application, last = one.job.application, one.job.application.epochs - 1
    if last <= one.epoch:
        return 1.0
    batch = one.job.batch
    return (
        application.between(batch, last).iteration - application.between(batch, one.epoch).iteration
    )


def place(
    counts: Mapping[str, int], before: Mapping[str, Nodes], sizes: Sequence[int]
) -> dict[str, Nodes]:
    """Return the nodes of the replicas of each job. Who has as many as before keeps them; the others get
    theirs in the order given, on the nodes with most free devices."""
    found = {
        name: before[name]
        for name in before
        if name in counts and len(before[name]) == counts[name]
    }
    free = Counter(dict(enumerate(sizes)))
    for nodes in found.values():
        free.subtract(nodes)
    for name, count in counts.items():
        if name in found:
            continue
        given = list[int]()
        while len(given) < count:
            [(node, most)] = free.most_common(1)
            taken = min(most, count - len(given))
            given += [node] * taken
            free[node] -= taken
        found[name] = tuple(given)
    return found
