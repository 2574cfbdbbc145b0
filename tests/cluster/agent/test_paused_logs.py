"""Output of programs that are stopped as they are and go on as another attempt: the file stays the same."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fairlead.cluster.agent.launch import log_path
from fairlead.cluster.agent.logs import RETENTION_S, Logs
from fairlead.cluster.protocol.messages import Assignment, LogChunk, Rank

ORDER = Assignment(
    job=1, attempt=1, command=("x",), env={}, cwd="", checkpoint_dir="", world_size=1,
    ranks=(Rank(rank=0, devices=(0,)),), unmanaged=True, suspend=True, log_bytes=10,
)  # fmt: skip


class Server:
    """Keeps the output of each attempt."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}

    async def log(self, chunk: LogChunk) -> Any:
        known = self.kept.setdefault(chunk.attempt, b"")
        assert chunk.offset >= len(known)
        self.kept[chunk.attempt] = known.ljust(chunk.offset, b".") + chunk.data
        return SimpleNamespace(offset=chunk.offset + len(chunk.data))


def test_each_attempt_has_its_own_part_of_the_file(tmp_path: Path) -> None:
    logs, server, path = Logs(tmp_path), Server(), log_path(tmp_path, 1, 1, 0)
    path.parent.mkdir(parents=True)

    def send() -> None:
        client: Any = server
        asyncio.run(logs.send(client, "n", "i"))

    logs.follow(ORDER)
    path.write_bytes(b"first")
    logs.pause(1, 1)
    logs.forget(1, 1, 0.0)
    logs.tidy(2 * RETENTION_S)
    assert path.exists(), "it is parked, and goes on with this file"
    logs.follow(replace(ORDER, attempt=2, resumes=1))
    logs.resume(replace(ORDER, attempt=2, resumes=1), 1)
    with path.open("ab") as file:
        file.write(b" second")
    send()
    assert server.kept == {1: b"first", 2: b" second"}
    assert logs.tail(1, 2, 0) == ("first second", "")
    logs.tidy(2 * RETENTION_S)
    assert path.exists(), "the second one has it"
    with path.open("ab") as file:
        file.write(b" and a long third part")
    send()
    logs.tidy(2 * RETENTION_S)  # it is cut
    with path.open("ab") as file:
        file.write(b", end")
    send()
    assert server.kept[2] == b" second and a long third part, end"
    logs.forget(1, 2, 3 * RETENTION_S)
    logs.tidy(5 * RETENTION_S)
    assert not path.exists()


def test_the_file_of_a_program_that_ended_while_it_was_parked_goes(tmp_path: Path) -> None:
    logs, path = Logs(tmp_path), log_path(tmp_path, 1, 1, 0)
    path.parent.mkdir(parents=True)
    logs.follow(ORDER)
    path.write_bytes(b"first")
    logs.pause(1, 1)
    logs.forget(1, 1, 0.0)
    logs.release(1, 1)
    logs.tidy(2 * RETENTION_S)
    assert not path.exists()
