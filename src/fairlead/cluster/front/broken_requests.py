"""Requests that are no HTTP: what is logged of them."""

import logging

import h11


class BrokenRequests(logging.Filter):
    """Of a request that breaks off or is malformed while it is answered no traceback is logged: whoever
    sent it is told, and the server is well. To be added to the logger of the HTTP server."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        problem = record.exc_info[1] if record.exc_info else None
        return not isinstance(problem, h11.ProtocolError)
