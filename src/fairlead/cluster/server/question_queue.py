"""Turns of people who ask what takes a while: one at a time, and nobody twice while others wait."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.cluster.front.facade import ConflictError

WAITING = 4  # questions of one person that may wait


class QuestionQueue:
    """Gives questions of people their turns, one at a time; may be used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[object]] = {}  # whose turn is next comes first
        self._busy = False

    @contextmanager
    def turn_of(self, user: str) -> Iterator[int]:
        """Wait for this person's turn, and have it for the block. Gives the number of others who wait.
        Raises ConflictError where they have too many questions waiting."""
        ticket = object()
        with self._changed:
            mine = self._waiting.setdefault(user, deque())
            if len(mine) >= WAITING:
                raise ConflictError(f"{len(mine)} questions of yours wait already: ask again later")
            mine.append(ticket)
            while self._busy or self._next() is not ticket:
                self._changed.wait()
            self._move_to_back(user)
            self._busy = True
            others = len(self._waiting.keys() - {user})
        try:
            yield others
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> object:
        return next(iter(self._waiting.values()))[0]

    def _move_to_back(self, user: str) -> None:
        """The person goes behind all others who wait."""
        mine = self._waiting.pop(user)
        mine.popleft()
        if mine:
            self._waiting[user] = mine
