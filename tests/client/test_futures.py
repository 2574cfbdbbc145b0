"""Futures of jobs, without a server."""

import concurrent.futures
import sys
import threading
from pathlib import Path

import pytest

from fairlead.client.futures import JobExecutor, JobFuture
from fairlead.client.job_requests import JobRequests
from fairlead.errors import ConfigError, UnreachableError

REQUESTS = JobRequests("http://127.0.0.1:9", "token")


def test_cancellation_that_two_threads_see_counts_once() -> None:
    for _ in range(200):
        future, barrier = JobFuture(REQUESTS, 1), threading.Barrier(2)
        seen: list[object] = []
        future.add_done_callback(seen.append)

        def note(future: JobFuture = future, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            future.note_cancelled()

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(note) for _ in range(2)]:
                done.result()
        assert future.cancelled()
        assert seen == [future]


def test_value_of_a_job_that_was_cancelled_is_too_late() -> None:
    future = JobFuture(REQUESTS, 1)
    future.note_cancelled()
    future.settle(lambda: 3)
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    done = JobFuture(REQUESTS, 2)
    done.settle(lambda: 3)
    done.note_cancelled()
    assert done.result() == 3
    assert not done.cancel()


def test_server_has_to_be_named_and_to_answer(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_SERVER", raising=False)
    with pytest.raises(ConfigError, match=r"^url: which server\?"):
        JobExecutor(directory=str(tmp_path))
    with pytest.raises(ConfigError, match=r"^url: must begin with http://"):
        JobExecutor("ftp://a", directory=str(tmp_path))
    monkeypatch.setattr("fairlead.client.job_requests.RETRY_S", 0.0)
    monkeypatch.setenv("FAIRLEAD_SERVER", "127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"^server http://127.0.0.1:9: cannot be reached"):
        JobExecutor(directory=str(tmp_path)).submit(["true"])
    with pytest.raises(ConfigError, match=r"^submit: takes a function"):
        JobExecutor(directory=str(tmp_path)).submit("true")


def test_jobs_import_what_is_beside_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "x" / ".." / "scripts"), *sys.path])
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/x/../python")
    monkeypatch.setenv("PYTHONPATH", "/mine:/theirs")
    executor = JobExecutor("http://127.0.0.1:1", "t", directory=tmp_path, env={"A": "1"})
    fields = executor._fields
    assert fields["python"] == str(tmp_path / "python")
    assert fields["env"] == {"PYTHONPATH": f"{tmp_path}/scripts:/mine:/theirs", "A": "1"}
    executor.shutdown()
