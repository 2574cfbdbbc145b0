"""The journal of a run's folder, which an interrupted run goes on from."""

import os
from dataclasses import fields, replace
from itertools import zip_longest
from pathlib import Path

from fairlead.errors import ResumeError
from fairlead.scheduler.journal import Journal, decode, encode_any, recorded_solves, records
from fairlead.scheduler.setup import Setup
from fairlead.simulator.folder_lock import lock_folder


class RunLog(Journal):
    """The journal of a run directory.

    To go on with an interrupted run, the run is driven again from its start with the allocations of the
    old journal in place of solves, and the new records are compared with the old ones as they come.
    """

    def __init__(self, out: Path, setup: Setup, resume: bool) -> None:
        super().__init__(out / ("journal.resumed" if resume else "journal"))
        self.final = out / "journal"
        self.setup = setup
        self.resume = resume
        self.old = records(self.final) if resume else iter(())
        self.answers = recorded_solves(self.final) if resume else iter(())
        self.caught_up = not resume
        self._appended = self._compare if resume else None

    def __enter__(self) -> "RunLog":
        self._lock = lock_folder(self.final.parent)
        try:
            if self.resume:
                _adopt(self.path, self.final)
            self.open(self.setup)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _compare(self, record: bytes) -> None:
        """ResumeError where a new record differs from the old one."""
        old = next(self.old, None)
        if old is None:
            self.caught_up, self._appended = True, None
        elif old != record:
            raise ResumeError(f"{self.final}: {self._difference(old)}")

    def _difference(self, old: bytes) -> str:
        """Return how the last record differs from the old one."""
        if self.records == 1 and isinstance(before := decode(old), Setup):
            names = [
                field.name for field in fields(Setup) if _differs(before, self.setup, field.name)
            ]
            return f"the run that is to go on there had another {' and '.join(names)}"
        return (
            f"record {self.records - 1} differs from the run that is to go on there: its trace, or the code "
            "of its policy or rules, was another one"
        )

    def __exit__(self, *_: object) -> None:
        self.close()
        if self.path != self.final:
            if self.caught_up:
                self.path.replace(self.final)
            else:
                self.path.unlink(missing_ok=True)
        os.close(self._lock)


def _differs(one: Setup, other: Setup, name: str) -> bool:
    """Return whether a field of two setups is written differently."""
    return encode_any(replace(one, **{name: getattr(other, name)})) != encode_any(one)


def _adopt(resumed: Path, final: Path) -> None:
    """Take over the journal of an earlier attempt to go on, if that was killed after it had got further."""
    if resumed.exists() and resumed.stat().st_size > final.stat().st_size:
        pairs = zip_longest(records(final), records(resumed))
        if all(old in (None, new) for old, new in pairs):
            resumed.replace(final)
