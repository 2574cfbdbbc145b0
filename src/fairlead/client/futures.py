"""Functions and commands as jobs, with the words of ``concurrent.futures``::

    from fairlead.client.futures import JobExecutor

    with JobExecutor("http://scheduler:8470", directory="/shared/calls") as executor:
        future = executor.submit(train, 0.1)
        print(future.job_id, future.result())
        values = [each.result() for each in executor.map_array(evaluate, range(100), limit=10)]

A call travels by pickle, in files of a directory that this process and the nodes share, and so does what it
returns or raises. It is made at least once: a job that is preempted, or whose node is lost, begins its
function again. What counts is what the attempt has returned with which the job ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fairlead.client.call_files import CallError, CallFolder, CallResult
from fairlead.client.job_requests import JobRequests
from fairlead.client.run_call import EXIT_RAISED
from fairlead.errors import ConfigError, FairleadError, InputError, UnreachableError

POLL_S = 1.0  # between two looks at jobs
REQUESTS_PER_S = 50.0  # in the long run, however many jobs there are
RESULT_S = (
    60.0  # until a result must be seen of a job that has ended: network file systems take a while
)
WORK_S = 600  # that a call is believed to take on a device of rate 1, where nobody says otherwise
ENDED = ("completed", "dropped", "killed", "cancelled")


class JobFuture(concurrent.futures.Future):  # type: ignore[type-arg]
    """The future of a job. ``result`` and ``exception`` return once it has ended."""

    def __init__(self, requests: JobRequests, job_id: int) -> None:
        super().__init__()
        self.job_id = job_id
        self.state = "waiting"  # of the job, as it was last seen
        self._requests = requests
        self._cancelling = threading.Lock()

    def running(self) -> bool:
        """Return whether the job held devices when it was last looked at."""
        return not self.done() and self.state in ("running", "finishing")

    def cancel(self) -> bool:
        """Cancel the job, also if it runs. Returns False where it has ended already. Raises UnreachableError
        where the server does not answer."""
        if self.done():
            return self.cancelled()
        try:
            self._requests.cancel(self.job_id)
        except InputError:  # it has ended, and nobody has looked since
            return False
        self.note_cancelled()
        return True

    def note_cancelled(self) -> None:
        """The job has been cancelled. Two threads may see that."""
        with self._cancelling:
            if not self.cancelled() and super().cancel():
                self.set_running_or_notify_cancel()

    def settle(self, value: Callable[[], Any]) -> None:
        """The job has ended. value: returns what it has returned, or raises."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it is cancelled meanwhile
            try:
                found = value()
            except Exception as problem:
                self.set_exception(problem)
            else:
                self.set_result(found)


class _Group:
    """The futures of one submission."""

    def __init__(self, folder: CallFolder | None, array: int, futures: list[JobFuture]) -> None:
        """folder: of the calls, None = it is a command; array: its id, -1 = it is a single job."""
        self.folder = folder
        self.array = array
        self.pending = dict(enumerate(futures))  # by the number of the call
        self.ended_s: dict[int, float] = {}  # when it was first seen that a call's job has ended


def _import_path() -> str:
    """Return where this program finds modules of its own: beside its script, and as PYTHONPATH says."""
    found = [sys.path[0] if sys.path else "", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(map(os.path.abspath, found)))


