import asyncio
import time

import pytest

from fairlead.cluster.agent.report_pace import ReportPace
from fairlead.cluster.protocol.messages import Orders

LONG_S = 3600.0
WAIT_S = 60.0


def orders(gap_s: float = 0.0) -> Orders:
    return Orders(seq=1, desired=(), heartbeat_s=LONG_S, gap_s=gap_s)


def test_who_asks_is_answered_by_the_next_report_that_is_answered() -> None:
    async def scenario() -> None:
        pace = ReportPace()
        question = asyncio.create_task(pace.ask())
        await pace.await_due()
        await asyncio.sleep(0.0)
        waiting = pace.begin()
        assert len(waiting) == 1
        pace.failed(waiting)
        assert not question.done()
        again = pace.begin()
        assert again == waiting
        assert pace.begin() == []
        pace.answered(again, orders())
        await asyncio.wait_for(question, WAIT_S)

    asyncio.run(scenario())


def test_news_does_not_wait_for_the_heartbeat() -> None:
    async def scenario() -> None:
        pace = ReportPace()
        pace.answered(pace.begin(), orders())
        due = asyncio.create_task(pace.await_due())
        await asyncio.sleep(0.05)
        assert not due.done()
        pace.wake()
        await asyncio.wait_for(due, WAIT_S)
        pace.begin()  # with all news
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pace.await_due(), 0.05)

    asyncio.run(scenario())


def test_the_gap_that_the_server_wants_ends_for_who_hurries() -> None:
    async def scenario() -> None:
        pace = ReportPace()
        pace.answered(pace.begin(), orders(gap_s=LONG_S))
        rest = asyncio.create_task(pace.wait_gap())
        await asyncio.sleep(0.05)
        assert not rest.done()
        pace.skip_gap()
        await asyncio.wait_for(rest, WAIT_S)
        pace.answered(pace.begin(), orders())
        began = time.monotonic()
        await pace.wait_gap()  # no gap but its own
        assert time.monotonic() - began < WAIT_S

    asyncio.run(scenario())


def test_a_report_is_not_put_off_for_two_heartbeats() -> None:
    pace = ReportPace()
    assert pace.spare_s(time.monotonic()) == 0.0
    before = time.monotonic()
    pace.answered(pace.begin(), orders())
    assert pace.spare_s(before + 1.5 * LONG_S - 10.0) >= 10.0
    assert pace.spare_s(before + 2.0 * LONG_S) == 0.0
