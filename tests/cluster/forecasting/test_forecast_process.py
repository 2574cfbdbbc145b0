"""The process that makes forecasts, as the threads that use it see it."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fairlead.cluster.forecasting import forecast_process
from fairlead.cluster.forecasting.forecast_process import (
    ForecastError,
    ForecastProcess,
    ForecastTask,
)

WAIT_S = 120.0


class Held:
    """Is not sent before it is let go."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def __reduce__(self) -> tuple[type[int], tuple[()]]:
        self.begun.set()
        self.over.wait(WAIT_S)
        return int, ()


def test_it_is_closed_while_a_task_is_on_its_way() -> None:
    process, task = ForecastProcess("closed-in-a-test"), Held()
    with ThreadPoolExecutor(2) as threads:
        asked: Any = threads.submit(process.run, task)  # type: ignore[arg-type]
        assert task.begun.wait(WAIT_S)
        closed = threads.submit(process.close)
        for child in multiprocessing.active_children():
            if child.name == process.name:
                child.join(WAIT_S)
        with pytest.raises(TimeoutError):  # it waits for whoever uses the connection
            closed.result(0.5)
        task.over.set()
        with pytest.raises(ForecastError):
            asked.result(WAIT_S)
        closed.result(WAIT_S)
    with pytest.raises(ForecastError, match="the server is stopping"):
        process.start()


@pytest.mark.parametrize("fails", [False, True])
def test_whoever_asked_may_end_before_the_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """A server that is killed leaves no traceback of this process in the log."""
    ours, theirs = multiprocessing.Pipe()

    def answer(_: object) -> list[object]:
        ours.close()
        if fails:
            raise ForecastError("no")
        return []

    monkeypatch.setattr(forecast_process, "without_rounds", answer)
    ours.send((1, "a task"))
    forecast_process.answer_tasks(theirs)
    assert not caplog.records


@pytest.mark.parametrize("size", [0, 1 << 22], ids=["small", "too large for a pipe"])
def test_a_process_that_is_stopped_is_replaced(size: int) -> None:
    senseless: Any = bytes(size)
    task = ForecastTask(senseless, senseless, senseless)
    process = ForecastProcess("stopped-in-a-test")
    try:
        process.start()
        before = process._process
        assert before is not None
        assert before.pid is not None
        os.kill(before.pid, signal.SIGSTOP)
        with pytest.raises(ForecastError, match="the forecast failed"):  # by the one after it
            process.run(task)
        assert process._process is not before
        assert not before.is_alive()
    finally:
        process.close()
