"""The parts of the front: what waits to be sent, calls of the driver, and pushes of orders."""

import asyncio
import inspect
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cluster.server.test_view_cache import status

from fairlead.cluster.front import remote
from fairlead.cluster.front.errors import pack, unpack
from fairlead.cluster.front.facade import Facade, NotFoundError, TooManyError
from fairlead.cluster.front.leases import MAX_OLD, LeaseTable
from fairlead.cluster.front.logs import LogService
from fairlead.cluster.front.messages import (
    Call,
    CallAnswer,
    Configure,
    FrontFrames,
    FrontListening,
    PublishedNode,
    PublishedOrders,
    PublishedStatus,
    Reported,
    SchedulingHalted,
    StopFront,
    ToDriver,
    UserList,
    frame,
)
from fairlead.cluster.front.order_pusher import PUSH_TIMEOUT_S, OrderPusher
from fairlead.cluster.front.outbox import Outbox
from fairlead.cluster.front.process import Front, FrontLink
from fairlead.cluster.front.relay import (
    LOCAL,
    CallService,
    encode_arguments,
    signature,
)
from fairlead.cluster.front.remote import DriverCalls, RemoteFacade
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus, NodeReport, WatchRequest
from fairlead.cluster.store.audit_log import DEFAULT_LIMITS
from fairlead.cluster.store.rows import JobRow, UserRow
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.tokens import hash_token
from fairlead.errors import ConfigError, InputError, StaleError, StoreError

ADMIN = Caller("admin", "", "admin")
SPEC = JobSpec(command=("x",), total_steps=9, rates={"v100": 1.0})
_decode = msgspec.msgpack.Decoder(ToDriver).decode


def reported(node: str, seq: int, changed: bool = False) -> Reported:
    return Reported(
        node=node, incarnation="one", seq=seq, followed=0, seen=0.0, lease_until=0.0, changed=changed,
        granted=(),
        report=msgspec.Raw(b"\xc0"),
    )  # fmt: skip


def sent(outbox: Outbox) -> list[Any]:
    """All that waits, as the other side decodes it."""
    return [_decode(body) for body in FrontFrames().feed(outbox.take(1 << 30))]


def test_the_newest_report_of_a_node_replaces_one_that_waits_and_keeps_its_news() -> None:
    outbox = Outbox()
    for seq in range(10_000):
        outbox.put(reported("a", seq, changed=seq == 5))
        outbox.put(reported("b", seq))
    told = sent(outbox)
    assert [(one.node, one.seq, one.changed) for one in told] == [
        ("a", 9999, True),
        ("b", 9999, False),
    ]
    assert not outbox


def test_calls_all_wait_in_their_order() -> None:
    outbox = Outbox()
    for number in range(5):
        outbox.put(Call(number=number, method="status", arguments=msgspec.Raw(b"\x90")))
    assert [one.number for one in sent(outbox)] == [0, 1, 2, 3, 4]


def test_frames_are_found_however_they_are_cut() -> None:
    data = b"".join(frame(reported("n" * size, size)) for size in range(1, 40))
    for piece in (1, 2, 3, 7, 100, len(data)):
        frames, found = FrontFrames(), list[int]()
        for at in range(0, len(data), piece):
            found += [_decode(body).seq for body in frames.feed(data[at : at + piece])]
        assert found == list(range(1, 40))


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (NotFoundError("job 1: there is none"), NotFoundError),
        (StoreError("the disk is full"), StoreError),
        (ConfigError("x"), ConfigError),
        (type("LaterError", (NotFoundError,), {})("of a class that is not known"), NotFoundError),
    ],
)
def test_an_error_keeps_its_class_and_its_sentence(raised: Exception, kind: type) -> None:
    other = unpack(pack(raised))
    assert isinstance(other, kind)
    assert str(other) == str(raised)


def test_who_asks_too_much_hears_for_how_long_from_the_front_too() -> None:
    other = unpack(pack(TooManyError("1 more in 49 s", 49)))
    assert isinstance(other, TooManyError)
    assert (str(other), other.wait_s) == ("1 more in 49 s", 49)


def test_a_mistake_is_not_told_to_callers() -> None:
    other = unpack(pack(KeyError("secret")))
    assert not isinstance(other, InputError)
    assert "secret" not in str(other)


