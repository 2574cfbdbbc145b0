"""Connections on which a request does not become whole, or an answer is not read, are closed: they cost a
file each, and memory, for ever."""

import asyncio
import asyncio.sslproto
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fairlead.cluster.front.request_parser import RequestParser
from fairlead.cluster.shortage import Shortage, is_shortage

REQUEST_TIMEOUT_S = 30.0  # from the connection, or the last answer, to the end of the next request
READ_TIMEOUT_S = 30.0  # for the other end to take some of an answer
# Bytes that are read at once: what is in them, thousands of headers or chunks if it is much, is taken in
# before the event loop does anything else. Over TLS each connection keeps a buffer of that size.
READ_AT_ONCE = 1 << 14
HANDSHAKE_TIMEOUT_S = 10.0  # of TLS: until it is over a connection takes 0.3 MB
_UNFINISHED = (h11.IDLE, h11.SEND_BODY)  # states of who asks, before the end of a request


class TimedH11Protocol(H11Protocol):
    """HTTP/1.1 whose requests have to come within ``REQUEST_TIMEOUT_S``, whose answers have to be read."""

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _put_off = False  # something has come while an answer was not read
    conn: RequestParser

    def __init__(self, config: uvicorn.Config, *given: Any, **named: Any) -> None:
        super().__init__(config, *given, **named)
        self.conn = RequestParser(config.h11_max_incomplete_event_size)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request."""
        super().send_400_response(self.conn.refusal or msg)

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        transport.max_size = READ_AT_ONCE  # of a socket; TLS has its own
        super().connection_made(transport)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        """Take in what has come of it."""
        super().data_received(data)
        self._set_timer()

    def on_response_complete(self) -> None:
        """Begin to wait for the next one."""
        super().on_response_complete()
        self._set_timer()

    def handle_events(self) -> None:
        """Begin to answer what has come; no further request before enough of the last answer has been read,
        or answers would be computed for somebody who does not read."""
        self._put_off = self.flow.write_paused
        if self._put_off:
            self.flow.pause_reading()
            self._unset_keepalive_if_required()
        else:
            super().handle_events()

    def pause_writing(self) -> None:
        """Begin to wait for the other end to read."""
        super().pause_writing()
        self._cancel()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        self._stop_waiting_for_reader()
        super().resume_writing()
        if self._put_off and not self.transport.is_closing():
            self.flow.resume_reading()
            self.handle_events()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._cancel()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    def _set_timer(self) -> None:
        unread = self.flow.write_paused  # which has a time of its own
        if unread or self.conn.their_state not in _UNFINISHED or self.transport.is_closing():
            self._cancel()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class FrontLoop(asyncio.SelectorEventLoop):
    """Servers of this loop wait ``HANDSHAKE_TIMEOUT_S`` for a handshake: uvicorn has no option for that.
    Connections that cannot be accepted for lack of file descriptors are told of once a minute: asyncio tries
    many times a second, with a traceback each time."""

    def __init__(self) -> None:
        super().__init__()
        self._shortage = Shortage()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Take note of what went wrong in a callback."""
        problem = context.get("exception")
        if isinstance(problem, BaseException) and is_shortage(problem):
            self._shortage.log(problem)
        else:
            super().call_exception_handler(context)

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:
        """Return a server that listens."""
        if kwargs.get("ssl") is not None:
            kwargs.setdefault("ssl_handshake_timeout", HANDSHAKE_TIMEOUT_S)
            asyncio.sslproto.SSLProtocol.max_size = READ_AT_ONCE  # 256 kB otherwise
        return await super().create_server(*args, **kwargs)
