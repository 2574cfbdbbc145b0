"""Reports and orders are states: whatever is lost, doubled or late, the newest decides."""

import msgspec
import pytest

from fairlead.errors import StaleError
from fairlead.live.fleet import Fleet
from fairlead.live.protocol import Assignment, Held, Rank, Register, Report


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _fleet(time: Time, noticed: list[str]) -> Fleet:
    fleet = Fleet(lease_s=10.0, rate_bound=0.01, monotonic=time, notice=noticed.append)
    fleet.add("a", "v100", 2)
    fleet.register(_register())
    return fleet


def _register(incarnation: str = "one", holds: tuple[Held, ...] = ()) -> Register:
    return Register(
        protocol=1,
        version="0",
        node="a",
        incarnation=incarnation,
        host="h",
        accelerator="v100",
        devices=2,
        holds=holds,
    )


def _assignment(job: int = 1, epoch: int = 1) -> Assignment:
    return Assignment(
        job=job,
        epoch=epoch,
        command=("true",),
        env={},
        cwd="",
        checkpoint_dir="",
        ranks=(Rank(rank=0, devices=(0,)),),
        world_size=1,
    )


def _report(seq: int, *holds: Held, orders_seq: int = 0) -> Report:
    return Report(node="a", incarnation="one", seq=seq, holds=holds, orders_seq=orders_seq)


def _held(state: str = "running", step: int = 0, job: int = 1) -> Held:
    return Held(job=job, epoch=1, state=state, step=step)  # type: ignore[arg-type]


def test_orders_are_seen_only_when_published() -> None:
    fleet = _fleet(Time(), [])
    fleet.want("a", _assignment())
    assert fleet.report(_report(0)).wanted == ()
    fleet.publish()
    orders = fleet.report(_report(1))
    assert [a.job for a in orders.wanted] == [1]
    assert orders.leases == {}, "there is nothing to renew before the node holds it"


def test_a_report_renews_the_leases_of_what_is_wanted() -> None:
    time, noticed = Time(), list[str]()
    fleet = _fleet(time, noticed)
    fleet.want("a", _assignment())
    fleet.publish()
    assert fleet.report(_report(0, _held(), _held(job=2))).leases == {1: 10.0}
    assert noticed == ["a"]
    fleet.report(_report(1, _held(step=5), _held(job=2)))
    assert noticed == ["a"], "progress alone is no news"
    fleet.unwant("a", 1, 1, "preempted")
    fleet.publish()
    orders = fleet.report(_report(2, _held(step=6)))
    assert orders.leases == {}
    assert orders.reasons == {1: "preempted"}


def test_late_and_doubled_reports_change_nothing() -> None:
    fleet = _fleet(Time(), [])
    fleet.want("a", _assignment())
    fleet.publish()
    fleet.report(_report(5, _held(step=50)))
    assert fleet.report(_report(4, _held(step=40))).leases == {}
    assert fleet.report(_report(5, _held(step=45))).leases == {}
    held = fleet.held("a", (1, 1))
    assert held is not None
    assert held.step == 50


def test_a_silent_node_is_lost_when_its_leases_are_over_and_not_before() -> None:
    time = Time()
    fleet = _fleet(time, [])
    fleet.want("a", _assignment())
    fleet.publish()
    fleet.report(_report(0, _held()))
    time.now += 10.0 * 1.01 + 3.0 - 0.1
    assert fleet.silent(lambda node: 3.0) == []
    time.now += 0.2
    assert fleet.silent(lambda node: 3.0) == ["a"]
    fleet.lose("a")
    with pytest.raises(StaleError):
        fleet.report(_report(1, _held()))
    assert fleet.register(_register()) == []
    assert fleet.report(_report(0, _held())).wanted == ()


def test_a_server_that_was_away_blames_no_node() -> None:
    time = Time()
    fleet = _fleet(time, [])
    time.now += 1000.0
    fleet.pardon(999.0)
    assert fleet.silent(lambda node: 3.0) == []
    time.now += 3.0
    assert fleet.silent(lambda node: 3.0) == ["a"]


def test_another_incarnation_is_told_to_register() -> None:
    fleet = _fleet(Time(), [])
    fleet.report(_report(0, _held()))
    assert fleet.register(_register("two")) == [(1, 1)], "what the new one does not hold"
    with pytest.raises(StaleError):
        fleet.report(_report(9, _held()))


def test_what_was_never_begun_is_known_to_be_so() -> None:
    fleet = _fleet(Time(), [])
    fleet.want("a", _assignment())
    fleet.publish()
    fleet.report(_report(0))
    fleet.unwant("a", 1, 1, "preempted")
    fleet.publish()
    assert not fleet.never_began("a", (1, 1)), "the node may still follow the older orders"
    newest = fleet.orders("a", "one").seq
    fleet.report(_report(1, orders_seq=newest))
    assert fleet.never_began("a", (1, 1))


def test_what_is_wanted_and_not_held_will_not_begin() -> None:
    fleet = _fleet(Time(), [])
    fleet.want("a", _assignment())
    fleet.publish()
    newest = fleet.orders("a", "one").seq
    assert not fleet.never_began("a", (1, 1)), "it may not have heard of it"
    fleet.report(_report(1, orders_seq=newest))
    assert fleet.never_began("a", (1, 1)), "it has begun it before, and forgotten it"
    fleet.report(_report(2, _held("starting"), orders_seq=newest))
    assert not fleet.never_began("a", (1, 1))


