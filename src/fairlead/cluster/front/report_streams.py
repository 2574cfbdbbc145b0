"""The streams in which nodes report, of each node the newest.

A stream waits for its next report all the time, and gRPC keeps what has come of one that is not whole. So
what may be kept is bounded by the nodes, not by the streams that somebody opens.
"""

import asyncio
from collections.abc import Awaitable, Callable

from fairlead.cluster.front.facade import TooManyError


class ReportStreams:
    """Used on one thread (the event loop's)."""

    def __init__(self) -> None:
        self.of_node: dict[str, NodeStream] = {}

    def open(self) -> "NodeStream":
        """Return the stream that the current task answers."""
        return NodeStream(self.of_node)


class NodeStream:
    """A context manager: in the block the stream counts as one of its node."""

    def __init__(self, of_node: "dict[str, NodeStream]") -> None:
        self._of_node = of_node
        self._node = ""
        self._is_replaced = False
        self._waiting: asyncio.Task[object] | None = None  # for the next report

    def reported(self, node: str) -> None:
        """A report of this node came in this stream, and was in order: any other stream of it ends."""
        before = self._of_node.get(node)
        if before is self:
            return
        self._leave()
        self._node = node
        self._of_node[node] = self
        if before is not None:
            before._replace()

    async def next(self, read: Callable[[], Awaitable[object]]) -> object:
        """Return what ``read`` does. Raises TooManyError where another stream of the node has begun."""
        problem = TooManyError(f"node {self._node!r}: reports in another stream")
        if self._is_replaced:
            raise problem
        self._waiting = asyncio.current_task()
        try:
            return await read()
        except asyncio.CancelledError:
            if not self._is_replaced:
                raise
            raise problem from None
        finally:
            self._waiting = None

    def _replace(self) -> None:
        self._is_replaced = True
        if self._waiting is not None:  # gRPC cannot end a call while it sends an answer
            self._waiting.cancel()

    def __enter__(self) -> "NodeStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._of_node.get(self._node) is self:
            del self._of_node[self._node]
