"""The request to every reader of traces, and the checks that they share."""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.model.argument_checks import brief_repr
from fairlead.model.job_type import JobType
from fairlead.model.near_names import did_you_mean
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.source import Source
from fairlead.simulator.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The request to read a trace."""

    throughputs: Throughputs
    seed: int = 0
    vc: str | None = None  # keep the rows of one virtual cluster only


@dataclass(frozen=True, slots=True)
class Format:
    """A format that is recognised from the first line of a file."""

    name: str
    columns: str  # what its header or its fields are, for messages
    fits: Callable[[bytes], bool]
    read: Callable[[Source, ReadRequest], Trace]
    has_vc: bool = False  # may one virtual cluster be chosen?


class Checks:
    """Checks of a row against the rows before it, and against the throughput table."""

    def __init__(self, source: Source, throughputs: Throughputs) -> None:
        self.source = source
        self.throughputs = throughputs
        self.latest_s = 0.0
        self.latest_id = -1

    def arrival(self, line: int, name: str, time_s: float) -> float:
        """The time, if it is not before that of the row above."""
        if time_s < self.latest_s:
            raise self.source.fault(
                line,
                f"{name}: must not decrease from row to row, got {time_s} after {self.latest_s}",
            )
        self.latest_s = time_s
        return time_s

    def id(self, line: int, name: str, value: int) -> int:
        """The id, if it is above that of the row above."""
        if value <= self.latest_id:
            raise self.source.fault(
                line, f"{name}: must increase from row to row, got {value} after {self.latest_id}"
            )
        self.latest_id = value
        return value

    def family(self, line: int, name: str, value: str | None) -> str:
        """The family, if the throughput table knows it at any scale factor."""
        if value is None or value == "":
            raise self.source.fault(line, f"{name}: must not be empty")
        known = self.throughputs.families
        if value not in known:
            raise self.source.fault(
                line,
                f"{name}: {brief_repr(value)} is not in the throughput table "
                f"({self.throughputs.origin}){did_you_mean(str(value), known)}",
            )
        return value

    def nominal_s(self, family: str, scale: int, steps: float) -> float | None:
        """Running time on the fastest accelerator type of the table; None if it runs nowhere."""
        row = self.throughputs.row(JobType.parse(family, scale))
        rate = 0.0 if row is None else float(self.throughputs.fastest[row])
        return steps / rate if rate > 0 else None
