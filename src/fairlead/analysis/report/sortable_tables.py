"""Tables that a click on a heading sorts."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.analysis.report.markup import Html, table, tag
from fairlead.analysis.report.metric_catalogue import (
    MetricKind,
    number,
    unit_for,
)
from fairlead.model.duration_text import DASH


@dataclass(frozen=True, slots=True)
class SortableColumn:
    """A column: its heading and its values; numbers are of a kind, and share a unit."""

    name: str
    values: Sequence[object]
    kind: MetricKind | None = None  # None for words
    is_name: bool = False  # numbers that are names, as ids: shown as they are, without a unit


def sortable(columns: Sequence[SortableColumn]) -> Html:
    """The table, in a box of limited height."""
    made = [_column(column) for column in columns]
    rows = (tag("tr", *line) for line in zip(*(cells for _, cells in made), strict=True))
    found = table((head for head, _ in made), rows, class_="sortable")
    return tag("div", found, class_="tall")


def _column(column: SortableColumn) -> tuple[Html, list[Html]]:
    """Heading and cells."""
    if column.kind is None:
        words = [tag("td", value or DASH, class_="name") for value in column.values]
        return _heading(column.name, ""), words
    if column.is_name:
        cells = [tag("td", value, class_="n", data_v=str(value)) for value in column.values]
        return _heading(column.name, "n"), cells
    numbers = [number(value) for value in column.values]
    unit = unit_for(column.kind, numbers, digits=4)
    cells = [
        tag("td", unit.bare(n), class_="n", data_v="" if n is None else format(n, ".6g"))
        for n in numbers
    ]
    return _heading(f"{column.name} ({unit.name})" if unit.name else column.name, "n"), cells


def _heading(name: str, style: str) -> Html:
    return tag("th", tag("button", name, type="button"), class_=style, scope="col")