def test_every_method_of_the_facade_can_be_called_across() -> None:
    methods = [name for name, _ in inspect.getmembers(Facade, inspect.isfunction) if name[0] != "_"]
    assert len(methods) > 15
    for method in set(methods) - LOCAL:
        signature(method)


class Driver:
    """The other side of calls, which answers at once, or not."""

    def __init__(self) -> None:
        self.calls: DriverCalls | None = None
        self.call_service = CallService(
            self,  # type: ignore[arg-type]
            self.answer,
            wait=lambda: None,
            wait_until_written=lambda _: None,
        )
        self.asked: list[tuple[Any, ...]] = []

    def answer(self, answer: CallAnswer) -> None:
        assert self.calls is not None
        self.calls.answer(msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=CallAnswer))

    def submit(self, *given: Any) -> list[int]:
        self.asked.append(given)
        return [7, 8]

    def job(self, *given: Any) -> Any:
        raise NotFoundError("job 3: there is none")

    def cancel(self, *given: Any) -> None:
        raise KeyError("a mistake")


def calls_of(driver: Driver, send: Callable[[Call], None] | None = None) -> DriverCalls:
    driver.calls = DriverCalls(send or driver.call_service.take)
    return driver.calls


def test_a_call_takes_arguments_and_results_across_as_what_they_are() -> None:
    driver = Driver()
    calls = calls_of(driver)
    spec = JobSpec(command=("x",), total_steps=5, rates={"v100": 1.0})
    assert calls.call("submit", ADMIN, [spec], key="k") == [7, 8]
    assert driver.asked == [(ADMIN, [spec], "", "k")]
    with pytest.raises(NotFoundError, match="job 3: there is none"):
        calls.call("job", ADMIN, 3)
    with pytest.raises(RuntimeError, match="made a mistake"):
        calls.call("cancel", ADMIN, 3)
    with pytest.raises(ConfigError, match="larger than"):
        encode_arguments("job", (ADMIN, 1 << 70), {})
    driver.call_service.close()


def test_a_driver_that_does_not_answer_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "LIMIT_S", 0.05)
    driver = Driver()
    calls = calls_of(driver, lambda _: None)
    with pytest.raises(StoreError, match="no answer from the scheduler"):
        calls.call("status", ADMIN)
    calls.answer(CallAnswer(number=0))  # late, and taken by nobody
    driver.call_service.close()


def facade_that_hears_nothing(folder: Path, age_s: float) -> RemoteFacade:
    """A front whose driver published its status so long ago, and says nothing more. Closes nothing."""
    table = LeaseTable(30.0, 0.01, time.monotonic, lambda _: None)
    facade = RemoteFacade(DriverCalls(lambda _: None), LogService(folder), folder, table)
    facade.shown.take(PublishedStatus(status=status(), at=time.monotonic() - age_s))
    return facade


def test_a_question_is_given_up_once_the_driver_has_fallen_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "SILENT_S", 3.5)
    facade = facade_that_hears_nothing(tmp_path, 2.0)
    with pytest.raises(StoreError, match=r"has not answered for \d+ s: ask again"):
        facade.what_if(ADMIN, WhatIf())


def test_what_was_written_down_last_is_told_soon_after_the_driver_has_fallen_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store, store.transaction() as t:
        t.put_jobs(
            [JobRow(id=3, name="", tenant="", user="", spec=SPEC, submitted_s=0.0, total_steps=9.0)]
        )
    monkeypatch.setattr(remote, "COMMITTED_TIMEOUT_S", 3600.0)
    facade = facade_that_hears_nothing(tmp_path, 0.0)
    assert re.search(r"has not answered for \d+ s", facade.explain(ADMIN, 3).why_here)
    assert facade.job(ADMIN, 3).id == 3


def test_questions_give_way_to_the_orders_of_a_round_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store, store.transaction() as t:
        t.put_jobs(
            [JobRow(id=3, name="", tenant="", user="", spec=SPEC, submitted_s=0.0, total_steps=9.0)]
        )
    table = LeaseTable(30.0, 0.01, time.monotonic, lambda _: None)
    facade = RemoteFacade(DriverCalls(lambda _: None), LogService(tmp_path), tmp_path, table)
    looks = [True, True, False]
    table.is_pushing = lambda: looks.pop(0)
    assert facade.job(ADMIN, 3).id == 3
    assert not looks
    table.is_pushing = lambda: True  # it never ends
    monkeypatch.setattr(remote, "MAX_YIELD_S", 0.3)
    began = time.monotonic()
    assert facade.explain(ADMIN, 3).job.id == 3
    assert time.monotonic() - began >= 0.3


