"""Requests that are no HTTP: what is logged of them."""

import logging

import h11


class BrokenRequests(logging.Filter):
    """Filter for the logger of the HTTP server. It drops tracebacks of requests that break off or are
    malformed while they are answered: the sender is told, and the server is well."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it is logged."""
        problem = record.exc_info[1] if record.exc_info else None
        return not isinstance(problem, h11.ProtocolError)
