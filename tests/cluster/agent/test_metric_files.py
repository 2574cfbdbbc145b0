"""What jobs report is told to the server, also what an agent that was killed has left."""

import asyncio
import os
from pathlib import Path

from fairlead.cluster.agent.metric_files import MetricFiles
from fairlead.cluster.agent.server_client import AgentClient, RefusedError
from fairlead.cluster.protocol.messages import LARGEST_METRICS, LogOffset, MetricChunk


class _Server:
    """Keeps what it is told, as the front does."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], bytes] = {}
        self.calls = 0

    async def metrics(self, message: MetricChunk) -> LogOffset:
        self.calls += 1
        kept = self.kept.get((message.job, message.attempt), b"")
        if message.offset <= len(kept):
            kept += message.data[len(kept) - message.offset :]
        self.kept[message.job, message.attempt] = kept
        return LogOffset(offset=len(kept))


class _Client(AgentClient):
    def __init__(self, server: _Server) -> None:
        self.metrics = server.metrics  # type: ignore[method-assign]


def tell(files: MetricFiles, server: _Server, times: int = 1) -> None:
    for _ in range(times):
        asyncio.run(files.send(_Client(server), "n", "i"))


def write(state: Path, text: bytes, job: int = 7, attempt: int = 2) -> Path:
    path = state / "reports" / str(job) / f"{attempt}-0.metrics"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text)
    return path


def test_whole_lines_are_told_once(tmp_path: Path) -> None:
    files, server = MetricFiles(tmp_path), _Server()
    files.follow(7, 2)
    tell(files, server)
    assert server.calls == 0, "there is no file yet"
    write(tmp_path, b"one\ntw")
    tell(files, server, 2)
    assert server.kept == {(7, 2): b"one\n"}
    write(tmp_path, b"o\n")
    tell(files, server, 2)
    assert server.kept == {(7, 2): b"one\ntwo\n"}
    assert server.calls == 2


def test_an_agent_that_is_started_anew_tells_what_the_one_before_left(tmp_path: Path) -> None:
    server = _Server()
    write(tmp_path, b"one\n")
    first = MetricFiles(tmp_path)
    first.inherit()
    tell(first, server)
    write(tmp_path, b"two\n")
    write(tmp_path, b"other\n", job=8, attempt=1)
    second = MetricFiles(tmp_path)
    second.inherit()
    tell(second, server, 2)
    assert server.kept == {(7, 2): b"one\ntwo\n", (8, 1): b"other\n"}


def test_a_server_that_has_less_is_told_again(tmp_path: Path) -> None:
    files, server = MetricFiles(tmp_path), _Server()
    files.follow(7, 2)
    write(tmp_path, b"one\n")
    tell(files, server)
    server.kept.clear()  # an older copy of its state
    write(tmp_path, b"two\n")
    tell(files, server, 2)
    assert server.kept == {(7, 2): b"one\ntwo\n"}


def test_much_is_told_in_pieces_and_a_line_without_end_holds_up_nothing(tmp_path: Path) -> None:
    files, server = MetricFiles(tmp_path), _Server()
    files.follow(7, 2)
    text = b"x" * (LARGEST_METRICS + 10) + b"\n" + b"good\n" * 3 * LARGEST_METRICS
    write(tmp_path, text)
    assert not asyncio.run(files.send(_Client(server), "n", "i")), "there is more to tell"
    assert LARGEST_METRICS < len(server.kept[7, 2]) < len(text), "others have their turn"
    while not asyncio.run(files.send(_Client(server), "n", "i")):
        pass
    assert server.kept[7, 2] == text


def test_what_is_no_file_of_reports_is_left_alone(tmp_path: Path) -> None:
    files, server = MetricFiles(tmp_path), _Server()
    path = write(tmp_path, b"secret\n")
    link = path.with_name("3-0.metrics")
    link.symlink_to(path)
    os.mkfifo(path.with_name("4-0.metrics"))
    path.with_name("5-0.metrics").mkdir()
    path.with_name("6-1.metrics").write_text("of another rank\n")
    (tmp_path / "reports" / "x").mkdir()
    files.inherit()
    tell(files, server)
    assert server.kept == {(7, 2): b"secret\n"}


def test_a_server_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    class _Refusing(_Server):
        async def metrics(self, message: MetricChunk) -> LogOffset:
            self.calls += 1
            raise RefusedError("no such call")

    files, server = MetricFiles(tmp_path), _Refusing()
    files.follow(7, 2)
    write(tmp_path, b"one\n")
    tell(files, server, 3)
    assert server.calls == 1


def test_a_file_that_is_written_anew_is_told_each_time(tmp_path: Path) -> None:
    """Nothing more was told until it was longer than before, and then from the middle of a line."""
    files, server = MetricFiles(tmp_path), _Server()
    files.follow(7, 2)
    path = write(tmp_path, b"step 10\n")
    tell(files, server, 2)
    for text in (b"step 11\n", b"one 12\n", b"step 13 is long\n", b"step 13 is long\nstep 14\n"):
        path.write_bytes(text)
        tell(files, server, 2)
    path.write_bytes(b"")  # it is about to be written
    tell(files, server)
    path.write_bytes(b"step 15\n")
    tell(files, server, 2)
    assert server.kept[7, 2].split(b"\n")[:-1] == [
        b"step 10", b"step 11", b"one 12", b"step 13 is long", b"step 14", b"step 15",
    ]  # fmt: skip


def test_a_file_written_anew_that_an_agent_before_has_told_is_told_as_it_is(tmp_path: Path) -> None:
    server = _Server()
    path = write(tmp_path, b"one\ntwo\n")
    first = MetricFiles(tmp_path)
    first.inherit()
    tell(first, server)
    path.write_bytes(b"six\n")
    second = MetricFiles(tmp_path)
    second.inherit()
    tell(second, server, 2)
    assert server.kept == {(7, 2): b"one\ntwo\nsix\n"}
    server.kept[7, 2] = b"one\n"  # an older copy of its state
    tell(second, server, 2)
    write(tmp_path, b"ten\n")
    tell(second, server, 2)
    assert server.kept[7, 2].endswith(b"six\nten\n")


def test_the_last_line_needs_no_newline_once_the_program_has_ended(tmp_path: Path) -> None:
    files, server = MetricFiles(tmp_path), _Server()
    files.follow(7, 2)
    write(tmp_path, b"one\ntwo")
    tell(files, server, 2)
    assert server.kept == {(7, 2): b"one\n"}
    assert not files.has_untold(7)
    files.end((7, 2))
    assert files.has_untold(7)
    tell(files, server, 3)
    assert server.kept == {(7, 2): b"one\ntwo\n"}
    assert not files.has_untold(7)
    again = MetricFiles(tmp_path)
    again.inherit()
    tell(again, server, 3)
    assert server.kept == {(7, 2): b"one\ntwo\n"}
