"""Which slot types there are on a cluster, and which of them a policy need look at."""

import numpy as np
from tests.job_types import job_types

from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.throughputs import Throughputs

TABLE = Throughputs(
    (SlotType("a"), SlotType("a", Locality.SCATTERED), SlotType("b")),
    job_types(("net", 1), ("net", 2), ("odd", 2)),
    np.array([[10.0, 10.0, 5.0], [18.0, 9.0, 8.0], [4.0, 6.0, 3.0]]),
)


def test_a_type_has_a_spread_slot_where_servers_make_a_difference() -> None:
    names = list(TABLE.slots)
    assert list(TABLE.on(Cluster.of({"a": 8, "b": 8}, 4)).slots) == names
    for cluster in (Cluster.of({"a": 8, "b": 8}), Cluster.of({"a": 4, "b": 8}, 4)):
        assert TABLE.on(cluster).slots == cluster.slots
    cluster = Cluster.of({"a": 8, "b": 8}, 4)
    assert TABLE.on(cluster, scattered=False).slots == cluster.slots
    assert TABLE.on(cluster).other_locality.tolist() == [1, 0, -1]


def test_jobs_of_one_device_are_never_spread() -> None:
    table = TABLE.on(Cluster.of({"a": 8, "b": 8}, 4))
    assert table.rate[:, 1].tolist() == [0.0, 9.0, 6.0]


def test_a_spread_rate_that_gains_nothing_is_not_offered() -> None:
    pair = np.zeros((3, 3, 3))
    pair[1, 2], pair[2, 1] = [9.0, 8.0, 1.0], [2.0, 2.0, 1.0]  # never better spread
    pair[1, 1], pair[2, 2] = [5.0, 6.0, 1.0], [1.0, 1.0, 1.0]
    table = Throughputs(TABLE.slots, TABLE.job_types, TABLE.rate, pair).undominated()
    assert table.rate[:, 1].tolist() == [0.0, 0.0, 6.0]
    assert table.rate[:, 0].tolist() == [10.0, 18.0, 4.0]
    assert table.colocated_rate is not None
    assert table.colocated_rate[1, 2].tolist() == [9.0, 0.0, 1.0]
    assert table.colocated_rate[1, 1].tolist() == [5.0, 6.0, 1.0]
