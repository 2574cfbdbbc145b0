"""What a job without the iterator says of its progress."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import (
    RunningAgent,
    Server,
    plain,
)
from tests.cluster.agent.conftest import Play

from fairlead.cluster.agent.progress_reader import (
    MAX_BYTES,
    ProgressError,
    ProgressFile,
    UnansweredError,
    ask_progress,
    parse_progress,
)
from fairlead.cluster.protocol.messages import AttemptStatus, Rank
from fairlead.cluster.protocol.progress_url import ProgressAddress, parse_progress_url

TOTAL = 2000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1234\n", (1234, -1)),
        ("1234 1000", (1234, 1000)),
        ("37.5%", (750, -1)),
        ("50% 25%", (1000, 500)),
        ("12.9", (12, -1)),
        ("1\n2\n3\n", (3, -1)),
        ("10 20", (10, 10)),
        ('{"step": 12, "saved_step": 10, "loss": 0.3}', (12, 10)),
        ('{"step": "50%"}', (1000, -1)),
        (" \n", None),
        (str(1 << 53), (TOTAL, -1)),
        (f"{TOTAL + 1} {TOTAL + 1}", (TOTAL, TOTAL)),
    ],
)
def test_progress_is_steps_or_a_part_of_them(text: str, expected: object) -> None:
    assert parse_progress(text, TOTAL) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "nan",
            "inf",
            "-1",
            "1e3",
            "1_000",
            "99999999999999999999",
            "9" * 17,
            "101%",
            "x",
            "1 2 3",
        ),
        *(
            "\u0661",
            "\x00",
            '{"step": -1}',
            '{"step": true}',
            '{"steps": 1}',
            "{",
            "5 -1",
            "9999999999999999",
        ),
    ],
)
def test_what_is_no_progress_is_refused(text: str) -> None:
    with pytest.raises(ProgressError):
        parse_progress(text, TOTAL)


def test_a_file_is_read_when_it_has_changed_and_its_end_only(tmp_path: Path) -> None:
    path = tmp_path / "p"
    file = ProgressFile(path)
    assert file.news() == ""
    path.write_text("5\n")
    assert (file.news(), file.news()) == ("5\n", "")
    path.write_text("7\n" * MAX_BYTES + "88\n")
    told = file.news()
    assert len(told) == MAX_BYTES
    assert parse_progress(told, TOTAL) == (88, -1)


def test_what_is_no_file_neither_blocks_nor_misleads(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("5")
    make: dict[str, Callable[[Path], object]] = {
        "pipe": lambda path: os.mkfifo(path),
        "link": lambda path: path.symlink_to(tmp_path / "real"),
        "folder": lambda path: path.mkdir(),
    }
    for name, made in make.items():
        made(tmp_path / name)
        with pytest.raises(ProgressError, match="is not a regular file"):
            ProgressFile(tmp_path / name).news()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/p?a=b",
        "http://localhost:{port}/",
        "http://[::1]",
        "http://127.9.9.9/",
    ],
)
def test_a_url_is_of_the_loopback(url: str) -> None:
    assert parse_progress_url(url, 7777).port in (8000, 7777, 80)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "http://10.0.0.1/",
        "http://example.com/",
        "http://a@127.0.0.1/",
        "x",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1/ HTTP/1.0",
        "http://[::1",
        "http://127.0.0.1/\r\nX: y",
        "http://127.0.0.1/" + "a" * 3000,
        "file:///etc/passwd",
    ],
)
def test_no_other_is_asked(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be|is no URL"):
        parse_progress_url(url)


def _ask(answer: bytes, delay_s: float = 0.0) -> str:
    """What is heard of an endpoint that answers with these bytes."""

    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await asyncio.sleep(delay_s)
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        done.set()

    async def play() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            try:
                return await ask_progress(ProgressAddress("127.0.0.1", port, "/p"))
            finally:
                await done.wait()

    return asyncio.run(play())


def test_an_endpoint_answers() -> None:
    assert _ask(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n12") == "12"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n34\r\n0\r\n\r\n"
    assert _ask(chunked) == "34"


@pytest.mark.parametrize(
    ("answer", "delay_s", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", 0.0, "status 302"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", 0.0, "status 404"),
        (b"hello", 0.0, "expected HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + b"1" * 99_999, 0.0, "at most"),
        (b"HTTP/1.1 200 OK\r\n\r\n1", 1.5, "did not answer within 1 s"),
    ],
)
def test_one_that_does_not_do_so_well_is_not_believed(
    answer: bytes, delay_s: float, why: str
) -> None:
    with pytest.raises(ProgressError, match=why):
        _ask(answer, delay_s)


def test_nobody_need_listen() -> None:
    with pytest.raises(UnansweredError, match="cannot be reached"):
        asyncio.run(ask_progress(parse_progress_url("http://127.0.0.1:1/")))


# --- a real agent ----------------------------------------------------------------------------------
WRITES = 'echo "$0" > "$FAIRLEAD_PROGRESS_FILE"; trap "exit 0" TERM; sleep 1000 & wait'


def _until_held(
    server: Server, key: tuple[int, int], good: Callable[[AttemptStatus], bool]
) -> Awaitable[AttemptStatus]:
    async def wait() -> AttemptStatus:
        await server.until(lambda: key in server.statuses and good(server.statuses[key]))
        return server.statuses[key]

    return wait()


def test_a_job_tells_its_steps_in_a_file(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        script = (
            'echo "10 5" > "$FAIRLEAD_PROGRESS_FILE"; sleep 2; echo "40 30" > "$FAIRLEAD_PROGRESS_FILE";'
            ' trap \'echo "41 41" > "$FAIRLEAD_PROGRESS_FILE"; kill $!; exit 0\' TERM; sleep 1000 & wait'
        )
        await server.order(plain(401, "bash", "-c", script, total_steps=TOTAL))
        first = await _until_held(server, (401, 1), lambda h: h.step >= 0)
        assert (first.step, first.loaded_step, first.saved_step) in ((10, 10, 5), (40, 40, 30))
        told = await _until_held(server, (401, 1), lambda h: h.step == 40)
        assert (told.loaded_step, told.saved_step) == (first.loaded_step, 30)
        assert told.step_age_s >= 0
        await server.order()
        ended = await server.until_state((401, 1), "ended")
        assert (ended.step, ended.saved_step, ended.exit_code) == (41, 41, 0)
        assert not ended.completed

    play(scenario)


def test_rubbish_is_told_once_and_the_job_goes_on(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        script = 'mkfifo "$FAIRLEAD_PROGRESS_FILE"; exec sleep 1000'
        second = plain(403, "bash", "-c", WRITES, "nan", ranks=(Rank(rank=0, devices=(1,)),))
        await server.order(plain(402, "bash", "-c", script), second)
        fifo = await server.until_output(402, "is not used")
        assert "FAIRLEAD_PROGRESS_FILE: is not a regular file" in fifo
        words = await server.until_output(403, "is not used")
        assert "expected a number of steps, or of per cent, got 'nan'" in words
        seen = server.reports
        await server.until(lambda: server.reports > seen + 10)  # two more looks at it
        for key in ((402, 1), (403, 1)):
            assert server.statuses[key].state == "running"
            assert server.statuses[key].step == -1
            assert server.output[*key, 0].count(b"is not used") == 1

    play(scenario)


SERVES = """
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"step": 77, "saved_step": 70}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
port = int(os.environ["FAIRLEAD_PROGRESS_PORT"])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_a_job_answers_how_far_it_is(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(
            plain(
                404, sys.executable, "-c", SERVES, progress_url="http://127.0.0.1:{port}/progress"
            )
        )
        told = await _until_held(server, (404, 1), lambda h: h.step >= 0)
        assert (told.step, told.saved_step) == (77, 70)

    play(scenario)
