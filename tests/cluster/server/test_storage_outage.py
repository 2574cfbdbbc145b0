"""The storage that all nodes share is out of order for a while: no job and no node is to blame."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.cluster import Running, running, until
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.failures import FailureRecord
from fairlead.errors import InputError

LIMIT_S = 180.0
WORDS = (sys.executable, "-c", "import time; time.sleep(0.2)")


Storage = tuple[Running, Client, Path]


@contextmanager
def out_of_order(directory: Path) -> Iterator[None]:
    """No folder can be made in a directory, by anybody: a file is in its place."""
    away = directory.with_suffix(".away")
    directory.rename(away)
    directory.touch()
    try:
        yield
    finally:
        directory.unlink()
        away.rename(directory)


def submitted(client: Client, count: int, **more: object) -> list[int]:
    given = {"command": WORDS, "total_steps": 10, "unmanaged": True, "cwd": "/", **more}
    return client.submit([JobSpec(**given)] * count)  # type: ignore[arg-type]


SAVING = """
import os, pathlib, time
import fairlead
done = pathlib.Path({done!r} if os.environ["RANK"] == "0" else os.devnull)
with fairlead.Lease(load=lambda path: None, save=lambda path: path.write_text("x"), total_steps=400) as lease:
    while lease.next():
        with done.open("a") as file:
            print(lease.step, file=file)
        time.sleep(0.02)
