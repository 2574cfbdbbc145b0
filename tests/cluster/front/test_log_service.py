"""Output is kept of an attempt only as its own nodes tell it."""

import asyncio
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.front.logs import LogService
from fairlead.cluster.protocol.messages import LogChunk


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
