"""Tables that a click on a heading sorts."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.analysis.report.metric_catalogue import (
    MetricKind,
    number,
    unit_for,
)
from fairlead.analysis.report.svg import clean
from fairlead.model.duration_text import DASH


@dataclass(frozen=True, slots=True)
class SortableColumn:
    """A column: its heading and its values; numbers are of a kind, and share a unit."""

    name: str
    values: Sequence[object]
    kind: MetricKind | None = None  # None for words
    plain: bool = False  # a name that is a number: without a unit, as it is


def sortable(columns: Sequence[SortableColumn]) -> str:
    """The table, in a box of limited height."""
    made = [_column(column) for column in columns]
    head = "".join(head for head, _ in made)
    lines = zip(*(cells for _, cells in made), strict=True)
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return (
        f"<div class='tall'><table class='sortable'><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _column(column: SortableColumn) -> tuple[str, list[str]]:
    """Heading and cells."""
    if column.kind is None:
        words = [f"<td class='name'>{clean(value or DASH)}</td>" for value in column.values]
        return _heading(column.name, ""), words
    if column.plain:
        cells = [f"<td class='n' data-v='{clean(v)}'>{clean(v)}</td>" for v in column.values]
        return _heading(column.name, "n"), cells
    numbers = [number(value) for value in column.values]
    unit = unit_for(column.kind, numbers, digits=4)
    cells = [
        f"<td class='n' data-v='{'' if n is None else format(n, '.6g')}'>{unit.bare(n)}</td>"
        for n in numbers
    ]
    return _heading(f"{column.name} ({unit.name})" if unit.name else column.name, "n"), cells


def _heading(name: str, style: str) -> str:
    return f"<th class='{style}' scope='col'><button type='button'>{clean(name)}</button></th>"