class JobExecutor(concurrent.futures.Executor):
    """Calls functions in jobs. Its futures can be given to ``concurrent.futures.wait`` and
    ``as_completed``."""

    def __init__(
        self,
        url: str = "",
        token: str | None = None,
        *,
        directory: str | os.PathLike[str],
        ca: str | None = None,
        poll_s: float = POLL_S,
        **fields: Any,
    ) -> None:
        """url, token, ca: of the server; without them the variables FAIRLEAD_SERVER, FAIRLEAD_TOKEN and
        FAIRLEAD_CA. directory: for calls and results, seen by the nodes under the same path. poll_s: between
        two looks at jobs. fields: of every job, as in job.toml (``rates``, ``scale_factor``, ``name``,
        ``total_steps``, ``max_retries``)."""
        self._requests = JobRequests(url, token, ca)
        self._directory = Path(os.path.abspath(directory))
        self._poll_s = poll_s
        python = os.path.abspath(sys.executable)
        self._fields = {**_DEFAULTS, "python": python, "cwd": os.getcwd(), **fields}
        self._fields["env"] = {"PYTHONPATH": _import_path(), **fields.get("env", {})}
        if any(fields.get(name) for name in ("venv", "conda", "container")):
            del self._fields["python"]
        if "retry_on" in fields:
            del self._fields["no_retry_on"]
        self._lock = threading.Lock()
        self._groups: list[_Group] = []
        self._finished: list[_Group] = []
        self._watches = False
        self._is_shut_down = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> JobFuture:
        """Have a function called in a job. Or run a command, a list of words, whose future gives None.

        Raises ConfigError for what cannot be pickled, InputError where the server refuses the job.
        """
        if callable(fn):
            return self._submit_calls(fn, [(args, kwargs)], None)[0]
        if args or kwargs or isinstance(fn, (str, bytes)):
            raise ConfigError("submit: takes a function and its arguments, or a list of words")
        return self._submit_job(list(fn), None, {})[0]

    def map_array(
        self, fn: Callable[[Any], Any], inputs: Iterable[Any], limit: int = 10
    ) -> list[JobFuture]:
        """Have a function called with each of the inputs, by the tasks of one array, of which so many at
        most take part at once; 0 = all. Returns the futures in order of the inputs."""
        return self._submit_calls(fn, [((given,), {}) for given in inputs], limit)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        **chunks: Any,
    ) -> Iterator[Any]:
        """Values in order, as the built-in ``map`` has them, by the tasks of one array. timeout: seconds from
        now, for all. What would divide the calls among processes (``chunksize``) is ignored."""
        del chunks
        end = None if timeout is None else time.monotonic() + timeout
        calls: list[Any] = [(given, {}) for given in zip(*iterables)]
        futures = self._submit_calls(fn, calls, 0)
        return _values(futures, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. wait: until all have ended; then their files are removed. cancel_futures: end
        the jobs that have not."""
        with self._lock:
            self._is_shut_down = True
            futures = [each for group in self._groups for each in list(group.pending.values())]
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            concurrent.futures.wait(futures)
        with self._lock:
            done = [group for group in self._groups if _is_done(group)]
            finished, self._finished = [*self._finished, *done], []
        for group in finished:
            if group.folder is not None:
                shutil.rmtree(group.folder.path, ignore_errors=True)

    def _submit_calls(
        self, fn: Callable[..., Any], calls: list[Any], limit: int | None
    ) -> list[JobFuture]:
        """limit: tasks of an array at once, 0 = all; None = it is a single job."""
        self._check_takes_calls()
        if not calls:
            return []
        folder = CallFolder(self._directory / f"call-{uuid.uuid4().hex}")
        folder.write_calls(fn, calls)
        command = ["python", "-m", "fairlead.client.run_call", str(folder.path)]
        more: dict[str, Any] = {"name": getattr(fn, "__name__", "")}
        if limit is not None:
            more["array"] = f"0-{len(calls) - 1}" + (f"%{limit:d}" if limit else "")
        try:
            return self._submit_job(command, folder, more)
        except UnreachableError:
            raise  # it may have been submitted, and would want its files
        except FairleadError:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise

    def _check_takes_calls(self) -> None:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the executor is shut down")

    def _submit_job(
        self, command: list[str], folder: CallFolder | None, more: dict[str, Any]
    ) -> list[JobFuture]:
        self._check_takes_calls()
        ids = self._requests.submit({"command": command, **more, **self._fields})
        futures = [JobFuture(self._requests, job) for job in ids]
        group = _Group(folder, ids[0] if "array" in more else -1, futures)
        with self._lock:
            self._groups.append(group)
            if not self._watches:
                self._watches = True
                threading.Thread(target=self._watch, name="fairlead-futures", daemon=True).start()
        return futures

    # --- the thread that looks at jobs -------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._finished += [group for group in self._groups if _is_done(group)]
                self._groups = [group for group in self._groups if not _is_done(group)]
                if not self._groups:
                    self._watches = False
                    return
                groups = list(self._groups)
            asked = sum(map(self._look_at, groups))
            time.sleep(max(self._poll_s, asked / REQUESTS_PER_S))

    def _look_at(self, group: _Group) -> int:
        """Settle the futures whose jobs have ended. Returns the number of requests."""
        try:
            return self._settle_ended(group)
        except UnreachableError:  # it is asked again
            return 1
        except Exception as problem:
            _fail(group, problem)
            return 1

    def _settle_ended(self, group: _Group) -> int:
        asked = 0
        open_tasks: dict[int, dict[str, Any]] = {}
        if group.array >= 0:
            open_tasks = self._requests.open_tasks(group.array)
            asked += 1 + len(open_tasks) // 1000
        for number, future in list(group.pending.items()):
            view = open_tasks.get(future.job_id)
            if view is None and not future.done():
                view = self._requests.job(future.job_id)
                asked += 1
            if view is not None:
                future.state = view["state"]
            if future.done() or (view is not None and self._settle(group, number, future, view)):
                del group.pending[number]
        return asked

    def _settle(self, group: _Group, number: int, future: JobFuture, view: dict[str, Any]) -> bool:
        """Return whether the job has ended, and its future now says how."""
        if view["state"] not in ENDED:
            return False
        if view["state"] == "cancelled":
            future.note_cancelled()
            return True
        completed = view["state"] == "completed"
        if group.folder is None and completed:
            future.settle(lambda: None)
            return True
        result = None
        if group.folder is not None:
            result = group.folder.read_result(number, view["attempt"])
        since = group.ended_s.setdefault(number, time.monotonic())
        if result is None and completed and time.monotonic() - since < RESULT_S:
            return False
        future.settle(lambda: _outcome(view, result))
        return True


_DEFAULTS: dict[str, Any] = {
    "total_steps": WORK_S,
    "unmanaged": True,
    "no_retry_on": [EXIT_RAISED],  # the exception would be raised again
}


def _outcome(view: dict[str, Any], result: CallResult | None) -> Any:
    """The value of a job that has ended. Raises what its function has raised; CallError where nothing is
    known of either."""
    if result is not None and result.is_value == (view["state"] == "completed"):
        return result.value()
    job = f"job {view['id']}"
    if view["state"] == "completed":
        raise CallError(f"{job}: completed, but has written no value to the directory of its call")
    raise CallError(f"{job}: {view['state']}: {view['reason'] or 'no reason was given'}")


def _values(futures: Sequence[JobFuture], end: float | None) -> Iterator[Any]:
    try:
        for future in futures:
            left = None if end is None else max(end - time.monotonic(), 0.0)
            yield future.result(left)
    finally:
        for future in futures:
            if not future.done():
                future.cancel()


def _is_done(group: _Group) -> bool:
    return all(future.done() for future in list(group.pending.values()))


def _fail(group: _Group, problem: Exception) -> None:
    """Nothing can be known any more of the jobs of a group."""
    error = CallError(f"nothing is known any more of the job: {problem}")
    for future in list(group.pending.values()):
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            future.set_exception(error)
