"""Agents that know of a later state than that of the server halt it; nothing else does."""

import logging
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes
from tests.cluster.server_parts import cluster_state

from fairlead.cluster.front.facade import InvalidTokenError
from fairlead.cluster.front.messages import PublishedPosition, SchedulingHalted
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.messages import AttemptStatus, Orders, StorePosition
from fairlead.cluster.server import rollback_detection
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.front_supervisor import FrontSupervisor
from fairlead.cluster.server.rollback_detection import RollbackDetector
from fairlead.cluster.store.backup import accept_loss, back_up, restore
from fairlead.cluster.store.schema import Commit
from fairlead.errors import RunError, StoreError


def position(cluster: EngineNodes, node: PlayedNode) -> StorePosition:
    """What a node is told of the newest commit."""
    newest = cluster.service.store.newest
    assert newest is not None

    def told() -> StorePosition | None:
        seen = node.report().position
        return seen if seen is not None and seen.commit >= newest.number else None

    found: StorePosition = cluster.until(told)
    return found


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, StorePosition, int]:
    """An older and a newer copy of a state, what a node was told of the newer one, and the job that is in
    both."""
    folder = tmp_path_factory.mktemp("copies")
    with engine_nodes(folder / "newer") as cluster:
        cluster.node("one").register()
        job = cluster.submit()
        cluster.until(lambda: cluster.service.attempts(ADMIN, job))
    shutil.copytree(folder / "newer", folder / "older")
    with engine_nodes(folder / "newer") as cluster:
        node = cluster.node("one")
        node.register()
        cluster.submit()
        seen = position(cluster, node)
    return folder / "older", folder / "newer", seen, job


def older(copies: tuple[Path, Path, StorePosition, int], folder: Path) -> Path:
    return Path(shutil.copytree(copies[0], folder / "state"))


