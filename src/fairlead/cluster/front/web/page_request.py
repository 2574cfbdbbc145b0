"""The request of a page: who asks, and with what values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.cluster.front.web.layout import FAST, SLOW
from fairlead.cluster.protocol.access import Caller
from fairlead.errors import InputError


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request, as far as pages care."""

    caller: Caller
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    def wants(self, kind: str) -> bool:
        """Return whether sections of this kind (FAST, SLOW or "") are asked for."""
        part = self.query.get("part", "")
        return part == kind or part not in (FAST, SLOW)

    def number(self, name: str, default: int) -> int:
        """A whole number of the query, at least -1; InputError for another word."""
        word = self.query.get(name, "") or str(default)
        if len(word) > 18 or not word.removeprefix("-").isdecimal():
            raise InputError(f"{name}: expected a whole number, got {word[:40]!r}")
        return max(int(word), -1)

    @property
    def job(self) -> int:
        """The job in the address."""
        word = self.path["job"]
        if len(word) > 18 or not word.isdecimal():
            raise InputError(f"job: expected its number, got {word[:40]!r}")
        return int(word)
