"""Reports and orders are states: whatever is lost, doubled or late, the newest decides."""

import msgspec
import pytest

from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    Assignment,
    AttemptStatus,
    NodeReport,
    Rank,
    Register,
)
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.local_front import LocalFront
from fairlead.errors import StaleError


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Cluster(Fleet):
    """Driver and front of a node in one, on a clock that a test turns."""

    def __init__(
        self, time: Time, noticed: list[str], lease_s: float = 10.0, shortest_s: float = 0.0
    ) -> None:
        super().__init__(lease_s, 0.01, time, noticed.append, shortest_s)
        self.front = LocalFront(self)
        self.report = self.front.report

    def loses(self, patience_s: float) -> list[str]:
        """The driver asks, the front answers."""
        assert self.silent(lambda _: patience_s) == [], "never without the front"
        return self.silent(lambda _: patience_s)


def _fleet(time: Time, noticed: list[str], shortest_s: float = 0.0) -> Cluster:
    fleet = Cluster(time, noticed, shortest_s=shortest_s)
    fleet.add("a", "v100", 2)
    fleet.register(_register())
    fleet.publish()
    return fleet


def _register(incarnation: str = "one", holds: tuple[AttemptStatus, ...] = ()) -> Register:
    return Register(
        protocol=PROTOCOL,
        version="0",
        node="a",
        incarnation=incarnation,
        host="h",
        accelerator="v100",
        devices=2,
        holds=holds,
    )


def _assignment(job: int = 1, attempt: int = 1) -> Assignment:
    return Assignment(
        job=job,
        attempt=attempt,
        command=("true",),
        env={},
        cwd="",
        checkpoint_dir="",
        ranks=(Rank(rank=0, devices=(0,)),),
        world_size=1,
    )


def _report(seq: int, *holds: AttemptStatus, orders_seq: int = 0) -> NodeReport:
    return NodeReport(node="a", incarnation="one", seq=seq, holds=holds, orders_seq=orders_seq)


def _held(state: str = "running", step: int = 0, job: int = 1) -> AttemptStatus:
    return AttemptStatus(job=job, attempt=1, state=state, step=step)  # type: ignore[arg-type]


def test_orders_are_seen_only_when_published() -> None:
    fleet = _fleet(Time(), [])
    fleet.desire("a", _assignment())
    assert fleet.report(_report(0)).desired == ()
    fleet.publish()
    orders = fleet.report(_report(1))
    assert [a.job for a in orders.desired] == [1]
    assert orders.leases == {}, "there is nothing to renew before the node holds it"


def test_a_report_renews_the_leases_of_what_is_wanted() -> None:
    time, noticed = Time(), list[str]()
    fleet = _fleet(time, noticed)
    fleet.desire("a", _assignment())
    fleet.publish()
    assert fleet.report(_report(0, _held(), _held(job=2))).leases == {1: 10.0}
    assert noticed == ["a"]
    fleet.report(_report(1, _held(step=5), _held(job=2)))
    assert noticed == ["a"], "progress alone is no news"
    fleet.revoke("a", 1, 1, "preempted")
    fleet.publish()
    orders = fleet.report(_report(2, _held(step=6)))
    assert orders.leases == {}
    assert orders.reasons == {1: "preempted"}


def test_late_and_doubled_reports_change_nothing() -> None:
    fleet = _fleet(Time(), [])
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.report(_report(5, _held(step=50)))
    assert fleet.report(_report(4, _held(step=40))).leases == {}
    assert fleet.report(_report(5, _held(step=45))).leases == {}
    held = fleet.status("a", (1, 1))
    assert held is not None
    assert held.step == 50


def test_a_silent_node_is_lost_when_its_leases_are_over_and_not_before() -> None:
    time = Time()
    fleet = _fleet(time, [])
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.report(_report(0, _held()))
    _pass(fleet, time, 10.0 * 1.01 + 3.0 - 0.1)
    assert fleet.loses(3.0) == []
    _pass(fleet, time, 0.2)
    assert fleet.loses(3.0) == ["a"]
    with pytest.raises(StaleError):
        fleet.report(_report(1, _held()))
    fleet.mark_lost("a")
    with pytest.raises(StaleError):
        fleet.report(_report(1, _held()))
    assert fleet.register(_register()) == []
    fleet.publish()
    assert fleet.report(_report(0, _held())).desired == ()


