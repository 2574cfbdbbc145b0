"""Environment of experiments: a store of results and an executor, behind the interface that experiments
use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead.analysis.experiments.executor import (
    Limits,
    Processes,
    SweepExecutor,
    run_points,
)
from fairlead.analysis.experiments.findings import Scale
from fairlead.analysis.experiments.point import Point, PointResult
from fairlead.analysis.experiments.result_store import ResultStore
from fairlead.analysis.report import progress_bar as progress
from fairlead.errors import ConfigError

DATA_DIRECTORIES = (
    Path("data"),
    Path("..", "shared", "data"),
)  # where data is looked for unless ``--data`` says
DATA = "data:"  # what a point's table begins with that is a file there
# Tables that do without data, and the file with the same rates and those of pairs as they were measured.
MEASURED = {"builtin:gavel": "gavel/simulation_throughputs.json"}


@dataclass
class RunContext:
    """The ``Workbench`` of ``fairlead reproduce``."""

    name: str
    scale: Scale
    folder: Path
    store: ResultStore
    data: Path | None = None
    executor: SweepExecutor = field(default_factory=Processes)
    limits: Limits = field(default_factory=Limits)
    ended: Callable[[PointResult], None] = lambda _outcome: None
    points: list[PointResult] = field(default_factory=list)  # all that were asked for
    notes: dict[str, str] = field(default_factory=dict)  # table -> what its lack means
    fresh: int = 0  # points that were not known before
    used_data: bool = False  # has a file of ``data`` been asked for, and found?

    def run(self, points: Sequence[Point]) -> list[PointResult]:
        """Each point's outcome, in this order; what is known already is not run again."""

        def ended(outcome: PointResult) -> None:
            self.fresh += 1
            self.ended(outcome)

        placed = [self._placed(point) for point in points]
        with progress.progress(self.name, len(points)) as show:
            found = run_points(placed, self.store, self.executor, self.limits, show, ended)
        self.points += found
        return [replace(one, point=point) for one, point in zip(found, points, strict=True)]

    def _placed(self, point: Point) -> Point:
        """Return the point with the path of its table on this machine."""
        table = point.input.throughputs
        name = MEASURED.get(table, table.removeprefix(DATA))
        if name == table:
            return point
        if table in MEASURED and not any((folder / name).exists() for folder in self._places()):
            self.notes[table] = (
                f"Rates of two jobs on one device are modelled here: those that were measured are in {name}, "
                "in a directory that --data names."
            )
            return point
        return replace(point, input=replace(point.input, throughputs=str(self.shared(name))))

    def _places(self) -> list[Path]:
        return [self.data] if self.data is not None else [p for p in DATA_DIRECTORIES if p.is_dir()]

    def shared(self, name: str) -> Path:
        """A file of real traces or reference results, under the directory that ``--data`` names."""
        places = self._places()
        for folder in places:
            if (folder / name).exists():
                self.used_data = True
                return folder / name
        looked = " or ".join(map(str, places)) or "no directory of data was found"
        raise ConfigError(
            f"{name}: {self.name} needs this file; name its directory with --data ({looked})"
        )