def test_a_later_position_halts_the_server(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, seen, job = older(copies, tmp_path), copies[2], copies[3]
    with engine_nodes(state) as cluster, caplog.at_level(logging.ERROR):
        before = cluster.submit()  # until the first witness speaks nobody knows
        node = cluster.node("one")
        node.statuses[77, 3] = AttemptStatus(job=77, attempt=3, state="running")
        node.run(job, 1)
        node.statuses[78, 1] = AttemptStatus(job=78, attempt=1, state="ended", exit_code=0)
        welcome = node.register(seen=seen)
        halted = welcome.orders.halted
        assert f"{state} is an older copy of the state of this cluster" in halted
        assert f"node one was told of commit {seen.commit} of 20" in halted
        assert "it runs attempt 3 of job 77, unknown here" in halted
        assert f"job {before} is new in this directory" in halted
        assert f"`fairlead restore --accept-loss {state}`" in halted
        assert (welcome.orders.desired, welcome.orders.position) == ((), None)
        assert halted in caplog.text
        assert cluster.service.status(ADMIN).halted == halted
        assert halted in cluster.service.explain(ADMIN, job).why_here
        orders = node.say()
        assert (orders.halted, orders.desired, orders.forget) == (halted, (), ())
        assert orders.leases == {77: 1.0, job: 1.0}, "also of what is not known here"
        assert orders.position is None
        _check_refusals(cluster, before, halted)
        _check_that_nothing_is_promised(cluster, job)


def test_a_node_that_was_enrolled_since_is_a_witness_too(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    with engine_nodes(older(copies, tmp_path)) as cluster:
        late = cluster.node("late")
        with pytest.raises(InvalidTokenError, match="no valid token"):
            late.register("outdated")  # of a node that was removed, say
        assert "late" not in cluster.service.engine.state.fleet.nodes
        welcome = late.register("outdated", seen=copies[2])
        assert "is an older copy of the state of this cluster" in welcome.orders.halted
        late.run(99, 1)
        assert late.say().leases == {99: 1.0}, "its jobs go on"


def _check_that_nothing_is_promised(cluster: EngineNodes, job: int) -> None:
    service = cluster.service
    view = cluster.job(job)
    assert view.reason.startswith(
        "as an older copy of the state has it; the cluster is halted: see `fairlead status`"
    )
    assert "unless it is back" not in view.reason
    told = service.explain(ADMIN, job)
    assert told.why_here.startswith("Nothing is scheduled: ")
    assert told.why_here.endswith(
        f"In this older copy it is {view.state}; what has become of it since is not known here."
    )
    assert (told.finish_s, told.forecast_kind) == (None, "")
    with pytest.raises(StoreError, match="is an older copy of the state"):
        service.what_if(ADMIN, WhatIf())


def test_what_only_another_copy_can_have_ordered_halts_the_server(tmp_path: Path) -> None:
    """The newer copy need not have told anybody of its position."""
    with engine_nodes(tmp_path / "state") as cluster:
        cluster.node("one").register()
        seen = position(cluster, cluster.nodes[0])
    shutil.copytree(tmp_path / "state", tmp_path / "older")
    with engine_nodes(tmp_path / "state") as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        cluster.until(lambda: node.statuses.get((job, 1)))
        (held,) = node.holds()
    assert held.order_id
    with engine_nodes(tmp_path / "older") as cluster:
        assert cluster.submit() == job, "the same number"
        node = cluster.node("one")
        node.statuses[job, 1] = held
        halted = node.register(seen=seen).orders.halted
        assert f"node one was ordered to run attempt 1 of job {job}, but this state has" in halted
        assert node.say().leases == {job: 1.0}
        assert cluster.job(job).steps == 0
    with engine_nodes(tmp_path / "state") as cluster:
        node = cluster.node("one")
        node.statuses[job, 1] = held
        assert not node.register(seen=seen).orders.halted
        node.report()
        assert node.statuses[job, 1] == held


def test_what_an_attempt_of_another_cluster_does_is_credited_to_nobody(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.run(0, 1, order_id="other.1.run.abc", step=700, loaded_step=0, ran_s=9.0)
        assert not node.register().orders.halted
        job = cluster.submit(total_steps=1000)
        cluster.silence(node)
        cluster.until(lambda: node.say().desired or cluster.job(job).attempt > 1)
        cluster.until(lambda: cluster.job(job).attempt == 2 and node.say())
        assert cluster.job(job).steps == 0
        node.end(
            0, 1, order_id="other.1.run.abc", step=1000, loaded_step=0, completed=True, exit_code=0
        )
        cluster.until(lambda: (0, 1) in node.say().forget or (0, 1) not in node.statuses)
        assert (cluster.job(job).state, cluster.job(job).steps) != ("completed", 1000)
        node.statuses.clear()
        cluster.nodes.append(node)
        cluster.until(lambda: (job, 2) in node.leased)


def _check_refusals(cluster: EngineNodes, job: int, halted: str) -> None:
    service = cluster.service
    backup = service.store.directory.parent / "backup"
    good = b"SQLite format 3\0 and so on"
    backup.write_bytes(good)
    with pytest.raises(RunError, match=r"cannot be backed up: .* is an older copy of the state"):
        back_up(service.store.directory, backup)
    assert backup.read_bytes() == good
    for change in (
        lambda: cluster.submit(),
        lambda: service.cancel(ADMIN, job),
        lambda: service.pause(ADMIN, job),
        lambda: service.set_weight(ADMIN, job, 2.0),
        lambda: service.set_policy(ADMIN, "fifo"),
        lambda: service.drain(ADMIN, "one"),
    ):
        with pytest.raises(StoreError, match="is an older copy of the state"):
            change()
    assert service.job(ADMIN, job).state == "waiting"
    service.add_user(ADMIN, "ann", "t", "user")
    assert [user.user for user in service.users(ADMIN)] == ["ann"], "who may look can be changed"
    assert service.status(ADMIN).halted == halted


def test_a_halted_server_decides_nothing_and_gives_nobody_up(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    with engine_nodes(older(copies, tmp_path), round_s=0.5) as cluster:
        job = copies[3]
        first, second = cluster.node("one"), cluster.node("two", "two.1")
        first.register()
        second.register(seen=copies[2])
        state = cluster.service.engine.state
        assert state.halted
        cluster.until(lambda: first.say().halted)
        attempts = cluster.service.attempts(ADMIN, job)
        records = state.journal_records
        ends = state.fleet.monotonic() + 2.5  # leases of 1 s, rounds of 0.5 s
        cluster.until(lambda: state.fleet.monotonic() > ends)
        assert cluster.service.attempts(ADMIN, job) == attempts
        assert state.journal_records == records
        assert "two" not in state.fleet.nodes
        view = cluster.view("one")
        assert (view.state, view.reason[:21]) == ("waiting", "the cluster is halted")
        assert all(orders.halted for orders in (first.say(), second.say()))


def test_the_newer_state_goes_on_after_an_older_one_was_halted(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    newer = Path(shutil.copytree(copies[1], tmp_path / "newer"))
    with engine_nodes(older(copies, tmp_path)) as cluster:
        cluster.node("one").register(seen=copies[2])
        assert cluster.service.engine.state.halted
    with engine_nodes(newer) as cluster:
        node = cluster.node("one")
        assert not node.register(seen=copies[2]).orders.halted
        assert position(cluster, node).order > copies[2].order
        cluster.submit()


def test_agents_are_told_at_once_of_a_state_only_when_all_have_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback_detection, "PUBLISH_AFTER_S", 3600.0)
    with engine_nodes(tmp_path) as cluster:
        for name in ("one", "two"):
            cluster.node(name, f"{name}.1").register()
        cluster.until(lambda: all(node.report().position for node in cluster.nodes))
    with engine_nodes(tmp_path) as cluster:
        first, second = cluster.node("one"), cluster.node("two", "two.1")
        first.register()
        cluster.submit()
        for _ in range(5):
            assert first.report().position is None
        second.register()
        position(cluster, first)


def test_a_node_that_is_dead_keeps_no_other_from_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lost only when its leases and the grace of its jobs are over, which may take hours."""
    monkeypatch.setattr(rollback_detection, "PUBLISH_AFTER_S", 0.2)
    with engine_nodes(tmp_path, lease_s=600.0) as cluster:
        for name in ("one", "two"):
            cluster.node(name, f"{name}.1").register()
        cluster.until(lambda: all(node.report().position for node in cluster.nodes))
    with engine_nodes(tmp_path, lease_s=600.0) as cluster:
        first = cluster.node("one")
        first.register()
        position(cluster, first)
        assert not cluster.service.engine.state.fleet.nodes["two"].lost


def test_what_a_halted_server_told_and_ordered_does_not_halt_the_newer_one(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    newer = Path(shutil.copytree(copies[1], tmp_path / "newer"))
    with engine_nodes(older(copies, tmp_path)) as cluster:
        first = cluster.node("one")
        first.register()
        cluster.until(lambda: first.statuses)
        told = position(cluster, first)
        held = first.holds()
        halted = cluster.node("two", "two.1").register(seen=copies[2]).orders
        assert halted.halted_run == told.run_id
        assert first.say().halted_run == told.run_id
    with engine_nodes(newer) as cluster:
        node = cluster.node("one")
        node.statuses |= {(status.job, status.attempt): status for status in held}
        assert not node.register(seen=told, halted_runs=(told.run_id,)).orders.halted
        assert node.register(seen=told).orders.halted, "it does not know that the other halted"


def test_a_node_that_does_not_come_back_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        for name in ("one", "two"):
            cluster.node(name, f"{name}.1").register()
    with engine_nodes(tmp_path) as cluster:
        first = cluster.node("one")
        first.register()
        position(cluster, first)
        assert cluster.view("two").state == "lost"


def test_an_older_memory_and_that_of_another_cluster_halt_nothing(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    seen = copies[2]
    newer = Path(shutil.copytree(copies[1], tmp_path / "newer"))
    with engine_nodes(newer) as cluster:
        for told in (
            msgspec.structs.replace(seen, commit=1),
            msgspec.structs.replace(seen, cluster="another", commit=10**9),
            None,
        ):
            assert not cluster.node("one").register(seen=told).orders.halted


def test_an_older_copy_that_has_gone_on_by_itself_is_found_out(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    """Its commits have the numbers of those that are missing."""
    state, seen = older(copies, tmp_path), copies[2]
    with engine_nodes(state) as cluster:
        while (newest := cluster.service.store.newest) is None or newest.number <= seen.commit + 10:
            cluster.submit()
    with engine_nodes(state) as cluster:
        assert "knows nothing of the run" in cluster.node("one").register(seen=seen).orders.halted


def test_a_loss_that_is_accepted_ends_it_and_the_reverse_is_found_out(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, seen = older(copies, tmp_path), copies[2]
    newer = Path(shutil.copytree(copies[1], tmp_path / "newer"))
    with engine_nodes(state) as cluster:
        before = cluster.submit()
        cluster.node("one").register(seen=seen)
        assert cluster.service.engine.state.halted
    accept_loss(state)
    with engine_nodes(state) as cluster, caplog.at_level(logging.WARNING):
        node = cluster.node("one")
        node.statuses[77, 3] = AttemptStatus(job=77, attempt=3, state="running")
        assert not node.register(seen=seen).orders.halted
        assert cluster.submit() > before + 100_000
        assert "node one knows of " in caplog.text
        assert "attempt 3 of job 77, unknown here, and is told to stop that" in caplog.text
        assert node.report().desired == ()
        accepted = position(cluster, node)
    with engine_nodes(newer) as cluster:
        halted = cluster.node("one").register(seen=accepted).orders.halted
        assert "this state is from before the restore" in halted


def test_a_restore_is_no_older_copy(tmp_path: Path) -> None:
    with engine_nodes(tmp_path / "a") as cluster:
        node = cluster.node("one")
        node.register()
        back_up(tmp_path / "a", tmp_path / "backup")
        cluster.submit()
        seen = position(cluster, node)
    for folder in ("b", "c"):  # the second one does not know of the first
        restore(tmp_path / "backup", tmp_path / folder, replace=False)
        with engine_nodes(tmp_path / folder) as cluster:
            node = cluster.node("one")
            assert not node.register(seen=seen).orders.halted
            seen = position(cluster, node)


def test_a_clock_that_was_set_back_makes_no_restore_older_for_ever(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path
) -> None:
    state = older(copies, tmp_path)
    late = msgspec.structs.replace(copies[2], timeline=1 << 50)  # or an agent that lies
    accept_loss(state)
    with engine_nodes(state) as cluster:
        assert cluster.node("one").register(seen=late).orders.halted
    accept_loss(state)
    with engine_nodes(state) as cluster:
        assert not cluster.node("one").register(seen=late).orders.halted


def test_a_witness_may_be_ignored(
    copies: tuple[Path, Path, StorePosition, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = older(copies, tmp_path)
    with engine_nodes(state, ignored_witnesses=("one",)) as cluster:
        with caplog.at_level(logging.WARNING):
            assert not cluster.node("one").register(seen=copies[2]).orders.halted
        assert "node one was told of commit" in caplog.text
        assert "it is not heeded" in caplog.text
        other = cluster.node("two", "two.1")
        assert other.register(seen=copies[2]).orders.halted


def test_agents_are_told_of_no_run_that_is_not_durable() -> None:
    """If its beginning cannot be written, and it ends, the next one has its number."""
    told: list[object] = []
    fleet = Fleet(
        lease_s=1.0,
        rate_bound=0.0,
        monotonic=lambda: 0.0,
        on_change=lambda _: None,
        send_to_front=told.append,
    )
    state = cluster_state(fleet, lambda: 0.0)
    vars(state.store)["meta"] = lambda _: None
    state.store.newest = Commit(10, 1.8e9, b"", b"", b"")
    tested = RollbackDetector(state)
    tested.begin(3)
    tested.publish()
    assert told == []
    state.store.newest = Commit(11, 1.8e9, b"", b"", b"")
    for _ in range(2):
        tested.publish()
    (message,) = told
    assert isinstance(message, PublishedPosition)
    assert (message.position.run, message.position.commit) == (3, 11)


def test_a_front_that_is_started_anew_halts_as_well() -> None:
    fleet = Fleet(lease_s=1.0, rate_bound=0.0, monotonic=lambda: 0.0, on_change=lambda _: None)
    front = FrontSupervisor(Path("nowhere"), fleet, lambda _: None)
    seen = StorePosition(cluster="a", timeline=1, run=1, run_id="r", commit=1)
    told = (PublishedPosition(position=seen), SchedulingHalted(reason="why"))
    for message in told:
        front.send(message)

    class Link:
        def __init__(self) -> None:
            self.status: list[object] = []

        def put(self, message: object) -> None:
            self.status.append(message)

    link = Link()
    front._open(link)  # type: ignore[arg-type]
    assert tuple(link.status) == told


def test_orders_without_the_new_fields_are_those_of_before() -> None:
    orders = Orders(seq=1, desired=())
    assert (orders.position, orders.halted) == (None, "")
