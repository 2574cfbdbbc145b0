"""A workbench for tests of reproductions: outcomes made up, or points run here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.analysis.experiments.findings import (
    FindingRow,
    Findings,
    Scale,
)
from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.errors import ConfigError


@dataclass
class MadeUpContext:
    """Asks for each outcome once."""

    of: Callable[[Point], PointResult]
    scale: Scale = "small"
    folder: Path = Path()
    asked: list[Point] = field(default_factory=list)

    def run(self, points: Sequence[Point]) -> list[PointResult]:
        self.asked += points
        return [self.of(point) for point in points]

    def shared(self, name: str) -> Path:
        raise ConfigError(name)


def complete(point: Point, **metrics: float) -> PointResult:
    """A run that came to its end."""
    return PointResult(point, Status.COMPLETE, metrics)


def run_here(point: Point) -> PointResult:
    """The real thing."""
    result = point.input.prepare(point.policy, point.profile).execute()
    return PointResult(point, Status.COMPLETE, result.metrics)


def rows_of(found: Findings, title: str) -> dict[str, FindingRow]:
    """The rows of a table."""
    (table,) = [table for table in found.tables if table.title == title]
    return {row.what: row for row in table.rows}
