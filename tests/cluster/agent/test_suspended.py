"""All that belongs to a program is stopped, or killed, also what it forks meanwhile."""

import signal
from typing import Any

import pytest

from fairlead.cluster.agent import proc, suspended


class _Machine:
    """Processes appear, and get signals. forks: how many times another is there at the next look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, forks: int) -> None:
        self.alive = [self.process(1)]
        self.forks = forks
        self.signals: list[tuple[int, signal.Signals]] = []
        monkeypatch.setattr(suspended, "_processes_of", lambda _: self.look())
        monkeypatch.setattr(proc, "process", lambda pid: self.process(pid))
        monkeypatch.setattr(
            proc, "kill_exactly", lambda one, number: self.signals.append((one.pid, number))
        )

    @staticmethod
    def process(pid: int) -> proc.Process:
        return proc.Process(pid=pid, start_time=pid, session=1, parent=1, state="T")

    def look(self) -> list[proc.Process]:
        found = list(self.alive)
        if self.forks:
            self.forks -= 1
            self.alive.append(self.process(len(self.alive) + 1))
        return found


class _Attempt:
    class processes:  # noqa: N801
        leaders = {1: 0}  # noqa: RUF012


@pytest.mark.parametrize(("forks", "stands_still"), [(0, True), (3, True), (1000, False)])
def test_what_goes_on_forking_cannot_be_parked(
    monkeypatch: pytest.MonkeyPatch, forks: int, stands_still: bool
) -> None:
    machine, attempt = _Machine(monkeypatch, forks), _Attempt()
    given: Any = attempt
    assert bool(suspended.stop_processes(given)) == stands_still
    stopped = {pid for pid, number in machine.signals if number == signal.SIGSTOP}
    continued = {pid for pid, number in machine.signals if number == signal.SIGCONT}
    assert len(stopped) >= min(forks + 1, 10)
    assert (not continued) == stands_still
    assert stands_still or stopped <= continued


def test_what_is_forked_meanwhile_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, 5)
    given: Any = _Attempt()
    suspended.kill_processes(given)
    assert {pid for pid, _ in machine.signals} == {1, 2, 3, 4, 5, 6}
