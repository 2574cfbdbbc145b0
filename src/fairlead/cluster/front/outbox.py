"""A queue of messages to the other process: in order, the newest of each kind in place of older ones."""

import threading
from collections import OrderedDict
from typing import Any

from fairlead.cluster.front.messages import frame


class Outbox:
    """Any thread may put and take. Holds one message per key, and all of those without a key."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, message: Any) -> None:
        """Have it sent."""
        with self._lock:
            key = message.key or f"#{id(message)}"
            older = self._waiting.get(key)
            over = getattr(message, "over", None)
            if over is not None and type(older) is type(message):
                message = over(older)
            self._waiting[key] = message

    def take(self, size: int) -> bytes:
        """Frames of the oldest messages, about so many bytes; empty where nothing waits."""
        frames, length = [], 0
        while length < size:
            with self._lock:
                if not self._waiting:
                    break
                _, message = self._waiting.popitem(last=False)
            frames.append(frame(message))
            length += len(frames[-1])
        return b"".join(frames)

    def __bool__(self) -> bool:
        return bool(self._waiting)
