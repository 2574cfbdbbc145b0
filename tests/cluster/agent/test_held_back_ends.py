"""The end of a job is told behind what the job has reported: the value of a trial is its last one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cluster.agent.cluster import Server, cluster, plain

REPORTS = """
import os, time
import fairlead
fairlead.report(step=1, loss=1.0)
while not os.path.exists("go"):
    time.sleep(0.02)
fairlead.report(step=2, loss=0.5)
"""
KEY = (1, 1)


@asynccontextmanager
async def job_that_reports(folder: Path) -> AsyncIterator[Server]:
    """A server whose node runs a job, of which it has heard the first report; the second is its last deed."""
    async with cluster(folder / "s") as (server, _agent):
        await server.order(plain(1, sys.executable, "-c", REPORTS, cwd=str(folder)))
        await server.until_state(KEY, "running")
        await server.until(lambda: lines(server) == 1)
        yield server


def lines(server: Server) -> int:
    """Reports of the job that the server has."""
    return server.metric_lines.get(KEY, b"").count(b"\n")


async def end_job(folder: Path) -> None:
    """Let the job end. Returns once its agent knows."""
    (folder / "go").touch()
    while not (folder / "s" / "ends" / "1-1.json").exists():
        await asyncio.sleep(0.02)


def test_an_end_is_told_behind_the_metrics_of_its_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with job_that_reports(tmp_path) as server:
            server.takes_metrics = False
            await end_job(tmp_path)
            reports = server.reports
            await server.until(lambda: server.reports > reports + 2)
            assert server.statuses[KEY].state == "stopping", "its metrics are not told yet"
            server.takes_metrics = True
            ended = await server.until_state(KEY, "ended")
            assert ended.exit_code == 0
            assert lines(server) == 2

    asyncio.run(scenario())


def test_a_server_that_has_just_come_up_hears_of_no_end_before_the_metrics(tmp_path: Path) -> None:
    """The program ends while it is away, and it takes registrations before it takes metrics."""

    async def scenario() -> None:
        async with job_that_reports(tmp_path) as server:
            server.is_away, server.takes_metrics = True, False
            await end_job(tmp_path)
            server.registered.clear()
            server.is_away = False
            (held,) = (await server.until(lambda: server.registered))[0].holds
            assert held.state == "stopping"
            server.takes_metrics = True
            await server.until_state(KEY, "ended")
            assert lines(server) == 2

    asyncio.run(scenario())


def test_a_server_that_cannot_keep_metrics_hears_of_ends_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with job_that_reports(tmp_path) as server:
            server.takes_metrics = False
            await end_job(tmp_path)
            await server.until_state(KEY, "ended")
            assert lines(server) == 1

    asyncio.run(scenario())


def test_reports_go_on_while_a_job_that_has_ended_has_much_to_tell(tmp_path: Path) -> None:
    """Each report waited for two seconds for it, and the node was suspect in between."""

    async def scenario() -> None:
        async with job_that_reports(tmp_path) as server:
            server.answers_metrics.clear()
            await end_job(tmp_path)
            reports = server.reports
            await server.until(lambda: server.reports > reports + 10)
            assert server.statuses[KEY].state == "stopping", "its end was held back for too long"
            server.answers_metrics.set()
            await server.until_state(KEY, "ended")
            assert lines(server) == 2

    asyncio.run(scenario())


def test_the_last_report_of_a_program_needs_no_newline(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _agent):
            script = "import os; open(os.environ['FAIRLEAD_METRICS_FILE'], 'w').write('one')"
            await server.order(plain(1, sys.executable, "-c", script, cwd=str(tmp_path)))
            await server.until_state(KEY, "ended")
            assert server.metric_lines[KEY] == b"one\n"

    asyncio.run(scenario())
