"""A receiver of notices, for tests of the webhook."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from fairlead.cluster.server.webhook import Webhook

SECRET = b"sixteen bytes and more"


class Receiver:
    """What is posted to it, answered as a test says."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []  # the next ones; then 204
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((dict(self.headers), body))
                code = outer.answers.pop(0) if outer.answers else 204
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.webhook = Webhook(f"http://127.0.0.1:{self.server.server_port}/hook", SECRET)

    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [notice["job"] for notice in self.notices() if notice["kind"] == kind]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """The receiver listens beside the block."""
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