def _pass(fleet: Cluster, time: Time, seconds: float) -> None:
    """Time goes by while the front does its work."""
    until = time.now + seconds
    while time.now < until:
        time.now = min(time.now + 1.0, until)
        fleet.front.table.poll()


def test_a_front_that_was_away_blames_no_node() -> None:
    time = Time()
    fleet = _fleet(time, [])
    time.now += 1000.0
    assert fleet.loses(3.0) == [], "the first that it does is to pardon"
    _pass(fleet, time, 3.1)
    assert fleet.loses(3.0) == ["a"]


def test_a_driver_that_stood_still_does_not_take_nodes_for_silent() -> None:
    time = Time()
    fleet = _fleet(time, [])
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.front.table.forward = lambda _: None
    for seq in range(30):
        _pass(fleet, time, 1.0)
        assert fleet.report(_report(seq, _held())).leases == {1: 10.0}
    assert fleet.nodes["a"].leases.until == 0.0, "as far as the driver knows"
    assert fleet.loses(3.0) == []
    assert fleet.nodes["a"].leases.until == time.now + 10.1, "now it knows better"


def test_a_loss_is_not_taken_back_by_orders_that_crossed_it() -> None:
    time = Time()
    fleet = _fleet(time, [])
    _pass(fleet, time, 20.0)
    fleet.silent(lambda _: 3.0)  # the front agrees, the driver has not heard of it yet
    fleet.desire("a", _assignment())
    fleet.publish()
    with pytest.raises(StaleError):
        fleet.report(_report(0, _held()))


def test_a_node_that_registers_again_in_time_is_not_lost() -> None:
    time = Time()
    fleet = _fleet(time, [])
    _pass(fleet, time, 20.0)
    fleet.silent(lambda _: 3.0)  # the front agrees
    fleet.register(_register())
    assert fleet.silent(lambda _: 3.0) == []
    fleet.publish()
    assert fleet.report(_report(0)).desired == ()


def test_the_driver_hears_what_was_granted_before_a_name_was_taken_over() -> None:
    time = Time()
    fleet = _fleet(time, [])
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.register(_register("two"))
    fleet.front.table.forward = lambda _: None
    fleet.report(_report(0, _held()))  # before the front knows of the other one
    fleet.publish()
    assert fleet.nodes["a"].leases.until == time.now + 10.1
    with pytest.raises(StaleError):
        fleet.report(_report(1, _held()))


def test_a_front_that_is_started_anew_knows_all_and_assumes_the_worst() -> None:
    time, noticed = Time(), list[str]()
    fleet = _fleet(time, noticed)
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.report(_report(7, _held()))
    fleet.desire("a", _assignment(job=2))  # not published yet
    noticed.clear()
    time.now += 1.0
    fleet.front = LocalFront(fleet)
    states = fleet.again()
    for state in states:
        fleet.front.table.publish(state)
    _pass(fleet, time, 10.0)
    assert fleet.loses(0.0) == [], "a lease that the dead one granted may still run"
    orders = fleet.front.report(_report(8, _held(step=5)))
    assert [a.job for a in orders.desired] == [1]
    assert orders.leases == {1: 10.0}
    assert noticed == ["a"]
    _pass(fleet, time, 10.2)
    assert fleet.loses(0.0) == ["a"]


def test_another_incarnation_is_told_to_register() -> None:
    fleet = _fleet(Time(), [])
    fleet.report(_report(0, _held()))
    assert fleet.register(_register("two")) == [(1, 1)], "what the new one does not hold"
    fleet.publish()
    with pytest.raises(StaleError):
        fleet.report(_report(9, _held()))


