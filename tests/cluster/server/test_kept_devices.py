"""A job that keeps its devices after it was told to stop is charged for it."""

from types import SimpleNamespace
from typing import Any

from fairlead.cluster.agent.device_claim import NOT_ENDED
from fairlead.cluster.protocol.messages import AttemptStatus, Rank
from fairlead.cluster.server.kept_devices import KeptDevices
from fairlead.cluster.store.rows import TenantTotals
from fairlead.model.events import DevicesKept, DevicesOccupied, Event

TOLD_S = 100.0  # when the job was told to stop


class Cluster:
    """One job of two devices, which was told to stop; it is not in the round in force."""

    def __init__(self) -> None:
        self.totals = TenantTotals()
        self.row = SimpleNamespace(id=7, tenant="t", device_s=0.0, state="preempted")
        self.attempt: Any = SimpleNamespace(
            key=(7, 1),
            row=self.row,
            record=SimpleNamespace(
                accelerator="k80", devices=(0, 1), ended_s=None, wait_s=0.0, trained_s=None
            ),
            stop_ordered_s=TOLD_S,
            saved_before_s=5.0,
            lost=False,
            begin_noted=False,
            statuses={},
            stopping="preempted",
            ordered=True,
            nodes={"a": (Rank(rank=0, devices=(0,)),), "b": (Rank(rank=1, devices=(3,)),)},
            placement=lambda: {"a": (0,), "b": (3,)},
            has_left=lambda node: node in self.left,
            ended_s={},
            colocated=(),
        )
        self.left: set[str] = set()
        self.told: list[Event] = []
        self.saving(5.0)
        self.registry = SimpleNamespace(
            live={7: [self.attempt]}, jobs={7: self.row}, dirty_jobs=set(), totals_of=self._totals
        )
        self.core = SimpleNamespace(occupied=())
        self.round: Any = SimpleNamespace(attempts={})
        state: Any = SimpleNamespace(
            registry=self.registry,
            round=self.round,
            scheduler=SimpleNamespace(data=self.core),
            clock=SimpleNamespace(restored_s=TOLD_S + 20.0),
        )
        self.kept = KeptDevices(state)

    def _totals(self, tenant: str) -> TenantTotals:
        assert tenant == "t"
        return self.totals

    def saving(self, seconds: float) -> None:
        """Its saves have taken so long in all."""
        self.attempt.leader = AttemptStatus(job=7, attempt=1, state="stopping", saving_s=seconds)

    def reported_s(self, now: float) -> float:
        """Seconds that the core is told of at the end of a round."""
        self.told = list(self.kept.reported(self.round, now))
        kept = [event for event in self.told if isinstance(event, DevicesKept)]
        if not kept:
            return 0.0
        (event,) = kept
        assert (event.time_s, event.jobs.tolist(), event.accelerators) == (now, [7], ("k80",))
        return float(event.kept_s[0])

    def end(self, at_s: float) -> None:
        """Its attempt is over."""
        self.attempt.record.ended_s = at_s
        self.registry.live.clear()
        self.kept.ended(self.attempt, "")


def test_each_second_counts_once() -> None:
    cluster = Cluster()
    assert [cluster.reported_s(now) for now in (103.0, 106.0, 106.0)] == [3.0, 3.0, 0.0]
    cluster.end(108.0)  # between two rounds
    assert [cluster.reported_s(now) for now in (109.0, 112.0)] == [2.0, 0.0]
    assert cluster.totals.device_s == cluster.row.device_s == 16.0
    assert cluster.registry.dirty_jobs == {7}


def test_the_time_of_its_save_is_not_charged() -> None:
    cluster = Cluster()
    cluster.saving(7.0)
    assert cluster.reported_s(103.0) == 1.0
    cluster.saving(20.0)
    assert cluster.reported_s(112.0) == 0.0  # it went on saving
    cluster.end(118.0)
    assert cluster.reported_s(120.0) == 2.0


def test_a_round_that_counts_the_job_is_not_counted_again() -> None:
    """It was told to stop in the middle of its own round, or goes on elsewhere in this one."""
    cluster = Cluster()
    cluster.round.attempts[7] = cluster.attempt
    assert cluster.reported_s(103.0) == 0.0
    del cluster.round.attempts[7]
    assert cluster.reported_s(105.0) == 2.0
    cluster.round.attempts[7] = cluster.attempt
    cluster.end(108.0)
    assert cluster.reported_s(110.0) == 0.0


def test_a_job_that_was_given_fewer_devices_is_charged_for_those_that_it_keeps_beside_them() -> (
    None
):
    """The round counts as many as it has now."""
    cluster = Cluster()
    cluster.round.attempts[7] = SimpleNamespace(record=SimpleNamespace(devices=(0,)))
    assert cluster.reported_s(TOLD_S + 4.0) == 2.0  # of two devices half
    assert cluster.row.device_s == cluster.totals.device_s == 4.0
    cluster.end(TOLD_S + 6.0)
    assert cluster.reported_s(TOLD_S + 10.0) == 1.0
    assert cluster.totals.device_s == 6.0


