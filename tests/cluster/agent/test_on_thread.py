"""Threads of an agent where there can be none, or where one never begins."""

import _thread
import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.agent.test_device_usage import Nvml, sampler
from tests.cluster.agent.test_health import health_checks

from fairlead.cluster.agent import on_thread as module
from fairlead.cluster.agent.on_thread import on_thread


def refuse(_run: Callable[[], object], _given: tuple[Any, ...]) -> int:
    raise RuntimeError("can't start new thread")


def begin_never(_run: Callable[[], object], _given: tuple[Any, ...]) -> int:
    return 1


@pytest.mark.parametrize("start", [refuse, begin_never])
def test_a_thread_that_does_not_begin_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., int]
) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", start)
    monkeypatch.setattr(module, "_BEGIN_S", 0.05)
    with pytest.raises(OSError, match="thread") as caught:
        asyncio.run(on_thread(list, 60.0))
    assert caught.value.errno == errno.ENOMEM


def test_checks_and_measurements_outlast_a_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    health, usage = health_checks("true", interval_s=0.01), sampler(Nvml())

    async def scenario() -> None:
        told = asyncio.Event()
        loops = [
            asyncio.ensure_future(health.run(told.set)),
            asyncio.ensure_future(usage.run()),
        ]
        monkeypatch.setattr(_thread, "start_new_thread", refuse)
        async with asyncio.timeout(60.0):
            while health.report is None or not health.report.problems:
                await told.wait()
                told.clear()
        assert "the health command cannot be started: can't start new thread" in (
            health.report.problems
        )
        assert not any(loop.done() for loop in loops)
        monkeypatch.undo()
        async with asyncio.timeout(60.0):
            while health.report.problems:
                await told.wait()
                told.clear()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    asyncio.run(scenario())
