"""HTML that cannot be broken by what is put into it: all text is escaped where an element is made.

Names of jobs, tenants and nodes, reasons and log lines come from people and programs that need
not be trusted. So an element takes text as text, and only ``Html`` as HTML; nothing in this package joins
strings to HTML by hand.
"""

import math
import re
from typing import TypeAlias
from urllib.parse import urlencode

from fairlead.analysis.report.svg import clean
from fairlead.model.duration_text import DASH

_VOID = frozenset({"br", "input", "link", "meta", "wbr"})


class Html(str):
    """Text that is HTML already, or SVG made by fairlead.analysis.report.svg."""

    __slots__ = ()


Child: TypeAlias = object  # Html as it is; None and False = nothing; all else as text
Attribute: TypeAlias = str | int | float | bool | None


def tag(element: str, *children: Child, **attributes: Attribute) -> Html:
    """One element. ``class_`` is ``class``, ``data_x`` is ``data-x``; None and False leave one out."""
    told = "".join(_attribute(name, value) for name, value in attributes.items())
    if element in _VOID:
        return Html(f"<{element}{told}>")
    return Html(f"<{element}{told}>{join(*children)}</{element}>")


def join(*children: Child) -> Html:
    """Pieces one after the other."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None or child is False:
        return ""
    return str(child) if isinstance(child, Html) else clean(child)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{clean(value)}"'


def link(href: str, *children: Child, **attributes: Attribute) -> Html:
    """A link within these pages."""
    return tag("a", *children, href=href, **attributes)


def address(path: str, **query: object) -> str:
    """A path with those parts of the query that say something."""
    told = urlencode({name: value for name, value in query.items() if value not in ("", None)})
    return f"{path}?{told}" if told else path


def name(text: str) -> Html:
    """A name chosen by a user, isolated from the direction of the text around it."""
    return tag("bdi", text) if text else Html(DASH)


def breakable(text: str) -> Html:
    """A name of words with _ between them, which a narrow place may break there."""
    first, *rest = text.split("_")
    return tag("bdi", first, *(join("_", tag("wbr"), word) for word in rest))


def count(value: float) -> str:
    """A number of steps or jobs."""
    if not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    """A part of a whole."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else DASH


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def plain(log: str) -> str:
    """Output of a program without colours, and of lines that it drew again the last state only."""
    lines = _ESCAPES.sub("", log).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
