"""What starts cost is measured, and the core told when it believes something else."""

from tests.cluster.server_parts import cluster_state

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.restart_costs import (
    MIN_SAMPLES,
    MISJUDGED_FACTOR,
    MeasuredStarts,
)
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import RestartCosts
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup
from fairlead.simulator.traces.throughput_tables import read_throughputs


def _state(restart_s: float | None = None) -> ClusterState:
    fleet = Fleet(30.0, 0.01, lambda: 0.0, lambda _: None)
    return cluster_state(fleet, lambda: 0.0, restart_s=restart_s)


def test_the_belief_is_a_guess_then_what_was_said_then_what_was_measured() -> None:
    assert MeasuredStarts(_state()).restart_s() == 1.0  # of rounds of 360 s
    starts = MeasuredStarts(_state(7.0))
    starts.seconds.extend([3.0] * (MIN_SAMPLES - 1))
    assert starts.restart_s() == 7.0
    starts.seconds.append(3.0)
    assert starts.restart_s() == 3.0


def test_the_core_is_put_together_anew_only_when_it_is_far_off() -> None:
    state = _state()
    starts = MeasuredStarts(state)
    cluster = Cluster((Node("a", "v100", 1),))
    table = read_throughputs("builtin").on(cluster)
    state.setup = Setup(
        version="0",
        cluster=cluster,
        throughputs=table,
        policy="las_aware",
        settings=DEFAULT,
        seed=0,
        restart_costs=RestartCosts(1.0),
    )
    starts.seconds.extend([0.9 * MISJUDGED_FACTOR] * MIN_SAMPLES)
    assert not starts.is_misjudged()
    starts.seconds.extend([1.1 * MISJUDGED_FACTOR] * 5 * MIN_SAMPLES)
    assert starts.is_misjudged()
    starts.seconds.clear()
    assert not starts.is_misjudged()