def test_an_end_is_reported_until_it_is_forgotten() -> None:
    fleet = _fleet(Time(), [])
    fleet.report(_report(0, _held("ended")))
    assert fleet.ended("a") == [(1, 1)]
    fleet.forget("a", (1, 1))
    fleet.publish()
    assert fleet.orders("a", "one").forget == ((1, 1),)
    fleet.report(_report(1))
    fleet.want("a", _assignment(2))
    fleet.publish()
    assert fleet.orders("a", "one").forget == ()


def test_many_nodes_report_less_often_as_far_as_their_leases_allow() -> None:
    def after(nodes: int) -> tuple[float, float]:
        fleet = Fleet(lease_s=30.0, rate_bound=0.01, monotonic=Time(), notice=print, shortest_s=2.0)
        for number in range(1, nodes):
            fleet.add(f"node-{number}", "v100", 8)
        fleet.add("a", "v100", 8)
        fleet.register(_register())
        return fleet.report(_report(1)).heartbeat_s, fleet.silence_s

    assert after(500) == (2.0, 9.0)
    assert after(1000) == (4.0, 17.0)
    assert after(5000) == (7.5, 31.0), "a lease sees four"


def test_nodes_are_told_in_turns_as_others_answer() -> None:
    time = Time()
    fleet = Fleet(lease_s=10.0, rate_bound=0.01, monotonic=time, notice=lambda _: None)
    woken: list[str] = []
    fleet.wake = woken.extend
    for name in "abcdef":
        fleet.add(name, "v100", 2)
        fleet.register(msgspec.structs.replace(_register(), node=name))
        fleet.want(name, _assignment())
    for _ in range(3):
        fleet.publish(told=3, at_once=2)
    assert woken == ["a", "b", "c"], "no more than two at once, and three that have not answered"
    seq = fleet.orders("b", "one").seq
    fleet.report(msgspec.structs.replace(_report(0), node="a", orders_seq=seq - 2))
    fleet.publish(told=3, at_once=2)
    assert woken == ["a", "b", "c"], "that was no answer to these orders"
    fleet.report(msgspec.structs.replace(_report(0), node="b", orders_seq=seq))
    fleet.publish(told=3, at_once=2)
    assert woken[3:] == ["d"]
    time.now += 1.5
    fleet.publish(told=3, at_once=2)
    assert woken[3:] == ["d", "e", "f"], "nodes that do not answer hold up nobody"
    assert not fleet.publish(told=3, at_once=2)


def test_a_new_agent_inherits_what_the_old_one_had_a_lease_for() -> None:
    time = Time()
    fleet = _fleet(time, [])
    for job in (1, 2):
        fleet.want("a", _assignment(job))
    fleet.publish()
    fleet.report(_report(0, _held()))
    time.now += 5.0
    fleet.register(_register("two"), {(1, 1): 7.0, (2, 1): 7.0})
    node = fleet.nodes["a"]
    assert set(node.inherited) == {(1, 1)}, "nothing is started without a lease"
    assert node.inherited[1, 1].until == 100.0 + 10.0 * 1.01 + fleet.silence_s + 7.0
    assert fleet.orders("a", "two").wanted == (), "the orders were the old one's"
    fleet.want("a", _assignment())
    fleet.publish()
    assert fleet.orders("a", "two").wanted == (), "nor is it to begin that start again"
    newest = fleet.orders("a", "two").seq
    fleet.report(msgspec.structs.replace(_report(0, orders_seq=newest), incarnation="two"))
    assert not fleet.never_began("a", (1, 1))
    assert fleet.outlived("a") == []
    time.now = node.inherited[1, 1].until + 0.1
    assert fleet.outlived("a") == [(1, 1)]
    assert fleet.never_began("a", (1, 1))


def test_a_third_agent_inherits_from_both() -> None:
    time = Time()
    fleet = _fleet(time, [])
    fleet.want("a", _assignment())
    fleet.publish()
    fleet.report(_report(0, _held()))
    fleet.register(msgspec.structs.replace(_register("two"), machine="m"), {(1, 1): 7.0})
    fleet.want("a", _assignment(2))
    fleet.publish()
    second = msgspec.structs.replace(_report(0, _held(job=2)), incarnation="two")
    fleet.report(second)
    both = {(1, 1): 7.0, (2, 1): 7.0}
    third = msgspec.structs.replace(_register("three"), machine="m", cleared=("two",))
    fleet.register(third, both)
    assert set(fleet.nodes["a"].inherited) == {(1, 1)}, "of the first nobody has made sure"
    assert set(fleet.nodes["a"].superseded) == {"one", "two"}


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
    fleet = Fleet(10.0, 0.01, Time(), lambda _: None)
    fleet.add("a", "v100", 2)
    first = msgspec.structs.replace(_register(), machine="m" if machine else "")
    fleet.register(first)
    fleet.want("a", _assignment())
    fleet.publish()
    fleet.report(_report(0, _held()))
    new = msgspec.structs.replace(_register("two"), machine=machine, cleared=cleared)
    fleet.register(new, {(1, 1): 7.0})
    assert bool(fleet.nodes["a"].inherited) is waits
