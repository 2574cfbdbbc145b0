"""The findings of an experiment: our numbers and the published ones, and charts of both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from fairlead.analysis.experiments.point import Point, PointResult
from fairlead.analysis.report.chart import Chart

Scale: TypeAlias = Literal["small", "paper"]


@dataclass(frozen=True)
class FindingRow:
    """A number of ours, with the published one if there is one."""

    what: str
    ours: float | None  # None: there is none, and the remark says why
    published: float | None = None
    unit: str = ""
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the published one."""
        if self.ours is None or not self.published:
            return None
        return self.ours / self.published


@dataclass(frozen=True)
class FindingTable:
    """Numbers that belong together."""

    title: str
    rows: tuple[FindingRow, ...]


@dataclass(frozen=True)
class Findings:
    """All that goes into the figure, the tables and the page of results."""

    tables: tuple[FindingTable, ...]
    charts: tuple[Chart, ...]
    remarks: tuple[str, ...] = ()  # in sentences: what differs, and why


class ExperimentContext(Protocol):
    """Environment of an experiment. It keeps results, so that an interrupted experiment goes on from them."""

    scale: Scale
    folder: Path  # for what an experiment writes besides

    def run(self, points: Sequence[Point]) -> list[PointResult]:
        """Each point's outcome, in this order; what is known already is not run again."""

    def shared(self, name: str) -> Path:
        """A file of real traces or reference results that is not part of Fairlead, under the directory that
        ``--data`` names. Raises ConfigError that says what is missing."""


@dataclass(frozen=True)
class Reproduction:
    """A published result, and how to get it again."""

    name: str  # as ``fairlead reproduce`` takes it
    title: str
    source: str  # paper and figure
    run: Callable[[ExperimentContext], Findings]
    needs_data: bool = False  # files that ``ExperimentContext.shared`` finds
