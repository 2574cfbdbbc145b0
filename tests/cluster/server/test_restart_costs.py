"""What starts cost is measured, and the core told when it believes something else."""

from pathlib import Path

from fairlead.cluster.server.server_loop import (
    MIN_SAMPLES,
    MISJUDGED_FACTOR,
    LiveOptions,
    ServerLoop,
)
from fairlead.cluster.store.store import Store
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import RestartCosts
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup
from fairlead.simulator.traces.throughput_tables import read_throughputs


def _engine(folder: Path, restart_s: float | None = None) -> ServerLoop:
    table = read_throughputs("builtin")
    return ServerLoop(
        Store(folder, 2), LiveOptions("las_aware", DEFAULT, table, restart_s=restart_s)
    )


def test_the_belief_is_a_guess_then_what_was_said_then_what_was_measured(tmp_path: Path) -> None:
    assert _engine(tmp_path).restart_s() == 1.0  # of rounds of 360 s
    engine = _engine(tmp_path, 7.0)
    engine.restarts.extend([3.0] * (MIN_SAMPLES - 1))
    assert engine.restart_s() == 7.0
    engine.restarts.append(3.0)
    assert engine.restart_s() == 3.0


def test_the_core_is_put_together_anew_only_when_it_is_far_off(tmp_path: Path) -> None:
    engine = _engine(tmp_path)
    cluster = Cluster((Node("a", "v100", 1),))
    table = engine.options.catalogue.on(cluster)
    engine.setup = Setup("0", cluster, table, "las_aware", DEFAULT, 0, RestartCosts(1.0))
    engine.restarts.extend([0.9 * MISJUDGED_FACTOR] * MIN_SAMPLES)
    assert not engine.misjudges()
    engine.restarts.extend([1.1 * MISJUDGED_FACTOR] * 5 * MIN_SAMPLES)
    assert engine.misjudges()
    engine.restarts.clear()
    assert not engine.misjudges()
