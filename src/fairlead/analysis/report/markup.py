"""HTML that cannot be broken by what is put into it: all text is escaped where an element is made.

Names of jobs, tenants and nodes, reasons and log lines come from people and programs that need not be
trusted. So an element takes text as text, and only ``Html`` as HTML; reports and the pages of a live cluster
join no strings to HTML by hand.
"""

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID = frozenset({"br", "input", "link", "meta", "wbr"})


class Html(str):
    """Text that is HTML already, or SVG made by fairlead.analysis.report.svg."""

    __slots__ = ()


Child: TypeAlias = object  # Html as it is; None and False = nothing; all else as text
Attribute: TypeAlias = str | int | float | bool | None


def clean(value: object) -> str:
    """Any value as text that is safe in HTML and can be written as UTF-8."""
    text = str(value)
    if not text.isprintable():
        text = "".join(c if c >= " " or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def tag(element: str, *children: Child, **attributes: Attribute) -> Html:
    """One element. ``class_`` is ``class``, ``data_x`` is ``data-x``; None and False leave one out."""
    given = "".join(_attribute(name, value) for name, value in attributes.items())
    if element in _VOID:
        return Html(f"<{element}{given}>")
    return Html(f"<{element}{given}>{join(*children)}</{element}>")


def join(*children: Child) -> Html:
    """Pieces one after the other."""
    return Html("".join(_child(child) for child in children))


def table(head: Iterable[Child], rows: Iterable[Child], **attributes: Attribute) -> Html:
    """A table of these headings (``<th>``; none: no head) and rows (``<tr>``)."""
    headings = list(head)
    top = tag("thead", tag("tr", *headings)) if headings else None
    return tag("table", top, tag("tbody", *rows), **attributes)


def _child(child: Child) -> str:
    if child is None or child is False:
        return ""
    return str(child) if isinstance(child, Html) else clean(child)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{clean(value)}"'
