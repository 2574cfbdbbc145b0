"""The parser of HTTP requests, without what takes the time of the event loop out of all proportion to its
size: a head of thousands of lines, and a body in chunks, of which each may be a byte."""

import re
from typing import Any

import h11

MAX_LINES = 200  # of the head of a request
_END_OF_HEAD = re.compile(rb"\n\r?\n")


class RequestParser(h11.Connection):
    """The server's end of a connection. Raises h11.RemoteProtocolError for what it refuses; ``refusal`` says
    why then."""

    def __init__(self, most_bytes: int | None = None) -> None:
        """most_bytes: of the head of a request."""
        super().__init__(h11.SERVER, *(() if most_bytes is None else (most_bytes,)))
        self.refusal = ""

    def next_event(self) -> Any:
        """Return what comes next. Raises h11.RemoteProtocolError."""
        if self.their_state is h11.IDLE:
            data, _ = self.trailing_data
            end = _END_OF_HEAD.search(data)
            if data.count(b"\n", 0, end.start() if end else len(data)) > MAX_LINES:
                self._refuse(f"the request: has more than {MAX_LINES} header lines")
        event = super().next_event()
        if isinstance(event, h11.Request) and any(
            name == b"transfer-encoding" for name, _ in event.headers
        ):
            self._refuse("Transfer-Encoding: a body is taken with its Content-Length only")
        return event

    def _refuse(self, why: str) -> None:
        self.refusal = why
        raise h11.RemoteProtocolError(why)
