from pathlib import Path

import pytest

from fairlead.cluster.protocol.messages import LogChunk
from fairlead.cluster.store.log_store import LogStore
from fairlead.errors import InputError


def _piece(offset: int, data: bytes, epoch: int = 1, rank: int = 0) -> LogChunk:
    return LogChunk(
        node="a", incarnation="x", job=7, epoch=epoch, rank=rank, offset=offset, data=data
    )


def test_pieces_may_come_twice_and_out_of_order(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    assert logs.put(_piece(0, b"abc"), 100) == 3
    assert logs.put(_piece(0, b"abc"), 100) == 3
    assert logs.put(_piece(1, b"bcdef"), 100) == 6
    assert logs.read(7, "", 100) == ("abcdef", "1-0:6")


def test_a_gap_begins_anew(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"abc"), 100)
    assert logs.put(_piece(10, b"klm"), 100) == 13
    assert logs.read(7, "", 100) == ("klm", "1-0:13")


def test_the_newest_bytes_are_kept(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    offset = 0
    for _ in range(100):
        offset = logs.put(_piece(offset, b"0123456789"), 50)
    text, cursor = logs.read(7, "", 1000)
    assert 50 <= len(text) <= 100
    assert cursor == "1-0:1000"
    assert sum(f.stat().st_size for f in (tmp_path / "7").iterdir()) <= 110


def test_all_ranks_are_followed(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"one\n"), 100)
    logs.put(_piece(0, b"two\n", rank=1), 100)
    text, cursor = logs.read(7, "", 100)
    assert text == "--- start 1, rank 0 ---\none\n--- start 1, rank 1 ---\ntwo\n"
    logs.put(_piece(4, b"more\n"), 100)
    logs.put(_piece(0, b"next\n", epoch=2), 100)
    text, cursor = logs.read(7, cursor, 100)
    assert text == "more\n--- start 2, rank 0 ---\nnext\n"
    assert logs.read(7, cursor, 100) == ("", cursor)


def test_the_tail_is_of_the_newest_start(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"old\n"), 100)
    logs.put(_piece(0, b"0123456789", epoch=2), 100)
    assert logs.read(7, "tail", 4) == ("6789", "2-0:10")
    assert logs.read(8, "tail", 4) == ("", "")


@pytest.mark.parametrize("cursor", ["x", "1-0", "1-0:-1", "../1", "1-0:9" * 99])
def test_a_strange_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(InputError, match="cursor"):
        LogStore(tmp_path).read(7, cursor, 10)
