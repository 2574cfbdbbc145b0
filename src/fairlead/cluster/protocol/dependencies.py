"""Dependencies of jobs on other jobs, as text: ``ok:12``, ``any:12``, ``ok:array:57``."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, cast

Condition: TypeAlias = Literal["ok", "any"]
MAX_DEPENDENCIES = 1_000  # of a job
# What a dependency waits for, for people.
CONDITION_WORDS: Mapping[Condition, str] = {"ok": "complete", "any": "end"}
_FORM = re.compile(r"(ok|any):(array:)?(0|[1-9][0-9]{0,15})")


class Dependency(NamedTuple):
    """A job or array that another job waits for before it is scheduled.
    condition: "ok" = it has completed, "any" = it has ended in whatever state."""

    condition: Condition
    job: int  # or an array
    is_array: bool  # every task of that array

    @property
    def name(self) -> str:
        """The job or the array, for people."""
        return f"array {self.job}" if self.is_array else f"job {self.job}"


def parse_dependency(text: str) -> Dependency:
    """Raises ValueError, which says what is expected."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("expected ok:JOB or any:JOB, or ok:array:ARRAY")
    return Dependency(cast(Condition, found[1]), int(found[3]), bool(found[2]))
