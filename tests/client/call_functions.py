"""Functions that tests of ``fairlead.client.futures`` have called in jobs."""

import os
import time
from pathlib import Path


class OwnError(ValueError):
    """An exception with an argument of its own, which pickle can make again."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class UnpicklableError(Exception):
    """One that pickle cannot make again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} of {two}")


def square(number: int) -> int:
    return number * number


def fail(code: int) -> None:
    raise OwnError(code)


def fail_oddly() -> None:
    raise UnpicklableError(1, 2)


def give_a_lock() -> object:
    import threading

    return threading.Lock()


def leave() -> None:
    os._exit(3)


def wait_for(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.02)
    return "seen"


def begun_twice(folder: str) -> int:
    """Wait for ever the first time, and return how often it was begun the second."""
    begun = Path(folder) / f"begun-{os.environ['FAIRLEAD_ATTEMPT']}"
    begun.touch()
    count = len(list(Path(folder).glob("begun-*")))
    while count == 1:
        time.sleep(0.02)
    return count