def test_submissions_give_way_to_the_orders_of_a_round_for_less_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LeaseTable(30.0, 0.01, time.monotonic, lambda _: None)
    asked: list[float] = []

    def send(call: Call) -> None:
        asked.append(time.monotonic())
        calls.answer(
            CallAnswer(number=call.number, result=msgspec.Raw(msgspec.msgpack.encode([7])))
        )

    calls = DriverCalls(send)
    facade = RemoteFacade(calls, LogService(tmp_path), tmp_path, table)
    looks = [True, False]
    table.is_pushing = lambda: looks.pop(0)
    assert facade.submit(ADMIN, [SPEC]) == [7]
    assert not looks
    table.is_pushing = lambda: True  # it never ends
    monkeypatch.setattr(remote, "SUBMISSION_WAIT_S", 0.2)
    began = time.monotonic()
    assert facade.submit(ADMIN, [SPEC]) == [7]
    assert asked[-1] - began >= 0.2


def test_not_all_threads_wait_for_a_driver_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "WAITING", 0)
    monkeypatch.setattr(remote, "TURN_TIMEOUT_S", 0.05)
    driver = Driver()
    with pytest.raises(StoreError, match="too much to answer now"):
        calls_of(driver).call("status", ADMIN)
    driver.call_service.close()


class Nodes:
    """Nodes that have streams of orders, on a clock that a test turns."""

    def __init__(self, window: int) -> None:
        self.now = 100.0
        self.table = LeaseTable(10.0, 0.01, lambda: self.now, lambda _: None)
        self.pushing = OrderPusher(self.table, window)
        self.table.on_orders = self.pushing.notify
        self.told: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, name: str) -> None:
        self.publish(name, 1, push=False)
        self.tasks.append(asyncio.create_task(self._watch(name)))
        await settle()

    async def _watch(self, name: str) -> None:
        async for _ in self.pushing.watch(WatchRequest(node=name, incarnation="one")):
            self.told.append(name)

    def publish(self, name: str, seq: int, push: bool = True) -> None:
        self.table.publish(
            PublishedNode(
                node=name, incarnation="one", registration=1, lost=False, starts=(), push=push,
                orders=PublishedOrders(seq=seq),
            )
        )  # fmt: skip

    def report(self, name: str, follows: int) -> None:
        node = self.table.nodes[name]
        self.table.report(
            NodeReport(node=name, incarnation="one", seq=node.seq + 1, holds=(), orders_seq=follows)
        )
        self.pushing.reported(node)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_nodes_are_told_as_fast_as_others_answer() -> None:
    async def scene() -> None:
        nodes = Nodes(window=3)
        for name in "abcdefg":
            await nodes.add(name)
        nodes.told.clear()
        for name in "abcdef":
            nodes.publish(name, 2)
        await settle()
        assert nodes.told == ["a", "b", "c"], "no more than three that have not answered"
        nodes.report("b", follows=1)
        await settle()
        assert nodes.told == ["a", "b", "c"], "that was no answer to these orders"
        nodes.report("b", follows=2)
        await settle()
        assert nodes.told[3:] == ["d"]
        nodes.report("e", follows=1)  # the answer to this brings the orders
        nodes.publish("g", 2, push=False)  # nothing that could not wait for a report
        nodes.now += PUSH_TIMEOUT_S + 0.1
        nodes.pushing.tick()
        await settle()
        assert nodes.told[3:] == ["d", "f"], "nodes that do not answer hold up nobody"
        for task in nodes.tasks:
            task.cancel()

    asyncio.run(scene())


