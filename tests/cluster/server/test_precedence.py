"""The driver's thread goes before questions."""

import threading
import time

from fairlead.cluster.server.precedence import Yielder


def test_questions_wait_until_it_is_given_back() -> None:
    precedence = Yielder(timeout_s=60.0)
    precedence.wait()  # nobody has it
    precedence.take()
    precedence.take()
    over = threading.Event()

    def ask() -> None:
        precedence.wait()
        over.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert not over.wait(0.1)
    precedence.give_back()
    assert over.wait(60.0)
    asking.join()


def test_nobody_waits_longer_than_their_patience() -> None:
    precedence = Yielder(timeout_s=0.05)
    precedence.take()
    began = time.monotonic()
    precedence.wait()
    assert time.monotonic() - began >= 0.05