def test_nothing_is_charged_for_an_attempt_without_devices_or_of_a_lost_node() -> None:
    waits, lost, old = Cluster(), Cluster(), Cluster()
    waits.attempt.record.wait_s = -1.0
    lost.attempt.lost = True
    old.attempt.stop_ordered_s = None  # by a server before this one
    assert [one.reported_s(103.0) for one in (waits, lost, old)] == [0.0, 0.0, 0.0]


def test_a_gang_is_charged_for_the_nodes_that_it_has_not_left() -> None:
    cluster = Cluster()
    cluster.attempt.ended_s["a"] = 101.0
    assert cluster.reported_s(104.0) == 0.5 + 2.0  # of two devices, one for 1 s and one for 4 s
    assert cluster.totals.device_s == 5.0
    released = AttemptStatus(job=7, attempt=1, state="stopping", released=True)
    cluster.attempt.statuses["b"] = released  # it saves before it is parked, without its device
    assert cluster.reported_s(110.0) == 0.0


def test_a_pair_is_charged_for_half_a_device_each() -> None:
    cluster = Cluster()
    cluster.attempt.colocated = ((8, 1),)
    cluster.registry.live[8] = [Cluster().attempt]
    other = cluster.registry.live[8][0]
    other.key, other.stop_ordered_s = (8, 1), None
    assert cluster.reported_s(104.0) == 2.0


def test_the_core_is_told_which_devices_are_occupied() -> None:
    cluster = Cluster()
    cluster.reported_s(103.0)
    assert cluster.told[-1] == DevicesOccupied(103.0, (("a", 0), ("b", 3)))
    cluster.core.occupied = cluster.told[-1].devices
    cluster.reported_s(106.0)
    assert not any(isinstance(event, DevicesOccupied) for event in cluster.told)
    cluster.left.add("a")
    cluster.reported_s(107.0)
    assert cluster.told[-1] == DevicesOccupied(107.0, (("b", 3),))
    cluster.core.occupied = (("b", 3),)
    cluster.end(108.0)
    cluster.reported_s(109.0)
    assert cluster.told[-1] == DevicesOccupied(109.0, ())


def test_devices_that_another_trains_on_are_not_occupied() -> None:
    """Of a pair, one was told to stop and the other goes on."""
    cluster = Cluster()
    other = Cluster().attempt
    other.key, other.stopping, other.stop_ordered_s = (8, 1), "", None
    other.placement = lambda: {"a": (0,)}
    cluster.registry.live[8] = [other]
    cluster.reported_s(103.0)
    assert cluster.told[-1] == DevicesOccupied(103.0, (("b", 3),))


def test_it_is_charged_also_while_there_is_no_round() -> None:
    cluster = Cluster()
    cluster.round = None
    assert cluster.reported_s(103.0) == 3.0
    assert cluster.reported_s(104.0) == 0.0  # now and then
    assert cluster.reported_s(106.0) == 3.0
    cluster.end(107.0)
    assert cluster.reported_s(109.0) == 1.0


def test_devices_that_are_left_in_a_moment_are_not_occupied() -> None:
    """Whoever got others for that would be moved back a round later."""
    cluster = Cluster()
    cluster.reported_s(TOLD_S + 1.0)
    assert not any(isinstance(event, DevicesOccupied) for event in cluster.told)
    cluster.reported_s(TOLD_S + 2.0)
    assert cluster.told[-1] == DevicesOccupied(102.0, (("a", 0), ("b", 3)))


def test_devices_of_an_attempt_that_may_have_begun_are_not_occupied() -> None:
    """The end of the one before it is told late: it was moved off the device that it had just got."""
    cluster = Cluster()
    other = Cluster().attempt
    other.key, other.stopping, other.stop_ordered_s = (8, 1), "", None
    other.record.wait_s = -1.0
    other.placement = lambda: {"a": (0,)}
    other.leader = AttemptStatus(job=8, attempt=1, state="starting")
    cluster.registry.live[8] = [other]
    cluster.reported_s(103.0)
    assert cluster.told[-1] == DevicesOccupied(103.0, (("b", 3),))
    other.leader = AttemptStatus(job=8, attempt=1, state="starting", reason=NOT_ENDED)
    cluster.reported_s(104.0)
    assert cluster.told[-1] == DevicesOccupied(104.0, (("a", 0), ("b", 3)))


def test_a_server_that_was_started_anew_charges_the_rest_of_a_grace() -> None:
    """It knows that the job was to leave, not since when."""
    cluster = Cluster()
    cluster.attempt.stop_ordered_s, cluster.attempt.saved_before_s = None, 0.0
    cluster.saving(0.0)
    assert cluster.reported_s(TOLD_S + 30.0) == 10.0
    cluster.end(TOLD_S + 32.0)
    assert cluster.reported_s(TOLD_S + 40.0) == 2.0


def test_who_was_not_told_to_stop_keeps_nothing() -> None:
    cluster = Cluster()
    cluster.attempt.stop_ordered_s, cluster.attempt.stopping = None, ""
    assert cluster.reported_s(TOLD_S + 30.0) == 0.0
