"""Snapshots are put together field by field, without their constructor."""

from dataclasses import fields

from fairlead.model.cluster import Cluster
from fairlead.model.job import RestartCosts
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.core.snapshots import make_snapshot
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup, build
from fairlead.simulator.traces.throughput_tables import read_throughputs


def test_a_snapshot_has_every_field_and_no_other() -> None:
    cluster = Cluster.of({"v100": 4})
    setup = Setup(
        version="0",
        cluster=cluster,
        throughputs=read_throughputs("builtin").on(cluster),
        policy="las",
        settings=DEFAULT,
        seed=0,
        restart_costs=RestartCosts(),
    )
    snapshot = make_snapshot(build(setup).data, 0.0)
    assert list(vars(snapshot)) == [field.name for field in fields(Snapshot)]
