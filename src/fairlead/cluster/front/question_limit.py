"""A limit on the what-if questions that wait for an answer at once: each is a simulation of seconds."""

import threading
from collections import Counter

OF_ONE = 2  # questions of one person; the server answers persons in turn
OF_ALL = 16  # far fewer than the threads that wait for the server


class QuestionLimit:
    """Questions that are being answered; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()  # by person

    def take(self, user: str) -> str:
        """Count one more question of this person; else return why not, in a sentence without a full stop."""
        with self._lock:
            if self._asked[user] >= OF_ONE:
                return f"{OF_ONE} questions of yours are being answered"
            if self._asked.total() >= OF_ALL:
                return "questions of many others are being answered"
            self._asked[user] += 1
            return ""

    def give_back(self, user: str) -> None:
        """A question has been answered."""
        with self._lock:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user]
