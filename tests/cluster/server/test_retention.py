"""What a server removes of jobs that ended long ago, and what it keeps."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, engine_nodes

from fairlead.cluster.folder_removal import remove_folder
from fairlead.cluster.front.facade import ConflictError, NotFoundError
from fairlead.cluster.protocol.audit import AuditFilter
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, StudySpec
from fairlead.cluster.server import retention
from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.runtime_options import RuntimeOptions
from fairlead.cluster.store.audit_log import read_audit
from fairlead.cluster.store.metric_store import MetricStore, read_curves
from fairlead.errors import ConfigError

SOON = 1e-9  # days
LONG = 100.0


def cancelled(cluster: EngineNodes, count: int = 1, **more: object) -> list[int]:
    """Jobs that have ended, and one behind them that has not."""
    ids = [cluster.submit(**more) for _ in range(count)]
    for job in ids:
        cluster.service.cancel(ADMIN, job)
    cluster.submit()
    return ids


def folders(cluster: EngineNodes, job: int) -> tuple[Path, Path]:
    """Of output and of checkpoints, with something in them."""
    row = cluster.service.store.job(job)
    assert row is not None
    logs = cluster.service.store.directory / "logs" / str(job)
    for folder in (logs, Path(row.checkpoint_dir)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("x")
    return logs, Path(row.checkpoint_dir)


def actions(cluster: EngineNodes) -> list[tuple[str, str]]:
    page = read_audit(cluster.service.store.directory, AuditFilter(), "", 100)
    return [(one.action, one.object) for one in page.entries]


def is_gone(cluster: EngineNodes, job: int) -> bool:
    return cluster.service.store.job(job) is None


def test_all_of_a_job_goes_and_the_next_ids_are_others(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.submit(
            ADMIN, [JobSpec(command=("x",), total_steps=9, rates={"v100": 1.0})], key="k"
        )
        (first,) = cluster.service.submit(
            ADMIN, [JobSpec(command=("x",), total_steps=9, rates={"v100": 1.0})], key="k"
        )
        cluster.service.cancel(ADMIN, first)
        jobs = [first, *cancelled(cluster, 3)]
        made = [folders(cluster, job) for job in jobs]
        metrics = MetricStore(tmp_path)
        for job in (*jobs, jobs[-1] + 1):
            metrics.put((job, 1), 0, b'{"step": 1, "metrics": {"loss": 1}}\n')
        cluster.service.retention.keep(
            RuntimeOptions(keep_ended_jobs=SOON, keep_logs=SOON, keep_checkpoints=SOON)
        )
        cluster.until(lambda: all(is_gone(cluster, job) for job in jobs), "the jobs to leave")
        assert not any(read_curves(tmp_path, job) for job in jobs)
        assert read_curves(tmp_path, jobs[-1] + 1)
        assert not any(folder.exists() for pair in made for folder in pair)
        with pytest.raises(NotFoundError):
            cluster.service.job(ADMIN, jobs[0])
        spec = JobSpec(command=("x",), total_steps=9, rates={"v100": 1.0})
        assert cluster.service.submit(ADMIN, [spec], key="k") == [first], "a key still counts"
        newest = jobs[-1] + 1
        assert cluster.job(newest).state == "waiting"
        assert actions(cluster) == [
            ("remove_checkpoints", f"jobs {jobs[0]}-{jobs[-1]}"),
            ("remove_logs", f"jobs {jobs[0]}-{jobs[-1]}"),
            ("remove_jobs", f"jobs {jobs[0]}-{jobs[-1]}"),
        ]
        ended = dict(cluster.service.engine.state.ended_counts)
    with engine_nodes(tmp_path) as cluster:
        assert cluster.service.engine.state.ended_counts == ended
        assert cluster.submit() == newest + 1


def test_searches_leave_with_their_trials_but_for_the_newest(tmp_path: Path) -> None:
    study = StudySpec(
        metric="loss",
        parameters={"x": ParameterRange(low=0.0, high=1.0)},
        job=JobSpec(command=("x",), total_steps=9, unmanaged=True),
        trials=3,
        sampler="random",
    )
    with engine_nodes(tmp_path) as cluster:
        service, store = cluster.service, cluster.service.store
        ended, runs, newest = (service.submit_search(ADMIN, study) for _ in range(3))
        for number in (ended, newest):
            cluster.until(lambda number=number: store.trials(number), "a trial")  # type: ignore[misc]
            service.stop_search(ADMIN, number)
        cluster.until(lambda: all(s.settled for s in store.searches() if s.id != runs), "their end")
        cluster.until(lambda: store.trials(runs), "a trial")
        first = store.trials(runs)[0].job  # of those that the search goes by
        service.cancel(ADMIN, first)
        cluster.until(lambda: len(store.trials(runs)) > 1, "the next one")
        cancelled(cluster)
        service.retention.keep(RuntimeOptions(keep_ended_jobs=SOON))
        cluster.until(lambda: [s.id for s in store.searches()] == [runs, newest], "one to leave")
        assert store.trials(ended) == []
        assert store.trials(runs)
        assert not is_gone(cluster, first)
    with engine_nodes(tmp_path) as cluster:
        assert cluster.service.submit_search(ADMIN, study) == newest + 1


def test_each_kind_has_its_own_time(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        (job,) = cancelled(cluster)
        logs, checkpoints = folders(cluster, job)
        cluster.service.retention.keep(
            RuntimeOptions(keep_ended_jobs=LONG, keep_logs=SOON, keep_checkpoints=LONG)
        )
        cluster.until(lambda: not logs.exists(), "the output to go")
        assert checkpoints.exists()
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=LONG, keep_checkpoints=SOON))
        cluster.until(lambda: not checkpoints.exists(), "the checkpoints to go")
        assert cluster.job(job).state == "cancelled"


def test_checkpoints_stay_where_nobody_says_for_how_long(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        (job,) = cancelled(cluster)
        logs, checkpoints = folders(cluster, job)
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=SOON))
        cluster.until(lambda: is_gone(cluster, job), "the job to leave")
        assert not logs.exists(), "nobody could read it"
        assert (checkpoints / "file").exists()


def test_open_jobs_and_directories_of_users_are_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    with engine_nodes(tmp_path / "state") as cluster:
        (named,) = cancelled(cluster, checkpoint_dir=str(theirs))
        (used,) = cancelled(cluster)
        inside = folders(cluster, used)[1] / "deeper"
        user = cluster.submit(checkpoint_dir=str(inside))
        open_job = cluster.submit()
        kept = [*folders(cluster, open_job), folders(cluster, named)[1]]
        cluster.service.retention.keep(
            RuntimeOptions(keep_ended_jobs=SOON, keep_logs=SOON, keep_checkpoints=SOON)
        )
        cluster.until(lambda: is_gone(cluster, named), "the job to leave")
        assert all((folder / "file").exists() for folder in kept)
        assert (inside.parent / "file").exists(), "an open job saves there"
        cluster.until(lambda: is_gone(cluster, used), "the other job to leave")
        cluster.service.cancel(ADMIN, user)
        cluster.submit()
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=SOON, keep_checkpoints=SOON))
        cluster.until(lambda: is_gone(cluster, user), "the job that named it to leave")
        assert (inside.parent / "file").exists(), "a job has named it: it is never touched"
        assert ("remove_checkpoints", f"job {used}") not in actions(cluster), "nothing was removed"


def test_what_a_job_has_named_stays_when_it_ends_though_another_one_s_is_due(
    tmp_path: Path,
) -> None:
    """The job of which the folder was ended long ago; the other goes on from there, and has just ended."""
    with engine_nodes(tmp_path / "state") as cluster:
        (old,) = cancelled(cluster)
        folder = folders(cluster, old)[1]
        (new,) = cancelled(cluster, checkpoint_dir=str(folder))
        (other,) = cancelled(cluster)
        gone = folders(cluster, other)[1]
        cluster.service.retention.keep(RuntimeOptions(keep_checkpoints=SOON))
        cluster.until(lambda: not gone.exists(), "a turn")
        assert (folder / "file").exists()
        assert not is_gone(cluster, new)


def test_no_job_gets_a_directory_that_is_being_removed(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        (job,) = cancelled(cluster)
        path = folders(cluster, job)[1]
        assert cluster.service.submissions.condemn(str(path))
        with pytest.raises(ConflictError, match="is being removed"):
            cluster.submit(checkpoint_dir=str(path / "x"))
        cluster.service.submissions.release(str(path))
        cluster.submit(checkpoint_dir=str(path / "x"))
        assert not cluster.service.submissions.condemn(str(path))


def test_what_was_left_half_done_is_completed_by_the_next_server(tmp_path: Path) -> None:
    all_ = RuntimeOptions(keep_ended_jobs=SOON, keep_logs=SOON, keep_checkpoints=SOON)
    with engine_nodes(tmp_path) as cluster:
        one, two = cancelled(cluster, 2)
        _, first = folders(cluster, one)
        logs, second = folders(cluster, two)
    (first / "file").unlink()  # the server was killed while it removed one's
    (second / "file").unlink()  # and after it had removed the other's, before their rows
    second.rmdir()
    with engine_nodes(tmp_path) as cluster:
        cluster.service.retention.keep(all_)
        cluster.until(lambda: is_gone(cluster, one) and is_gone(cluster, two), "both to leave")
        assert not first.exists()
        assert not logs.exists()


def test_jobs_stay_while_the_storage_of_their_checkpoints_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "shared"
    with engine_nodes(tmp_path / "state", checkpoints=root) as cluster:
        (job,) = cancelled(cluster)
        folders(cluster, job)
        away = root.rename(tmp_path / "away")
        options = RuntimeOptions(keep_ended_jobs=SOON, keep_checkpoints=SOON)
        cluster.service.retention.keep(options)
        cluster.until(lambda: "cannot be read" in caplog.text, "a turn")
        assert not is_gone(cluster, job)
        away.rename(root)
        cluster.until(lambda: is_gone(cluster, job), "the job to leave")
        assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["keep_logs", "keep_checkpoints"])
def test_nothing_can_be_kept_for_longer_than_what_it_belongs_to(name: str) -> None:
    options = RuntimeOptions(keep_ended_jobs=3.0, **{name: 4.0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}: .*3 days.*got 4"):
        live_options(None, "las", "default", None, "builtin", 0, 30.0, 2.0, 30.0, runtime=options)


def test_what_open_jobs_depend_on_stays_and_so_do_tasks_of_arrays(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        (parent,) = cancelled(cluster)
        (alone,) = cancelled(cluster)
        child = cluster.submit(after=(f"any:{parent}", f"any:{alone + 1}"))
        tasks = cluster.service.submit(
            ADMIN, [JobSpec(command=("x",), total_steps=9, rates={"v100": 1.0}, array="0-1")]
        )
        cluster.service.cancel(ADMIN, tasks[0])
        cluster.submit()
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=SOON))
        cluster.until(lambda: is_gone(cluster, alone), "a job that nobody needs to leave")
        assert not is_gone(cluster, parent)
        assert not is_gone(cluster, tasks[0])
        assert len(cluster.service.jobs(ADMIN, array=tasks[0])) == 2
    with engine_nodes(tmp_path) as cluster:
        assert cluster.job(child).reason == f"waits for job {alone + 1} to end"
        for job in (child, tasks[1]):
            cluster.service.cancel(ADMIN, job)
        cluster.submit()
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=SOON))
        cluster.until(lambda: is_gone(cluster, parent) and is_gone(cluster, tasks[0]), "the rest")


def test_a_job_that_names_a_folder_above_stops_nothing(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        (job,) = cancelled(cluster)
        made = folders(cluster, job)
        cluster.submit(checkpoint_dir=str(tmp_path.parent))
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=SOON, keep_checkpoints=SOON))
        cluster.until(lambda: is_gone(cluster, job), "the job to leave")
        assert not any(folder.exists() for folder in made)


def test_what_cannot_be_removed_is_in_the_audit_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    remove = remove_folder

    def failing(parent: Path, name: str) -> None:
        tries.append(name)
        if len(tries) < 4:
            raise PermissionError(1, "Operation not permitted")
        remove(parent, name)

    monkeypatch.setattr(retention, "remove_folder", failing)
    monkeypatch.setattr(retention, "MIN_TURN_S", 0.0)
    with engine_nodes(tmp_path) as cluster:
        (job,) = cancelled(cluster)
        folder = tmp_path / "logs" / str(job)
        folder.mkdir(parents=True)
        cluster.service.retention.keep(RuntimeOptions(keep_ended_jobs=LONG, keep_logs=SOON))
        cluster.until(lambda: not folder.exists(), "the folder to go")
        assert tries == [str(job)] * 4
        assert actions(cluster) == [("remove_logs", f"job {job}")]
