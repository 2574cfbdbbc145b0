"""Learning curves that were recorded, one per configuration; ``examples/search/record_curves.py`` makes them.

A CSV file: ``configuration``, the parameters, and a column for each point, ``N%`` of the mini-batches.
"""

import re
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from fairlead.errors import InputError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.simulator.traces.source import Source, csv_rows

BUILT_IN = "digits"
_POINT = re.compile(r"(\d+(?:\.\d+)?)%")


@dataclass(frozen=True, slots=True)
class RecordedCurves:
    """Curves of equal length. progress: (points,) part of the mini-batches, ascending in (0, 1]. value:
    (configurations, points) of a metric of which larger is better."""

    progress: Floats
    value: Floats

    def __len__(self) -> int:
        return len(self.value)

    def reach(self, target: float) -> Bools:
        """(configurations,) whether each reaches the target."""
        return np.asarray((self.value >= target).any(axis=1))

    def ordered(self, order: Ints) -> "RecordedCurves":
        """Return the curves in another order, or some of them."""
        return RecordedCurves(self.progress, self.value[order])


def read_curves(path: str | Path = BUILT_IN) -> RecordedCurves:
    """The table in a file; "digits" is the one that Fairlead brings. Raises InputError with file, line,
    column and value."""
    if path == BUILT_IN:
        with as_file(files("fairlead.simulator.traces.data") / "digits_curves.csv") as found:
            return _read(found)
    return _read(Path(path))


def _read(path: Path) -> RecordedCurves:
    source = Source(path, InputError)
    rows = csv_rows(source)
    line, header = next(rows, (None, []))
    points = {
        k: float(found[1]) / 100
        for k, name in enumerate(header)
        if (found := _POINT.fullmatch(name))
    }
    progress = np.array(list(points.values()))
    if not len(progress):
        raise source.fault(line, "no column of a point, such as '3%'")
    if (np.diff(progress) <= 0).any() or progress[0] <= 0 or progress[-1] > 1:
        raise source.fault(line, "points must ascend, above 0 % and up to 100 %")
    values = []
    for line, row in rows:
        if len(row) != len(header):
            raise source.fault(line, f"expected {len(header)} columns, got {len(row)}")
        values.append([_number(source, line, header[k], row[k]) for k in points])
    if not values:
        raise source.fault(None, "has no configurations")
    return RecordedCurves(progress, np.array(values))


def _number(source: Source, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise source.fault(line, f"column {column!r}: expected a number, got {text!r}")
    return value
