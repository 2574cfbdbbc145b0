"""The driver's thread gives way to the network's."""

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
    courtesy.post = posted.append
    worker = threading.Thread(target=courtesy.give_way)
    worker.start()
    while not posted:
        pass
    posted[0]()  # a turn of the other thread
    worker.join(5.0)
    assert not worker.is_alive()
    courtesy.give_way()
    assert len(posted) == 1, "it has only just waited"


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TURN_S", 0.01)
    courtesy = Courtesy()
    courtesy.post = lambda do: None  # the other thread is stuck
    courtesy.give_way()
