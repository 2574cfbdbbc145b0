"""Functions as jobs, on a real server and agent."""

import concurrent.futures
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.client import call_functions
from tests.cluster.cluster import TIMEOUT_S, Running, running, until

from fairlead.client.call_files import CallError, RemoteTracebackError
from fairlead.client.futures import JobExecutor
from fairlead.errors import InputError

ROOT = Path(__file__).parents[2]  # where jobs find the module of the functions


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("calls"), agents={"node-a": "v100=4"}) as cluster:
        yield cluster


@contextmanager
def executor_of(cluster: Running, directory: Path, **fields: object) -> Iterator[JobExecutor]:
    """Whose jobs are cancelled at the end, where a test fails."""
    given = {"cwd": str(ROOT), "max_retries": 0, "poll_s": 0.2, **fields}
    executor = JobExecutor(cluster.url, cluster.admin_token, directory=directory, **given)  # type: ignore[arg-type]
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def test_values_and_exceptions_come_back(calls: Running, tmp_path: Path) -> None:
    with executor_of(calls, tmp_path) as executor:
        good = executor.submit(call_functions.square, 12)
        bad = executor.submit(call_functions.fail, 5)
        dead = executor.submit(call_functions.leave)
        command = executor.submit(["sh", "-c", "true"])
        wrong = executor.submit(["sh", "-c", "exit 3"])
        assert good.result(TIMEOUT_S) == 144
        with pytest.raises(call_functions.OwnError) as raised:
            bad.result(TIMEOUT_S)
        assert raised.value.code == 5
        assert isinstance(raised.value.__cause__, RemoteTracebackError)
        with pytest.raises(CallError, match=rf"^job {dead.job_id}: dropped: .*exit code 3"):
            dead.result(TIMEOUT_S)
        assert command.result(TIMEOUT_S) is None
        assert isinstance(wrong.exception(TIMEOUT_S), CallError)
        done, left = concurrent.futures.wait([good, bad, dead, command, wrong])
        assert len(done) == 5
        assert not left
        assert not good.cancel()
    with pytest.raises(RuntimeError, match="is shut down"):
        executor.submit(call_functions.square, 1)
    assert list(tmp_path.iterdir()) == []  # the files of calls that have ended are removed


def test_array_gives_values_in_order(calls: Running, tmp_path: Path) -> None:
    with executor_of(calls, tmp_path) as executor:
        futures = executor.map_array(call_functions.square, range(6), limit=2)
        first = futures[0].job_id
        assert [future.job_id for future in futures] == list(range(first, first + 6))
        assert [future.result(TIMEOUT_S) for future in futures] == [0, 1, 4, 9, 16, 25]
        assert list(executor.map(call_functions.square, [7, 8], timeout=TIMEOUT_S)) == [49, 64]
        assert executor.map_array(call_functions.square, []) == []


def test_calls_can_be_cancelled(calls: Running, tmp_path: Path) -> None:
    with executor_of(calls, tmp_path) as executor, calls.client() as client:
        never = str(tmp_path / "never")
        future = executor.submit(call_functions.wait_for, never)
        other = executor.submit(call_functions.wait_for, never)
        until(future.running, what="the call to run")
        assert not future.done()
        assert future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(TIMEOUT_S)
        client.cancel(other.job_id)  # by somebody else
        with pytest.raises(concurrent.futures.CancelledError):
            other.result(TIMEOUT_S)
        assert client.job(future.job_id).state == "cancelled"


def test_job_that_starts_again_calls_again(calls: Running, tmp_path: Path) -> None:
    with executor_of(calls, tmp_path) as executor, calls.client() as client:
        future = executor.submit(call_functions.begun_twice, str(tmp_path))
        until(lambda: bool(list(tmp_path.glob("begun-*"))), what="the first attempt")
        client.pause(future.job_id)
        until(lambda: client.job(future.job_id).node == "", what="the end of the first attempt")
        client.resume(future.job_id)
        assert future.result(TIMEOUT_S) == 2


def test_refused_calls_leave_no_files(calls: Running, tmp_path: Path) -> None:
    with (
        executor_of(calls, tmp_path, total_steps=0) as executor,
        pytest.raises(InputError, match="total_steps"),
    ):
        executor.submit(call_functions.square, 1)
    assert os.listdir(tmp_path) == []