def test_what_was_never_begun_is_known_to_be_so() -> None:
    fleet = _fleet(Time(), [])
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.report(_report(0))
    fleet.revoke("a", 1, 1, "preempted")
    fleet.publish()
    assert not fleet.will_never_begin("a", (1, 1)), "the node may still follow the older orders"
    newest = fleet.orders("a").seq
    fleet.report(_report(1, orders_seq=newest))
    assert fleet.will_never_begin("a", (1, 1))


def test_what_is_wanted_and_not_held_will_not_begin() -> None:
    fleet = _fleet(Time(), [])
    fleet.desire("a", _assignment())
    fleet.publish()
    newest = fleet.orders("a").seq
    assert not fleet.will_never_begin("a", (1, 1)), "it may not have heard of it"
    fleet.report(_report(1, orders_seq=newest))
    assert fleet.will_never_begin("a", (1, 1)), "it has begun it before, and forgotten it"
    fleet.report(_report(2, _held("starting"), orders_seq=newest))
    assert not fleet.will_never_begin("a", (1, 1))


def test_an_end_is_reported_until_it_is_forgotten() -> None:
    fleet = _fleet(Time(), [])
    fleet.report(_report(0, _held("ended")))
    assert fleet.ended("a") == [(1, 1)]
    fleet.forget("a", (1, 1))
    fleet.publish()
    assert fleet.orders("a").forget == ((1, 1),)
    assert not fleet.nodes["a"].desired.sent.push, "it hears of that with its next report"  # type: ignore[union-attr]
    fleet.report(_report(1))
    fleet.desire("a", _assignment(2))
    fleet.publish()
    assert fleet.orders("a").forget == ()


def test_many_nodes_report_less_often_as_far_as_their_leases_allow() -> None:
    def after(nodes: int) -> tuple[float, float]:
        fleet = Fleet(
            lease_s=30.0, rate_bound=0.01, monotonic=Time(), on_change=print, shortest_s=2.0
        )
        for number in range(1, nodes):
            fleet.add(f"node-{number}", "v100", 8)
        fleet.add("a", "v100", 8)
        fleet.register(_register())
        front = LocalFront(fleet)
        fleet.publish()
        return front.report(_report(1)).heartbeat_s, fleet.silence_s

    assert after(500) == (2.0, 9.0)
    assert after(1000) == (4.0, 17.0)
    assert after(5000) == (7.5, 31.0), "a lease sees four"


def test_a_new_agent_inherits_what_the_old_one_had_a_lease_for() -> None:
    time = Time()
    fleet = _fleet(time, [])
    for job in (1, 2):
        fleet.desire("a", _assignment(job))
    fleet.publish()
    fleet.report(_report(0, _held()))
    time.now += 5.0
    fleet.register(_register("two"), {(1, 1): 7.0, (2, 1): 7.0})
    node = fleet.nodes["a"]
    assert set(node.agent.inherited) == {(1, 1)}, "nothing is started without a lease"
    assert node.agent.inherited[1, 1].until == 100.0 + 10.0 * 1.01 + fleet.silence_s + 7.0
    assert fleet.orders("a").desired == (), "the orders were the old one's"
    fleet.publish()
    fleet.desire("a", _assignment())
    fleet.publish()
    assert fleet.orders("a").desired == (), "nor is it to begin that start again"
    newest = fleet.orders("a").seq
    fleet.report(msgspec.structs.replace(_report(0, orders_seq=newest), incarnation="two"))
    assert not fleet.will_never_begin("a", (1, 1))
    assert fleet.drop_expired("a") == []
    time.now = node.agent.inherited[1, 1].until + 0.1
    assert fleet.drop_expired("a") == [(1, 1)]
    assert fleet.will_never_begin("a", (1, 1))


def test_a_third_agent_inherits_from_both() -> None:
    time = Time()
    fleet = _fleet(time, [])
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.report(_report(0, _held()))
    fleet.register(msgspec.structs.replace(_register("two"), machine="m"), {(1, 1): 7.0})
    fleet.publish()
    fleet.desire("a", _assignment(2))
    fleet.publish()
    second = msgspec.structs.replace(_report(0, _held(job=2)), incarnation="two")
    fleet.report(second)
    both = {(1, 1): 7.0, (2, 1): 7.0}
    third = msgspec.structs.replace(_register("three"), machine="m", cleared=("two",))
    fleet.register(third, both)
    fleet.publish()
    assert set(fleet.nodes["a"].agent.inherited) == {(1, 1)}, "of the first nobody has made sure"
    assert set(fleet.nodes["a"].agent.superseded) == {"one", "two"}