def test_a_halted_cluster_pushes_no_orders_and_renews_what_runs() -> None:
    async def scene() -> None:
        nodes = Nodes(window=3)
        for name in "ab":
            await nodes.add(name)
        nodes.told.clear()
        nodes.table.halt(SchedulingHalted(reason="it is an older copy"))
        nodes.publish("a", 2)
        await settle()
        assert nodes.told == []
        holds = (
            AttemptStatus(job=7, attempt=1, state="running"),
            AttemptStatus(job=8, attempt=1, state="stopping"),
            AttemptStatus(job=9, attempt=1, state="ended"),
        )
        for name in ("a", "not known here"):
            report = NodeReport(node=name, incarnation="any", seq=1, holds=holds)
            orders = nodes.table.report(report)
            assert orders.halted == "it is an older copy"
            assert orders.leases == {7: 10.0, 8: 10.0}
            assert msgspec.msgpack.decode(orders.desired) == []
        for task in nodes.tasks:
            task.cancel()

    asyncio.run(scene())


def _say(nodes: Nodes, seq: int) -> None:
    nodes.table.report(NodeReport(node="a", incarnation="one", seq=seq, holds=(), orders_seq=1))


def test_an_agent_in_whose_name_another_has_counted_far_ahead_registers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = Nodes(window=3)
    nodes.publish("a", 1, push=False)
    for round_ in range(3):  # the other one goes on
        _say(nodes, 10**15 + round_)
        first = MAX_OLD * round_
        for seq in range(first, first + MAX_OLD - 1):
            _say(nodes, seq)
        with pytest.raises(StaleError, match="register again"):
            _say(nodes, first + MAX_OLD - 1)
    (told,) = caplog.records
    assert told.getMessage().startswith("node a: its agent's reports are older than one that came")


def test_reports_that_are_late_or_doubled_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = Nodes(window=3)
    nodes.publish("a", 1, push=False)
    for seq in range(10, 100, 10):
        _say(nodes, seq)
        for _ in range(10):
            _say(nodes, seq)  # doubled
        nodes.now += 5.0
        _say(nodes, seq - 5)  # late, and now and then
        nodes.now += 5.0
    assert not caplog.records


def test_users_are_told_as_a_whole() -> None:
    outbox = Outbox()
    outbox.put(UserList(rows=()))
    outbox.put(UserList(rows=()))
    (one,) = FrontFrames().feed(outbox.take(1000))
    assert b"UserList" in one


def test_the_time_from_a_rounds_end_until_a_node_follows() -> None:
    """Of orders that follow a round, once, also where newer orders have replaced them."""
    now, seen = 100.0, list[float]()
    table = LeaseTable(10.0, 0.0, lambda: now, lambda _: None)
    table.followed_s = seen.append

    def node(seq: int, round_end: float) -> PublishedNode:
        return PublishedNode(
            node="a",
            incarnation="i",
            registration=1,
            lost=False,
            orders=PublishedOrders(seq=seq),
            starts=(),
            push=True,
            round_end=round_end,
        )

    table.publish(node(1, 0.0))
    table.report(NodeReport(node="a", incarnation="i", seq=1, holds=(), orders_seq=1))
    table.publish(node(2, 99.0).over(node(1, 0.0)))
    table.publish(node(3, 0.0))
    table.report(NodeReport(node="a", incarnation="i", seq=2, holds=(), orders_seq=1))
    assert seen == []
    table.report(NodeReport(node="a", incarnation="i", seq=3, holds=(), orders_seq=3))
    table.report(NodeReport(node="a", incarnation="i", seq=4, holds=(), orders_seq=3))
    assert seen == [1.0]
    assert node(4, 0.0).over(node(3, 99.0)).round_end == 99.0


def test_many_nodes_are_told_to_pause_between_reports() -> None:
    """One of few need not; of a thousand each second, so that renewals of all are in time."""
    table = LeaseTable(30.0, 0.0, lambda: 1.0, lambda _: None)
    for number in range(1000):
        name = f"n{number}"
        table.publish(
            PublishedNode(
                node=name,
                incarnation="i",
                registration=1,
                lost=False,
                orders=PublishedOrders(seq=1),
                starts=(),
                push=False,
            )
        )
        if number == 0:
            few = table.report(NodeReport(node="n0", incarnation="i", seq=1, holds=()))
    many = table.report(NodeReport(node="n0", incarnation="i", seq=2, holds=()))
    assert few.gap_s == 0.001
    assert many.gap_s == 1.0
    table.lease_s = 8.0  # it sees four heartbeats, and none of them is held up
    assert table.report(NodeReport(node="n0", incarnation="i", seq=3, holds=())).gap_s == 0.5
    table.is_pushing = lambda: True  # news waits for orders, if not for longer than a heartbeat
    assert table.report(NodeReport(node="n0", incarnation="i", seq=4, holds=())).gap_s == 1.0
    table.lease_s = 2.0
    assert table.report(NodeReport(node="n0", incarnation="i", seq=5, holds=())).gap_s == 0.5


