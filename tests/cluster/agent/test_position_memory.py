"""What an agent remembers of how far the state of its cluster had come."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from fairlead.cluster.agent import position_memory
from fairlead.cluster.agent.position_memory import NAME, PositionMemory
from fairlead.cluster.protocol.messages import StorePosition

POSITION = StorePosition(cluster="a", timeline=1, run=2, run_id="r", commit=7, time_s=1.8e9)


def read(state: Path) -> StorePosition | None:
    memory = PositionMemory(state)
    memory.read()
    return memory.position


def test_the_latest_position_outlives_the_agent(tmp_path: Path) -> None:
    memory = PositionMemory(tmp_path)
    memory.read()
    assert memory.position is None
    for commit in (7, 9, 8):  # answers may come late
        memory.update(msgspec.structs.replace(POSITION, commit=commit), urgent=False)
    memory.update(None, urgent=False)
    memory.write()
    found = read(tmp_path)
    assert found == msgspec.structs.replace(POSITION, commit=9)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_later_timeline_and_another_cluster_replace_it(tmp_path: Path) -> None:
    memory = PositionMemory(tmp_path)
    later = msgspec.structs.replace(POSITION, timeline=2, commit=1)
    other = msgspec.structs.replace(POSITION, cluster="b", commit=1)
    for told, known in ((POSITION, POSITION), (later, later), (POSITION, later), (other, other)):
        memory.update(told, urgent=False)
        assert memory.position == known


def test_what_a_server_told_that_halted_is_given_up(tmp_path: Path) -> None:
    memory = PositionMemory(tmp_path)
    older = msgspec.structs.replace(POSITION, run=3, run_id="old")
    for told in (POSITION, older, msgspec.structs.replace(older, commit=9)):
        memory.update(told, urgent=False)
    for _ in range(2):
        memory.disown_run("old")
        assert (memory.position, memory.halted_runs) == (POSITION, ("old",))
    memory.disown_run("")
    memory.disown_run("another")
    memory.write()
    again = PositionMemory(tmp_path)
    again.read()
    assert (again.position, again.halted_runs) == (POSITION, ("old", "another"))


def test_it_is_written_at_once_with_new_orders_and_soon_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def written(memory: PositionMemory, position: StorePosition) -> None:
        async with asyncio.timeout(60.0):
            while read(tmp_path) != position:
                await asyncio.sleep(0.01)

    async def main() -> None:
        memory = PositionMemory(tmp_path)
        keeping = asyncio.create_task(memory.write_changes())
        memory.update(
            None, urgent=True
        )  # pushed orders; the answer to the next report tells of one
        memory.update(POSITION, urgent=False)
        await written(memory, POSITION)
        keeping.cancel()
        monkeypatch.setattr(position_memory, "WRITE_INTERVAL_S", 0.05)
        later = msgspec.structs.replace(POSITION, commit=8)
        memory.update(later, urgent=False)
        keeping = asyncio.create_task(memory.write_changes())
        await written(memory, later)
        keeping.cancel()

    monkeypatch.setattr(position_memory, "WRITE_INTERVAL_S", 3600.0)
    asyncio.run(main())


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00", b"[]", msgspec.json.encode(POSITION)[:-9], b"[" * 5000]
)
def test_what_cannot_be_read_counts_as_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    memory = PositionMemory(tmp_path)
    memory.read()
    assert memory.position is None
    memory.update(POSITION, urgent=False)
    memory.write()
    assert read(tmp_path) == POSITION


def test_a_disk_that_refuses_it_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = PositionMemory(tmp_path / "gone")
    with caplog.at_level(logging.WARNING):
        for commit in (7, 8):
            memory.update(msgspec.structs.replace(POSITION, commit=commit), urgent=False)
            memory.write()
    assert [record.message.count("cannot be written") for record in caplog.records] == [1]
    (tmp_path / "gone").mkdir()
    memory.write()
    assert read(tmp_path / "gone") == memory.position


def test_what_a_server_told_before_it_halted_may_come_late(tmp_path: Path) -> None:
    memory = PositionMemory(tmp_path)
    older = msgspec.structs.replace(POSITION, run=3, run_id="old")
    for told in (POSITION, older):
        memory.update(told, urgent=False)
    memory.disown_run("old")
    memory.update(older, urgent=False)
    assert memory.position == POSITION
    memory.update(msgspec.structs.replace(POSITION, run=4, run_id="new"), urgent=False)
    assert memory.position is not None
    assert memory.position.run_id == "new"
