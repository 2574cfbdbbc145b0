"""The newest ``log_bytes`` of a rank's output are kept, also where it comes faster than it can be told."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairlead.cluster.agent.launch import log_path
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.protocol.messages import Assignment, LogChunk, Rank
from fairlead.cluster.store.log_store import TAIL, LogStore

ORDER = Assignment(
    job=1, attempt=1, command=("x",), env={}, cwd="", checkpoint_dir="", world_size=1,
    ranks=(Rank(rank=0, devices=(0,)),), log_bytes=1_000,
)  # fmt: skip


def test_output_that_is_cut_before_it_is_told_is_kept_as_it_is_said(tmp_path: Path) -> None:
    logs, path = Logs(tmp_path), log_path(tmp_path, 1, 1, 0)
    path.parent.mkdir(parents=True)
    logs.follow(ORDER)
    output = "".join(f"{number:04}" for number in range(600))
    path.write_text(output)
    logs.tidy(1.0)
    assert path.stat().st_size == 1_000
    store = LogStore(tmp_path / "server")

    async def log(chunk: LogChunk) -> Any:
        return SimpleNamespace(offset=store.put(chunk, ORDER.log_bytes))

    client: Any = SimpleNamespace(log=log)
    asyncio.run(logs.send(client, "n", "i"))
    assert store.read(1, TAIL, 10_000)[0] == output[-1_000:]
