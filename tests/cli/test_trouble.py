"""Lists of a server that cannot write its state, or is halted, say so above the table."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from fairlead.cli.main import main
from fairlead.cluster.protocol.api_models import StatusView

FULL = "state/state.db: cannot be written (database or disk is full)"
OLD = "node a knows of commit 9"


class _Server(BaseHTTPRequestHandler):
    """A cluster without jobs and nodes, in trouble."""

    def do_GET(self) -> None:
        status = StatusView(
            version="0", now_s=1.0, policy="las", profile="default", round=1, round_s=1.0,
            round_ends_in_s=None, jobs={}, devices={}, solve="", solve_s=0.0, decide_s=0.0,
            journal_records=0, tenants=(), unwritable=FULL, halted=OLD,
        )  # fmt: skip
        body = msgspec.json.encode(status if self.path == "/v1/status" else [])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("command", ["jobs", "nodes", "status"])
def test_lists_name_why_nothing_goes_on(
    url: str, capsys: pytest.CaptureFixture[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "t")
    with contextlib.suppress(SystemExit):
        main((command, "--server", url))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"HALTED: {OLD}", f"NOTHING IS WRITTEN DOWN: {FULL}"]
