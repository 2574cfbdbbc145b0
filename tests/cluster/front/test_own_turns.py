"""What one caller has asked for keeps another one waiting for no more than a few of it."""

import threading
from concurrent.futures import ThreadPoolExecutor

from fairlead.cluster.front.compute_turns import caller
from fairlead.cluster.front.own_turns import AT_ONCE, OwnTurns


def test_one_caller_has_so_many_turns_and_another_one_has_its_own() -> None:
    turns, let_go = OwnTurns(), threading.Event()
    inside: list[str] = []
    full = threading.Barrier(AT_ONCE + 1)

    def ask(user: str, wait: bool) -> None:
        caller.set(user)
        with turns.turn():
            inside.append(user)
            if wait:
                full.wait(60)
                let_go.wait(60)

    with ThreadPoolExecutor(3 * AT_ONCE) as pool:
        for _ in range(AT_ONCE):
            pool.submit(ask, "ann", True)
        full.wait(60)
        more = [pool.submit(ask, "ann", False) for _ in range(AT_ONCE)]
        pool.submit(ask, "ben", False).result(60)
        assert inside == ["ann"] * AT_ONCE + ["ben"]
        let_go.set()
        for one in more:
            one.result(60)
    assert inside.count("ann") == 2 * AT_ONCE
    assert not turns._own


def test_what_fails_gives_its_turn_back() -> None:
    turns = OwnTurns()
    for _ in range(2 * AT_ONCE):
        try:
            with turns.turn():
                raise KeyError
        except KeyError:
            pass
    assert not turns._own
