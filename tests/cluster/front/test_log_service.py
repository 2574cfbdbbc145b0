"""Output is kept of an attempt only as its own nodes tell it."""

import asyncio
import errno
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.front.logs import LoggedAttempt, LogService
from fairlead.cluster.protocol.messages import LogChunk
from fairlead.cluster.store.log_store import LogStore
from fairlead.errors import StoreError


@pytest.mark.parametrize(
    "wrong", [{"node": "b"}, {"attempt": 2}, {"rank": 1}, {"job": 7}, {"rank": 1 << 40}]
)
def test_output_of_others_is_not_kept(tmp_path: Path, wrong: dict[str, int | str]) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        job = cluster.submit()
        cluster.until(lambda: (job, 1) in node.statuses, "its order, which is durable")
        logs = LogService(tmp_path)
        right = {"node": "a", "incarnation": "one.1", "job": job, "attempt": 1, "rank": 0}

        def put(data: bytes, offset: int, **more: int | str) -> int:
            chunk = LogChunk(**(right | more), offset=offset, data=data)  # type: ignore[arg-type]
            return asyncio.run(logs.put(chunk)).offset

        assert put(b"mine\n", 0) == 5
        assert put(b"theirs\n", 1000, **wrong) == 1007  # it would wipe what is kept, or add to it
        assert put(b"more\n", 5) == 10
        assert logs.read(ADMIN, job, "", 100)[0] == "mine\nmore\n"
        logs.close()


def test_output_that_the_disk_has_no_room_for_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it raised was a traceback in the log, with each try."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "logs/1/1-0.0.log")

    logs = LogService(tmp_path)
    chunk = LogChunk(node="a", incarnation="a.1", job=1, attempt=1, rank=0, offset=0, data=b"x")
    monkeypatch.setattr(logs, "find_attempt", lambda _: LoggedAttempt(("a",), 100))
    monkeypatch.setattr(LogStore, "put", full)
    with pytest.raises(StoreError, match="output of jobs cannot be written: No space left on"):
        asyncio.run(logs.put(chunk))
    logs.close()


def test_of_a_gang_each_node_tells_the_output_of_its_own_ranks(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2)
        cluster.until(lambda: all((job, 1) in node.statuses for node in nodes))
        attempt = cluster.service.engine.state.registry.newest(job)
        assert attempt is not None
        node_of = {rank.rank: name for name, ranks in attempt.nodes.items() for rank in ranks}
        assert sorted(node_of.values()) == ["a", "b"]
        logs = LogService(tmp_path)

        def put(node: str, rank: int, data: bytes, offset: int = 0) -> None:
            chunk = LogChunk(
                node=node,
                incarnation="one.1",
                job=job,
                attempt=1,
                rank=rank,
                offset=offset,
                data=data,
            )
            asyncio.run(logs.put(chunk))

        for rank, node_name in node_of.items():
            put(node_name, rank, b"mine\n")
        for rank in node_of:
            put(node_of[1 - rank], rank, b"forged\n", 100)
        text = logs.read(ADMIN, job, "", 1000)[0]
        assert text.count("mine") == 2
        assert "forged" not in text
        logs.close()