@pytest.mark.parametrize(
    ("machine", "cleared", "waits"),
    [
        ("m", ("one",), False),
        ("another", ("one",), True),
        ("m", ("zero",), True),
        ("m", (), True),
        ("", ("one",), True),
    ],
)
def test_a_proof_counts_for_the_same_machine_and_incarnation_only(
    machine: str, cleared: tuple[str, ...], waits: bool
) -> None:
    fleet = Cluster(Time(), [])
    fleet.add("a", "v100", 2)
    first = msgspec.structs.replace(_register(), machine="m" if machine else "")
    fleet.register(first)
    fleet.publish()
    fleet.desire("a", _assignment())
    fleet.publish()
    fleet.report(_report(0, _held()))
    new = msgspec.structs.replace(_register("two"), machine=machine, cleared=cleared)
    fleet.register(new, {(1, 1): 7.0})
    assert bool(fleet.nodes["a"].agent.inherited) is waits


def test_what_was_renewed_while_a_takeover_was_made_durable_is_waited_for() -> None:
    time = Time()
    fleet = _fleet(time, [])
    for job in (1, 2):
        fleet.desire("a", _assignment(job))
    fleet.publish()
    fleet.report(_report(0, _held()))
    two = _register("two")
    assert fleet.front.table.begin_contest(two)
    fleet.register(two, {(1, 1): 7.0, (2, 1): 7.0})
    before = fleet.nodes["a"].agent.inherited[1, 1].until
    _pass(fleet, time, 5.0)
    leases = fleet.report(_report(1, _held(), _held(job=2))).leases
    assert leases == {1: 10.0}, (
        "the start that had none gets none: its successor does not wait for it"
    )
    time.now += 1000.0
    assert fleet.drop_expired("a") == [], "the front has not told yet what it has renewed"
    fleet.publish()
    assert fleet.nodes["a"].agent.inherited[1, 1].until == pytest.approx(before + 5.0)
    assert fleet.drop_expired("a") == [(1, 1)]


def test_two_heartbeats_of_silence_are_suspicious_and_a_word_ends_it() -> None:
    time, noticed = Time(), list[str]()
    fleet = _fleet(time, noticed, shortest_s=2.0)
    node = fleet.nodes["a"]
    time.now += 3.9
    fleet.find_suspects()
    assert not node.suspect
    time.now += 0.2
    fleet.find_suspects()
    assert node.suspect
    fleet.report(_report(0))
    assert not node.suspect
    assert noticed == ["a"], "the driver hears of it at once"


def test_a_broken_connection_is_suspicious_unless_it_comes_back() -> None:
    time = Time()
    fleet = _fleet(time, [], shortest_s=2.0)
    node = fleet.nodes["a"]
    time.now += 1.0
    fleet.front.table.disconnected("a", "another")
    assert not node.observed.broke
    fleet.front.table.disconnected("a", "one")
    fleet.find_suspects()
    assert not node.suspect, "it gets the time to connect again"
    time.now += 0.6
    fleet.find_suspects()
    assert node.suspect
    fleet.report(_report(0))
    fleet.find_suspects()
    assert not node.suspect


def test_a_start_cannot_begin_once_it_is_taken_back_without_a_lease() -> None:
    fleet = _fleet(Time(), [])
    for job in (1, 2):
        fleet.desire("a", _assignment(job))
    fleet.publish()
    fleet.report(_report(0, _held()))
    for job in (1, 2):
        fleet.revoke("a", job, 1, "node a is suspect")
        assert not fleet.cannot_begin("a", (job, 1)), "the orders in force still have it"
    fleet.publish()
    fleet.cannot_begin("a", (2, 1))  # the front is asked
    assert fleet.cannot_begin("a", (2, 1))
    assert not fleet.cannot_begin("a", (1, 1)), "it was granted a lease"