def test_orders_that_wait_to_be_told_are_known_of() -> None:
    async def scene() -> None:
        nodes = Nodes(window=1)
        for name in "abc":
            await nodes.add(name)
        assert not nodes.pushing.is_under_way()
        for name in "abc":
            nodes.publish(name, 2)
        await settle()
        assert nodes.pushing.is_under_way()
        for name in "ab":
            nodes.report(name, follows=2)
        await settle()
        assert not nodes.pushing.is_under_way(), "the last one has been told"
        for task in nodes.tasks:
            task.cancel()

    asyncio.run(scene())


def test_reports_are_passed_on_together_and_all_else_at_once() -> None:
    class Wire(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__()
            self.sent: list[list[str]] = []

        def write(self, data: Any) -> None:
            self.sent.append([type(_decode(body)).__name__ for body in FrontFrames().feed(data)])

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    async def scene() -> None:
        wire, link = Wire(), FrontLink(asyncio.get_running_loop())
        link.connection_made(wire)
        link.send(reported("a", 1))
        await settle()
        assert wire.sent == [["Reported"]], "the first one need not wait"
        for name in "bcd":
            link.send(reported(name, 1))
            await asyncio.sleep(0)
        assert len(wire.sent) == 1
        link.send(Call(number=1, method="status", arguments=msgspec.Raw(b"\x90")))
        await settle()
        assert wire.sent[1:] == [["Reported", "Reported", "Reported", "Call"]]
        link.send(reported("e", 1))
        async with asyncio.timeout(60.0):
            while len(wire.sent) < 3:
                await asyncio.sleep(0.01)
        assert wire.sent[2:] == [["Reported"]]

    asyncio.run(scene())


def test_the_front_listens_once_it_knows_who_may_call(tmp_path: Path) -> None:
    """An agent whose token is not known ends: nobody is to be turned away because the list is on its way."""

    async def scene() -> None:
        told: list[Any] = []
        link = FrontLink(asyncio.get_running_loop())
        link.send = told.append  # type: ignore[method-assign, assignment]
        http = socket.create_server(("127.0.0.1", 0))
        configure = Configure(
            directory=str(tmp_path), host="127.0.0.1", agent_port=0, http_fd=http.detach(),
            tls_key="", tls_certificate="", open_metrics=False, lease_s=9.0, rate_bound=1e9,
            heartbeat_s=1.0, policies=(), audit=DEFAULT_LIMITS,
        )  # fmt: skip
        front = Front(configure, link)
        starting = asyncio.get_running_loop().create_task(front.start())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not starting.done()
        assert told == []
        token = "secret"
        row = UserRow(user="agent", tenant="", role="agent", token_hash=hash_token(token))
        front.take(UserList(rows=(row,)))
        await starting
        assert [type(message) for message in told] == [FrontListening]
        assert front.authenticate(token) == Caller("agent", "", "agent")
        serving = asyncio.get_running_loop().create_task(front.serve())
        front.take(StopFront())
        await serving

    asyncio.run(scene())


def test_the_driver_hears_at_once_of_a_job_that_waits_for_what_another_keeps() -> None:
    nodes, told = Nodes(window=1), list[Any]()
    nodes.table.forward = told.append
    nodes.publish("a", 1)

    def changed(seq: int, reason: str) -> bool:
        held = AttemptStatus(job=1, attempt=1, state="starting", reason=reason)
        nodes.table.report(NodeReport(node="a", incarnation="one", seq=seq, holds=(held,)))
        return bool(told[-1].changed)

    assert changed(1, "")
    assert not changed(2, "")
    assert changed(3, "what ran there before has not ended")
    assert not changed(4, "what ran there before has not ended")
    assert changed(5, "")
