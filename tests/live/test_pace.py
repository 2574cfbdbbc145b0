"""Other threads give way to the network's."""

import threading
from collections.abc import Callable

import pytest

from fairlead.live import pace
from fairlead.live.pace import Courtesy


def test_it_waits_for_a_turn_of_the_other_thread_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    posted: list[Callable[[], None]] = []
    courtesy = Courtesy()
    come = threading.Event()

    def post(do: Callable[[], None]) -> None:
        posted.append(do)
        come.set()

    courtesy.post = post
    worker = threading.Thread(target=lambda: list(courtesy.slowly("abc")), daemon=True)
    worker.start()
    assert come.wait(120.0)
    assert worker.is_alive()
    posted[0]()  # a turn of the other thread
    worker.join(120.0)
    assert not worker.is_alive()
    assert len(posted) == 1, "it has only just waited"


def test_each_thread_takes_turns_of_its_own_and_keeps_all_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    monkeypatch.setattr(pace, "TURN_S", 600.0)  # for ever, if the turn of one went to the other
    courtesy = Courtesy()
    turns: dict[int, int] = {}

    def post(do: Callable[[], None]) -> None:
        turns[threading.get_ident()] = turns.get(threading.get_ident(), 0) + 1
        threading.Timer(0.001, do).start()

    courtesy.post = post
    got: dict[int, list[int]] = {}

    def work() -> None:
        got[threading.get_ident()] = list(courtesy.slowly(range(20)))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120.0)
    assert list(got.values()) == [list(range(20))] * 2
    assert list(turns.values()) == [20, 20]


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TURN_S", 0.01)
    courtesy = Courtesy()
    courtesy.post = lambda do: None  # the other thread is stuck
    courtesy.give_way()
