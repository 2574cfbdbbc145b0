"""What ranks printed as their agent was killed reaches the server once an agent is started again."""

import asyncio
import sys
import time
from pathlib import Path

from tests.cluster.agent.cluster import cluster, gone, lives, plain, processes_of
from tests.cluster.cluster import until
from tests.deep_folder import make_deep

from fairlead.cluster.agent.launch import REPORTS
from fairlead.cluster.agent.logs import CHUNK, RETENTION_S, Logs
from fairlead.cluster.agent.server_client import AgentClient
from fairlead.cluster.protocol.messages import LogChunk, LogOffset

SAYS_GOODBYE = """
import os, signal, sys, time
def leave(*_):
    os.write(1, b"x" * int(sys.argv[1]) + b"\\ngoodbye\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
os.write(1, b"up\\n")
while True:
    time.sleep(1)
"""


def test_an_agent_tells_what_the_one_before_could_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            size = 3 * CHUNK // 2
            await server.order(plain(1, sys.executable, "-c", SAYS_GOODBYE, str(size)))
            await server.until_output(1, "up")
            ranks = [p for p in processes_of(state) if SAYS_GOODBYE in p.cmdline()]
            assert agent.process is not None
            agent.process.kill()
            await agent.wait()
            assert await gone(lambda: not any(map(lives, ranks)))
            assert server.output[1, 1, 0] == b"up\n"
            await server.order()
            agent.start()
            told = await server.until_output(1, "goodbye")
            assert told == "up\n" + "x" * size + "\ngoodbye\n"

    asyncio.run(scenario())


class _Server:
    """Stores output as a server does, and counts the bytes that it was sent."""

    def __init__(self) -> None:
        self.output = b""
        self.sent = 0

    async def log(self, message: LogChunk) -> LogOffset:
        self.sent += len(message.data)
        if message.offset > len(self.output):
            self.output = self.output.ljust(message.offset, b"?")
        self.output += message.data[len(self.output) - message.offset :]
        return LogOffset(offset=len(self.output))


class _Client(AgentClient):
    def __init__(self, server: _Server) -> None:
        self.log = server.log  # type: ignore[method-assign]


def test_offsets_go_on_from_where_an_earlier_agent_has_cut_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "7"
    folder.mkdir(parents=True)
    path = folder / "2-1.log"
    path.write_bytes(b"0123456789" * 100)
    server = _Server()
    first = Logs(tmp_path)
    first.inherit()
    ((_, log),) = first._logs.items()
    log.limit = 250
    asyncio.run(first.send(_Client(server), "n", "i"))
    assert server.output == b"0123456789" * 100
    first.tidy(time.monotonic())
    assert path.stat().st_size == 250
    with path.open("ab") as file:
        file.write(b"the end")

    second, server.sent = Logs(tmp_path), 0
    second.inherit()
    assert asyncio.run(second.send(_Client(server), "n", "i"))
    assert server.output == b"0123456789" * 100 + b"the end"
    assert server.sent == 1 + len(b"the end")
    second.tidy(time.monotonic() + RETENTION_S + 1.0)
    assert not folder.exists()


def test_what_is_no_file_of_output_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "7"
    folder.mkdir(parents=True)
    (folder / "2-1.log").mkdir()
    (folder / "notes.log").write_text("mine")
    (tmp_path / "logs" / "other").mkdir()
    logs, server = Logs(tmp_path), _Server()
    logs.inherit()
    assert asyncio.run(logs.send(_Client(server), "n", "i"))
    assert server.sent == 0
    logs.tidy(time.monotonic() + RETENTION_S + 1.0)
    assert (folder / "notes.log").read_text() == "mine"


def test_what_a_job_has_put_beside_its_reports_ends_no_agent(tmp_path: Path) -> None:
    reports = tmp_path / REPORTS / "7"
    make_deep(reports)
    path = tmp_path / "logs" / "7" / "2-1.log"
    path.parent.mkdir(parents=True)
    path.write_text("out")
    logs = Logs(tmp_path)
    logs.inherit()
    assert asyncio.run(logs.send(_Client(_Server()), "n", "i"))
    logs.tidy(time.monotonic() + RETENTION_S + 1.0)
    until(lambda: not reports.exists())
