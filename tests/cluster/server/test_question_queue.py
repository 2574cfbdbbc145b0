"""Questions are answered one at a time, and nobody is answered twice while others wait."""

import threading

import pytest
from tests.cluster.cluster import until

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.server.question_queue import WAITING, QuestionQueue


def test_one_who_asks_much_does_not_keep_others_waiting() -> None:
    turns, order, go = QuestionQueue(), [], threading.Event()
    asked: list[str] = []

    def ask(user: str) -> None:
        asked.append(user)
        with turns.turn_of(user):
            order.append(user)

    def hold() -> None:
        with turns.turn_of("first"):
            asked.append("first")
            go.wait(60.0)

    threads = [threading.Thread(target=hold)]
    threads += [threading.Thread(target=ask, args=(u,)) for u in ("ann", "ann", "ann", "bob")]
    for n, thread in enumerate(threads, 1):
        thread.start()
        until(lambda: len(asked) == n and _waiting(turns) == n - 1)  # noqa: B023
    go.set()
    for thread in threads:
        thread.join(60.0)
    assert order == ["ann", "bob", "ann", "ann"]


def test_nobody_may_have_many_questions_waiting() -> None:
    turns, go = QuestionQueue(), threading.Event()

    def ask() -> None:
        with turns.turn_of("ann"):
            go.wait(60.0)

    threads = [threading.Thread(target=ask) for _ in range(WAITING + 1)]
    for thread in threads:
        thread.start()
    until(lambda: _waiting(turns) == WAITING)
    with pytest.raises(ConflictError, match="4 questions of yours wait"), turns.turn_of("ann"):
        pass
    go.set()
    for thread in threads:
        thread.join(60.0)


def _waiting(turns: QuestionQueue) -> int:
    return sum(len(mine) for mine in turns._waiting.values())