"""


def saving_job(directory: Path, ranks: int) -> JobSpec:
    script = directory / "train.py"
    script.write_text(SAVING.format(done=str(directory / "done")))
    words = (sys.executable, str(script))
    return JobSpec(command=words, total_steps=400, cwd="/", scale_factor=ranks)


@contextmanager
def cluster_with_storage(directory: Path) -> Iterator[Storage]:
    checkpoints = directory / "checkpoints"
    checkpoints.mkdir()
    options = ("--round", "2", "--checkpoints", str(checkpoints))
    nodes = {"a": "v100=2", "b": "v100=2"}
    with running(directory, options, agents=nodes) as cluster, cluster.client() as client:
        until(lambda: sum(n.state == "up" for n in client.nodes()) == 2, LIMIT_S)
        yield cluster, client, checkpoints


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """One for all tests that leave it in order, and none of their jobs waiting."""
    with cluster_with_storage(tmp_path_factory.mktemp("storage")) as shared:
        yield shared


def test_jobs_wait_for_storage_and_go_on_by_themselves(storage: Storage, tmp_path: Path) -> None:
    cluster, client, checkpoints = storage
    assert client.status().checkpoints_trouble == ""
    with out_of_order(checkpoints):
        jobs = submitted(client, 4, max_retries=0)
        tried = lambda: all(len(client.attempts(job)) >= 3 for job in jobs)  # noqa: E731
        until(tried, LIMIT_S, "three tries of each")
        until(lambda: all(client.job(job).retry_in_s is not None for job in jobs[:1]), LIMIT_S)
        told = client.job(jobs[0])
        assert told.reason.startswith("waits for the storage of its checkpoints, tried again")
        assert f"checkpoint directory '{checkpoints}/" in told.reason
        assert told.state == "waiting"
        assert (told.failures, told.starts) == (0, 0)
        assert [node.state for node in client.nodes()] == ["up", "up"]
        trouble = client.status().checkpoints_trouble
        assert trouble == f"{checkpoints}: Not a directory; 4 jobs wait for it"
    until(lambda: all(client.job(j).state == "completed" for j in jobs), LIMIT_S)
    assert client.status().checkpoints_trouble == ""
    assert "cordoned" not in cluster.log()


@pytest.mark.parametrize(
    ("ranks", "there"),
    [
        (1, None),
        (3, None),
        (1, ""),
        (1, "lock"),
        (3, "step-000000000001"),
    ],
)
def test_a_job_whose_checkpoints_are_away_does_not_begin_anew(
    storage: Storage, tmp_path: Path, ranks: int, there: str | None
) -> None:
    """On none of its nodes: another one's agent may be the first to look. there: what lies below the mount
    point, None = there is no directory."""
    _, client, checkpoints = storage
    (job,) = client.submit([saving_job(tmp_path, ranks)])
    until(lambda: client.job(job).steps > 5, LIMIT_S)
    client.pause(job)
    until(lambda: client.attempts(job)[-1].ended_s is not None, LIMIT_S)  # and has saved
    away = tmp_path / "away"
    (folder,) = checkpoints.glob(f"{job}-*")
    folder.rename(away)
    if there is not None:
        folder.mkdir()
    if there:
        (folder / there).mkdir()
    client.resume(job)
    until(lambda: len(client.attempts(job)) >= 4, LIMIT_S, "more than one try")
    until(lambda: client.job(job).retry_in_s is not None, LIMIT_S)
    told = client.job(job)
    said = f"has no checkpoints any more, with {told.steps:.0f} steps gone (mount its storage"
    if there is None:
        said = f"is gone, with {told.steps:.0f} steps (put it back"
    elif there.startswith("step-"):
        said = f"its newest checkpoint is of step 1, {told.steps:.0f} steps were kept (mount its"
    assert f"{folder}': {said}" in told.reason
    assert told.reason.startswith("waits for its checkpoints, tried again")
    assert told.reason.endswith(f", or `fairlead resume {job} --accept-loss`)")
    assert told.steps > 5
    assert told.failures == 0
    if there is not None:
        assert [path.name for path in folder.iterdir()] == ([there] if there else [])
        shutil.rmtree(folder)
    away.rename(folder)
    until(lambda: client.job(job).state == "completed", LIMIT_S)
    done = [int(line) for line in (tmp_path / "done").read_text().splitlines()]
    assert done == list(range(400)), "no step was done twice"


def test_a_job_that_never_saved_waits_for_storage_that_is_not_mounted(tmp_path: Path) -> None:
    with cluster_with_storage(tmp_path) as (_, client, checkpoints):
        first = submitted(client, 1)[0]
        until(lambda: client.job(first).state == "completed", LIMIT_S)
        away = tmp_path / "away"
        checkpoints.rename(away)
        for _ in ("gone", "an empty mount point"):
            (job,) = submitted(client, 1)
            until(lambda job=job: client.job(job).retry_in_s is not None, LIMIT_S)  # type: ignore[misc]
            assert f"checkpoint directory '{checkpoints}': " in client.job(job).reason
            assert client.status().checkpoints_trouble.startswith(f"{checkpoints}: ")
            assert not list(checkpoints.glob("*")), "nothing is written there"
            checkpoints.mkdir(exist_ok=True)
        checkpoints.rmdir()
        away.rename(checkpoints)
        until(lambda: all(one.state == "completed" for one in client.jobs()), LIMIT_S)


def test_the_folder_of_one_job_is_not_the_storage_of_all(storage: Storage, tmp_path: Path) -> None:
    _, client, checkpoints = storage
    job, other = client.submit([saving_job(tmp_path, 1)] * 2)
    until(lambda: min(client.job(job).steps, client.job(other).steps) > 5, LIMIT_S)
    client.pause(job)
    until(lambda: client.attempts(job)[-1].ended_s is not None, LIMIT_S)
    (folder,) = checkpoints.glob(f"{job}-*")
    folder.rename(tmp_path / "away")
    folder.touch()
    client.resume(job)
    until(lambda: client.job(job).retry_in_s is not None, LIMIT_S)
    told = client.job(job)
    assert "waits for the storage of its checkpoints" in told.reason
    assert client.status().checkpoints_trouble == ""
    assert client.pause(other) == [], "nothing is said of the storage that it saves to"
    folder.unlink()
    (tmp_path / "away").rename(folder)
    until(lambda: client.job(job).state == "completed", LIMIT_S)


def pause_saved(client: Client, job: int, checkpoints: Path) -> tuple[int, Path]:
    """Pause a job once it has trained; return the step that it has kept, and where its checkpoints are."""
    until(lambda: client.job(job).steps > 5, LIMIT_S)
    client.pause(job)
    until(lambda: client.attempts(job)[-1].ended_s is not None, LIMIT_S)
    (folder,) = checkpoints.glob(f"{job}-*")
    return int(client.job(job).saved_step), folder


def test_an_owner_accepts_the_loss_of_checkpoints(storage: Storage, tmp_path: Path) -> None:
    _, client, checkpoints = storage
    (job,) = client.submit([saving_job(tmp_path, 1)])
    with pytest.raises(InputError, match="is not paused, and does not wait for its checkpoints"):
        client.resume(job, accept_loss=True)
    kept, folder = pause_saved(client, job, checkpoints)
    for path in folder.glob("step-*"):
        shutil.rmtree(path)
    client.resume(job)
    until(lambda: client.job(job).retry_in_s is not None, LIMIT_S, "its wait")
    with pytest.raises(InputError, match="is not paused, it is waiting"):
        client.resume(job)
    client.resume(job, accept_loss=True)
    until(lambda: client.attempts(job)[-1].trained_s is not None, LIMIT_S, "a start")
    origin = f"began anew, the loss of {kept} steps that were kept was accepted by admin"
    assert client.job(job).origin == client.attempts(job)[-1].origin == origin
    told = client.explain(job)
    assert f"It last {origin}." in told.facts
    number = client.job(job).attempt
    assert f"attempt {number} {origin}" in [words for _, words in told.events]
    until(lambda: client.job(job).state == "completed", LIMIT_S)
    assert client.job(job).lost_steps == kept
    assert client.job(job).failures == 0
    done = [int(line) for line in (tmp_path / "done").read_text().splitlines()]
    assert done == [*range(kept), *range(400)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_job_whose_checkpoints_are_all_damaged_waits_for_its_owner(
    storage: Storage, tmp_path: Path, ranks: int
) -> None:
    _, client, checkpoints = storage
    (job,) = client.submit([saving_job(tmp_path, ranks)])
    kept, folder = pause_saved(client, job, checkpoints)
    for path in folder.glob("step-*"):
        (path / "manifest.json").write_text("{")
    client.resume(job)
    until(lambda: client.job(job).retry_in_s is not None, LIMIT_S, "its wait")
    told = client.job(job)
    assert told.reason.startswith("waits for its checkpoints, tried again in")
    assert f"directory '{folder}': " in told.reason
    assert " whole (step-000000" in told.reason
    assert f"`fairlead resume {job} --accept-loss`" in told.reason
    assert told.failures == 0
    assert client.status().checkpoints_trouble == "", "it is a matter of this job alone"
    client.resume(job, accept_loss=True)
    until(lambda: client.job(job).origin != "", LIMIT_S, "a start")
    origin = f"began anew, the loss of {kept} steps that were kept was accepted by admin"
    assert client.job(job).origin == origin
    assert list(folder.glob(f"damaged-step-{kept:012}/manifest.json"))
    until(lambda: client.job(job).state == "completed", LIMIT_S)
    assert client.job(job).failures == 0


def test_a_path_of_its_owner_that_can_never_be_made_is_the_jobs_fault(
    storage: Storage, tmp_path: Path
) -> None:
    _, client, _ = storage
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    paths = ("/proc/nowhere", str(in_the_way / "here"))
    jobs = [submitted(client, 1, checkpoint_dir=path)[0] for path in paths]
    until(lambda: all(client.job(j).state == "dropped" for j in jobs), LIMIT_S)
    for job, path in zip(jobs, paths, strict=True):
        reason = client.job(job).reason
        assert reason.startswith(
            f"failed: it cannot be started, tried on 2 nodes: checkpoint directory '{path}'"
        )
    assert client.status().checkpoints_trouble == ""


def test_a_directory_that_a_job_has_used_is_waited_for_until_a_node_lets_it_in_again(
    tmp_path: Path,
) -> None:
    """Two of three nodes run its ranks as a user who may not use it."""
    with engine_nodes(tmp_path) as cluster:
        nodes = [cluster.node(name) for name in ("one", "two", "three")]
        one = nodes[0]
        one.register()
        given = {"unmanaged": True, "checkpoint_dir": "/own", "max_retries": 0}
        job = cluster.submit(**given)
        one.run(*cluster.until(lambda: next(iter(one.leased & one.statuses.keys()), None)))
        cluster.until(lambda: cluster.job(job).state == "running")
        for node in nodes[1:]:
            node.register()
        cluster.service.drain(ADMIN, "one")
        why = "checkpoint directory '/own': Permission denied"
        failure = Failure(
            kind="not_started", exit_code=127, message=why, directory="wrong_path", rank=-1
        )
        failed: set[str] = set()

        def fails_on_both() -> bool:
            for node in nodes[1:]:
                for key in [k for k, held in node.statuses.items() if held.state == "starting"]:
                    node.end(*key, exit_code=127, reason=why, failure=failure)
                    failed.add(node.name)
            return failed == {"two", "three"}

        cluster.until(fails_on_both)
        cluster.until(lambda: cluster.job(job).retry_in_s is not None)
        told = cluster.job(job)
        assert told.state == "waiting"
        assert told.reason.startswith("waits for the storage of its checkpoints, tried again in")
        assert told.reason.endswith(why)
        assert told.failures == 0
        cluster.service.undrain(ADMIN, "one")
        cluster.until(lambda: one.jobs == {job})


def test_a_restarted_server_knows_who_waits_for_storage(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit(max_retries=0)
        key = cluster.until(lambda: next(iter(one.leased & one.statuses.keys()), None))
        why = "checkpoint directory '/x/1': Permission denied"
        failure = Failure(
            kind="not_started", exit_code=127, message=why, directory="wrong_path", rank=-1
        )
        one.end(*key, exit_code=127, reason=why, failure=failure)
        cluster.until(lambda: cluster.job(job).retry_in_s is not None)
        told = cluster.service.status(ADMIN).checkpoints_trouble
        assert told.endswith(": Permission denied; 1 job waits for it")
        user = Caller("somebody", "another tenant", "user")
        shown = cluster.service.status(user).checkpoints_trouble
        assert shown == "1 job waits for the storage of checkpoints", "no folder of others"
        facts = cluster.service.explain(ADMIN, job).facts
        assert "waits for the storage" in facts[0]
        assert not any("placed off" in fact for fact in facts)
        assert cluster.job(job).starts == 0, "it only waited"
        retries = cluster.service.engine.parts.jobs.retries

        def restarted() -> str:
            anew = type(retries.storage)()
            anew.recover(cluster.service.engine.state.registry.jobs.values())
            return anew.trouble

        assert cluster.do(restarted) == told
        cluster.service.cancel(ADMIN, job)
        cluster.until(lambda: not cluster.service.status(ADMIN).checkpoints_trouble)


@pytest.mark.parametrize("own", [False, True])
def test_a_node_that_is_cordoned_for_a_closed_folder_says_which_it_is(
    tmp_path: Path, own: bool
) -> None:
    """Not where a job has named its directory: then the words may be its own."""
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        job = cluster.submit(checkpoint_dir="/lies" if own else "")
        closed = "/state does not let its user through: chmod o+x"
        record = FailureRecord(
            job=job, attempt=1, node="one", time_s=0.0, kind="not_started", directory="out_of_order",
            reason=f"checkpoint directory '/state/checkpoints/{job}-x': Permission denied ({closed})",
        )  # fmt: skip
        retries = cluster.service.engine.parts.jobs.retries
        cluster.do(lambda: retries._blame_node("one", [record]))
        cluster.until(lambda: cluster.view("one").state == "unhealthy")
        assert cluster.view("one").reason.endswith(f"; the last: {closed}") is not own
        assert "checkpoints" not in cluster.view("one").reason, "no folder of a job"


READ_ONLY = """
import errno, os, pathlib
flag, own = pathlib.Path({flag!r}), os.environ["FAIRLEAD_CHECKPOINT_DIR"]
def refuses(call):
    def refusing(path, *args, **more):
        writes = call is not open_ or (args and args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and str(path).startswith(own) and flag.exists():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return call(path, *args, **more)
    return refusing
open_, os.open, os.mkdir, os.rename = os.open, refuses(os.open), refuses(os.mkdir), refuses(os.rename)
"""


def read_only_job(directory: Path, flag: Path, name: str, **more: object) -> JobSpec:
    """A job that finds its own checkpoint directory read-only while ``flag`` exists."""
    script = directory / f"{name}.py"
    text = READ_ONLY.format(flag=str(flag)) + SAVING.format(done=str(directory / f"{name}.done"))
    script.write_text(text)
    given = {"command": (sys.executable, str(script)), "total_steps": 400, "cwd": "/", **more}
    return JobSpec(**given)  # type: ignore[arg-type]


@contextmanager
def small_file_system(directory: Path) -> Iterator[Callable[[str], None]]:
    """Mounted on a directory; what is yielded sets options of it. Skips where that is not permitted."""

    def mount(*words: str) -> bool:
        command = ("mount", *words, str(directory))
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def remount(options: str) -> None:
        assert mount("-o", f"remount,{options}")

    if shutil.which("mount") is None or not mount("-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        pytest.skip("no file system can be mounted here")
    try:
        yield remount
    finally:
        subprocess.run(("umount", "-l", str(directory)), check=True)


def test_a_file_system_that_is_read_only_for_a_while_costs_no_step(tmp_path: Path) -> None:
    with (
        cluster_with_storage(tmp_path) as (_, client, checkpoints),
        small_file_system(checkpoints) as remount,
    ):
        (job,) = client.submit([saving_job(tmp_path, 1)])
        until(lambda: client.job(job).steps > 5, LIMIT_S)
        client.pause(job)
        until(lambda: client.attempts(job)[-1].ended_s is not None, LIMIT_S)
        remount("ro")
        client.resume(job)
        until(lambda: len(client.attempts(job)) >= 3, LIMIT_S, "more than one try")
        until(lambda: client.job(job).retry_in_s is not None, LIMIT_S)
        assert client.job(job).reason.endswith("': Read-only file system")
        remount("rw")
        until(lambda: client.job(job).state == "completed", LIMIT_S)
        assert client.job(job).failures == 0
        done = [int(line) for line in (tmp_path / "done").read_text().splitlines()]
        assert done == list(range(400)), "no step was done twice"


@pytest.mark.parametrize("own_directory", [False, True])
def test_storage_that_became_read_only_is_no_failure_of_its_jobs(
    storage: Storage, tmp_path: Path, own_directory: bool
) -> None:
    """Their folders are there already. No file system is mounted: the jobs' own calls fail."""
    flag = tmp_path / "read_only"
    _, client, checkpoints = storage
    specs = [
        read_only_job(
            tmp_path,
            flag,
            name,
            max_retries=0,
            checkpoint_dir=str(tmp_path / f"own-{name}") if own_directory else "",
        )
        for name in ("one", "two")
    ]
    jobs = client.submit(specs)
    until(lambda: all(client.job(job).steps > 5 for job in jobs), LIMIT_S)
    for job in jobs:
        client.pause(job)
    until(lambda: all(client.attempts(j)[-1].ended_s is not None for j in jobs), LIMIT_S)
    flag.touch()
    for job in jobs:
        client.resume(job)
    until(lambda: all(len(client.attempts(job)) >= 4 for job in jobs), LIMIT_S, "several tries")
    until(lambda: all(client.job(job).retry_in_s is not None for job in jobs), LIMIT_S)
    for job in jobs:
        told = client.job(job)
        assert told.reason.startswith("waits for the storage of its checkpoints, tried again")
        assert told.reason.endswith("': Read-only file system")
        assert (told.state, told.failures) == ("waiting", 0)
    trouble = client.status().checkpoints_trouble
    said = f"{checkpoints}: Read-only file system; 2 jobs wait for it"
    assert trouble == ("" if own_directory else said)
    assert [node.state for node in client.nodes()] == ["up", "up"]
    flag.unlink()
    until(lambda: all(client.job(j).state == "completed" for j in jobs), LIMIT_S)
    assert client.status().checkpoints_trouble == ""
    for name in ("one", "two"):
        done = [int(line) for line in (tmp_path / f"{name}.done").read_text().splitlines()]
        assert done == list(range(400)), "no step was done twice"
