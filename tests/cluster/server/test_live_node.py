"""The records that make up what the driver knows of a node."""

from fairlead.cluster.protocol.messages import Assignment, AttemptKey, Register
from fairlead.cluster.server.live_node import (
    REMEMBERED,
    AgentHistory,
    DesiredState,
    Inherited,
)


def _assignment(job: int, attempt: int = 1) -> Assignment:
    return Assignment(
        job=job,
        attempt=attempt,
        command=("true",),
        env={},
        cwd="/",
        checkpoint_dir="",
        ranks=(),
        world_size=1,
    )


def _register(machine: str, *cleared: str) -> Register:
    return Register(
        protocol=2,
        version="0",
        node="a",
        incarnation="new",
        host="h",
        accelerator="v100",
        devices=1,
        machine=machine,
        cleared=cleared,
    )


def test_orders_hold_what_is_wanted_and_why_the_rest_is_not() -> None:
    desired = DesiredState()
    desired.desire(_assignment(1))
    desired.desire(_assignment(2))
    assert not desired.revoke(1, 7, "preempted"), "another attempt than the one that is wanted"
    assert desired.revoke(1, 1, "preempted")
    assert desired.revoke(2, 1, "paused")
    desired.desire(_assignment(3))
    held: list[AttemptKey] = [(1, 1), (9, 4)]
    desired.forget_end((9, 4))
    desired.forget_end((8, 1))
    desired.renew(5, held)
    orders = desired.published
    assert [one.job for one in orders.desired] == [3]
    assert orders.reasons == {1: "preempted"}, "the node does not hold job 2"
    assert orders.forget == ((9, 4),)
    assert (orders.seq, desired.decisive, desired.changed, desired.forgets) == (5, 5, False, False)


def test_orders_that_only_forget_decide_nothing() -> None:
    desired = DesiredState()
    desired.desire(_assignment(1))
    desired.renew(1, [])
    desired.forget_end((9, 4))
    assert (desired.changed, desired.forgets) == (False, True)
    desired.renew(2, [(9, 4)])
    assert (desired.published.seq, desired.decisive) == (2, 1)


def test_what_is_inherited_ends_by_time_or_by_proof_on_the_same_machine() -> None:
    agent = AgentHistory(machine="m", registration=1)
    agent.inherited = {(1, 1): Inherited("one", 50.0), (2, 1): Inherited("two", 60.0)}
    agent.drop_cleared(_register("other", "one"))
    assert set(agent.inherited) == {(1, 1), (2, 1)}, "it does not see the processes of that machine"
    agent.drop_cleared(_register("m", "one"))
    assert set(agent.inherited) == {(2, 1)}
    assert agent.drop_expired(100.0) == [], "the front may have renewed more"
    agent.settled = 1
    agent.prolong(50.0)
    assert agent.drop_expired(110.0) == []
    assert agent.drop_expired(110.1) == [(2, 1)]
    assert not agent.inherited


def test_the_oldest_incarnations_are_forgotten() -> None:
    agent = AgentHistory(last_incarnation="0")
    assert agent.newest == "0"
    for number in range(REMEMBERED + 3):
        agent.supersede(str(number))
    assert list(agent.superseded) == [str(n) for n in range(3, REMEMBERED + 3)]
