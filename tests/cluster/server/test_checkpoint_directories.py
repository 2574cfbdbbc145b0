"""Jobs find their checkpoints again, whatever becomes of options and state directory between two starts."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.server.checkpoint_directories import NOTE
from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.service import Service
from fairlead.cluster.store.backup import back_up, restore
from fairlead.cluster.store.store import Store
from fairlead.errors import RunError


def directory_of(cluster: EngineNodes, job: int) -> Path:
    """That its next start would save to."""
    row = cluster.service.engine.state.registry.jobs.get(job) or cluster.service.store.job(job)
    assert row is not None
    return Path(row.checkpoint_dir)


def started_job(cluster: EngineNodes) -> tuple[int, PlayedNode]:
    """A job that has saved, and the node that it runs on."""
    node = cluster.node("one")
    node.register()
    job = cluster.submit()
    cluster.until(lambda: job in node.jobs)
    directory_of(cluster, job).mkdir(parents=True)
    cluster.begin(node, job)
    (key,) = [key for key in node.statuses if key[0] == job]
    node.run(*key, loaded_step=0, step=9, saved_step=7)
    cluster.until(lambda: cluster.job(job).saved_step == 7)
    return job, node


def pause(cluster: EngineNodes, job: int) -> None:
    cluster.service.pause(ADMIN, job)
    cluster.until(lambda: cluster.job(job).state == "paused")
    cluster.until(lambda: job not in cluster.service.engine.state.registry.live)


def refusal(state: Path) -> str:
    """Why a server does not start there."""
    service = Service(
        state, live_options(None, "las", "default", 1.0, "builtin", 0, 1.0, 0.2, 30.0)
    )
    try:
        with pytest.raises(RunError) as problem:
            service.start()
        return str(problem.value)
    finally:
        service.forecasting.close()
        service.store.close()


def test_nodes_are_told_that_jobs_have_used_a_directory(tmp_path: Path) -> None:
    """It is not made again from then on, after a restart of the server either."""

    def told(cluster: EngineNodes, node: PlayedNode, job: int) -> tuple[str, bool]:
        (found,) = cluster.until(lambda: [a for a in node.report().desired if a.job == job])
        return found.checkpoint_root, found.root_is_known

    state, root = tmp_path / "state", tmp_path / "root"
    with engine_nodes(state, checkpoints=root) as cluster:
        first = cluster.node("one", devices=3)
        first.register()
        job = cluster.submit()
        assert told(cluster, first, job) == (str(root), False)
        cluster.begin(first, job)
        assert told(cluster, first, cluster.submit()) == (str(root), True)
        own = cluster.submit(checkpoint_dir=str(tmp_path / "own"))
        assert told(cluster, first, own) == ("", False)
    with engine_nodes(state) as cluster:
        second = cluster.node("two")
        second.register()
        assert told(cluster, second, cluster.submit()) == (str(root), True)


def test_a_directory_below_the_state_goes_where_that_goes(tmp_path: Path) -> None:
    with engine_nodes(tmp_path / "state") as cluster:
        started_job(cluster)
        assert cluster.service.engine.state.known_roots == set()


def test_another_directory_is_for_new_jobs_and_is_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, first, second = tmp_path / "state", tmp_path / "first", tmp_path / "second"
    with engine_nodes(state, checkpoints=first) as cluster:
        old, _ = started_job(cluster)
        before = directory_of(cluster, old)
        assert before.parent == first
    with engine_nodes(state) as cluster:
        assert directory_of(cluster, old) == before, "the option was forgotten"
        assert directory_of(cluster, cluster.submit()).parent == first
    assert not caplog.messages
    with engine_nodes(state, checkpoints=second) as cluster:
        assert directory_of(cluster, old) == before
        assert directory_of(cluster, cluster.submit()).parent == second
    said = f"checkpoints of new jobs: {second}; 2 open jobs submitted before: {first}"
    assert said in caplog.messages
    with engine_nodes(state) as cluster:
        node = cluster.node("one")
        node.register()
        assert directory_of(cluster, cluster.submit()).parent == second
        desired = cluster.until(lambda: [a for a in node.report().desired if a.job == old])
        assert desired[0].checkpoint_dir == str(before)


def test_a_state_directory_that_is_moved_takes_its_checkpoints_along(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    with engine_nodes(state) as cluster:
        job, _ = started_job(cluster)
        before = directory_of(cluster, job)
        assert before.parent == state / "checkpoints"
        pause(cluster, job)
    state.rename(elsewhere)
    with engine_nodes(elsewhere) as cluster:
        assert directory_of(cluster, job) == elsewhere / before.relative_to(state)
        assert directory_of(cluster, cluster.submit()).parent == elsewhere / "checkpoints"


def test_a_state_directory_is_not_moved_from_under_running_jobs(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    with engine_nodes(state) as cluster:
        job, _ = started_job(cluster)
        before = directory_of(cluster, job)
    state.rename(elsewhere)
    assert refusal(elsewhere) == (
        f"{elsewhere}: was moved here from {state} while 1 open job ran, which may go on saving to "
        f"{state}/checkpoints; put a symbolic link to {elsewhere}/checkpoints in its place, and start the "
        "server again"
    )
    state.mkdir()
    (state / "checkpoints").symlink_to(elsewhere / "checkpoints")
    with engine_nodes(elsewhere) as cluster:
        assert directory_of(cluster, job) == elsewhere / before.relative_to(state)


def test_a_backup_that_is_restored_elsewhere_finds_the_checkpoints_where_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    with engine_nodes(state) as cluster:
        job, _ = started_job(cluster)
        before = directory_of(cluster, job)
        back_up(state, tmp_path / "backup")
    restore(tmp_path / "backup", elsewhere, replace=False)
    with engine_nodes(elsewhere) as cluster:
        assert directory_of(cluster, job) == before
        assert directory_of(cluster, cluster.submit()).parent == elsewhere / "checkpoints"
    said = f"checkpoints of new jobs: {elsewhere}/checkpoints; 1 open job submitted before: {before.parent}"
    assert said in caplog.messages


def forget_directories(state: Path) -> None:
    """As an earlier version left the state."""
    with Store(state) as store:
        rows = store.open_jobs()
        for row in rows:
            row.checkpoints = ""
        with store.transaction() as transaction:
            transaction.put_jobs(rows)
            transaction.delete_meta(NOTE)


def test_a_state_of_an_earlier_version_is_asked_for_its_checkpoints(tmp_path: Path) -> None:
    state, shared = tmp_path / "state", tmp_path / "shared"
    with engine_nodes(state, checkpoints=shared) as cluster:
        job, _ = started_job(cluster)
        before = directory_of(cluster, job)
    forget_directories(state)
    assert refusal(state) == (
        f"{state}/checkpoints: does not have the checkpoints of 1 open job; name their directory with "
        "--checkpoints DIR, as before (or this one, if those jobs shall begin anew)"
    )
    with engine_nodes(state, checkpoints=shared) as cluster:
        assert directory_of(cluster, job) == before
    with engine_nodes(state) as cluster:
        assert directory_of(cluster, job) == before
    forget_directories(state)
    with engine_nodes(state, checkpoints=state / "checkpoints") as cluster:
        assert directory_of(cluster, job).parent == state / "checkpoints"
