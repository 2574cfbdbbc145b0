import os
from pathlib import Path

import pytest

from fairlead.cluster.protocol.messages import LogChunk
from fairlead.cluster.store import log_store
from fairlead.cluster.store.log_store import LogStore
from fairlead.errors import InputError


def _piece(offset: int, data: bytes, attempt: int = 1, rank: int = 0) -> LogChunk:
    return LogChunk(
        node="a", incarnation="x", job=7, attempt=attempt, rank=rank, offset=offset, data=data
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


def test_the_newest_bytes_of_all_attempts_together_are_kept(tmp_path: Path) -> None:
    """A job that failed again and again had as many bytes kept of each attempt, which filled the disk."""
    logs = LogStore(tmp_path)
    for attempt in range(1, 31):
        for offset in range(0, 90, 10):
            logs.put(_piece(offset, b"%09d\n" % (100 * attempt + offset), attempt), 50)
            assert sum(f.stat().st_size for f in (tmp_path / "7").glob("*-0.*.log")) <= 100
        logs.put(_piece(0, b"short\n", attempt, rank=1), 50)
    text, cursor = logs.read(7, "", 1000)
    lines = [line for line in text.splitlines() if line.isdecimal()]
    assert [int(line) for line in lines[-5:]] == [3040, 3050, 3060, 3070, 3080]
    assert "30-0:90" in cursor
    logs.put(_piece(0, b"last\n", attempt=31), 50)
    text, _ = logs.read(7, "", 1000)
    assert 8 <= text.count("short\n") <= 16, "each rank has its own"
    assert "000003080\n" in text, "a short attempt does not drive out the one before"


def test_of_attempts_that_say_little_only_so_many_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_store, "MAX_FILES", 5)
    logs = LogStore(tmp_path)
    for attempt in range(1, 12):
        logs.put(_piece(0, b"x\n", attempt), 1000)
    assert len(list((tmp_path / "7").iterdir())) == 5
    assert logs.read(7, "", 1000)[0].startswith("--- attempt 7, rank 0 ---\nx\n")


def test_what_comes_late_of_an_attempt_whose_file_is_gone_does_no_harm(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    assert logs.put(_piece(0, b"old\n"), 10) == 4
    logs.put(_piece(0, b"0123456789abcdefghi\n", attempt=2), 10)
    assert logs.put(_piece(4, b"late output\n"), 10) == 16
    assert logs.read(7, "", 1000) == ("abcdefghi\n", "2-0:20")


def test_output_that_is_cut_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"0123456789"), 10)
    found = logs._files

    def outdated(job: int) -> list[log_store._LogFile]:
        files = found(job)
        monkeypatch.setattr(logs, "_files", found)
        logs.put(_piece(10, b"abcdefghij!"), 10)
        return files

    monkeypatch.setattr(logs, "_files", outdated)
    assert logs.read(7, "", 100) == ("bcdefghij!", "1-0:21")


def test_all_ranks_are_followed(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"one\n"), 100)
    logs.put(_piece(0, b"two\n", rank=1), 100)
    text, cursor = logs.read(7, "", 100)
    assert text == "--- attempt 1, rank 0 ---\none\n--- attempt 1, rank 1 ---\ntwo\n"
    logs.put(_piece(4, b"more\n"), 100)
    logs.put(_piece(0, b"next\n", attempt=2), 100)
    text, cursor = logs.read(7, cursor, 100)
    assert text == "--- attempt 1, rank 0 ---\nmore\n--- attempt 2, rank 0 ---\nnext\n"
    assert logs.read(7, cursor, 100) == ("", cursor)


def test_a_rank_is_named_wherever_its_output_goes_on(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"a"), 100)
    text, cursor = logs.read(7, "", 100)
    assert text == "a"
    logs.put(_piece(1, b"b"), 100)
    logs.put(_piece(0, b"x\n", rank=1), 100)
    text, cursor = logs.read(7, cursor, 100)
    assert (text, cursor) == ("b\n--- attempt 1, rank 1 ---\nx\n", "1-0:2,1-1:2")
    logs.put(_piece(2, b"y\n", rank=1), 100)
    text, cursor = logs.read(7, cursor, 100)
    assert text == "y\n", "the same rank goes on"
    logs.put(_piece(2, b"c\n"), 100)
    text, cursor = logs.read(7, cursor, 100)
    assert (text, cursor) == ("--- attempt 1, rank 0 ---\nc\n", "1-1:4,1-0:4")
    text, _ = logs.read(7, "tail", 100)
    assert text.count("---\n") == 2


def test_the_tail_is_of_the_newest_start(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"old\n"), 100)
    logs.put(_piece(0, b"0123456789", attempt=2), 100)
    assert logs.read(7, "tail", 4) == ("6789", "2-0:10")
    assert logs.read(8, "tail", 4) == ("", "")


@pytest.mark.parametrize("cursor", ["x", "1-0", "1-0:-1", "../1", "1-0:9" * 99])
def test_a_strange_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(InputError, match="cursor"):
        LogStore(tmp_path).read(7, cursor, 10)


GREEK = "αβγ εὖ ∀𝔸 ok\n" * 5


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 64])
def test_characters_at_the_border_of_pieces_stay_whole(tmp_path: Path, limit: int) -> None:
    logs = LogStore(tmp_path)
    data, text, cursor = GREEK.encode(), "", ""
    for i in range(len(data)):
        logs.put(_piece(i, data[i : i + 1]), 10_000)
        piece, cursor = logs.read(7, cursor, limit)
        text += piece
    while piece:
        piece, cursor = logs.read(7, cursor, limit)
        text += piece
    assert text == GREEK
    assert cursor == f"1-0:{len(data)}"


def test_a_character_that_never_becomes_whole_is_shown_once_nothing_more_comes(
    tmp_path: Path,
) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"ab\xe2\x88"), 100)
    assert logs.read(7, "", 100) == ("ab", "1-0:2")
    (file,) = (tmp_path / "7").iterdir()
    os.utime(file, (1.0, 1.0))
    assert logs.read(7, "1-0:2", 100) == ("\ufffd", "1-0:4")


def test_what_begins_inside_a_character_begins_with_the_next_one(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    data = ("é" * 20).encode()
    logs.put(_piece(0, data), 1000)
    assert logs.read(7, "tail", 7) == ("ééé", "1-0:40")
    logs.put(_piece(101, data[1:]), 1000)  # the agent has cut its file inside a character
    assert logs.read(7, "1-0:40", 1000) == ("é" * 19, "1-0:140")


def test_what_is_no_text_is_shown_with_replacements(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.put(_piece(0, b"a\xffb\xbf\n"), 100)
    assert logs.read(7, "", 100) == ("a\ufffdb\ufffd\n", "1-0:5")
