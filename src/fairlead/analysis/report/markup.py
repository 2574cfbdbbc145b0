"""HTML in which all text is escaped where an element is made.

Names of jobs, tenants and nodes, reasons and log lines come from people and programs that need not be
trusted. So an element takes text as text, and only ``Html`` as HTML; reports and the pages of a live cluster
join no strings to HTML by hand.
"""

from collections.abc import Iterable, Mapping
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


def head(
    title: str, style: str, about: Mapping[str, str], *, policy: str = "", nonce: str | None = None
) -> Html:
    """The ``<head>`` of a page.

    style: CSS; about: content of ``<meta name=...>`` by name, besides the width of the screen;
    policy: Content-Security-Policy of a page that no server sends; nonce: of the style, under a policy that
    asks for one.
    """
    metadata = {"viewport": "width=device-width, initial-scale=1", **about}
    guard = tag("meta", http_equiv="Content-Security-Policy", content=policy) if policy else None
    metas = [tag("meta", name=name, content=content) for name, content in metadata.items()]
    metas = [tag("meta", charset="utf-8"), *metas]
    return tag(
        "head",
        *metas,
        guard,
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(style), nonce=nonce),
    )


def table(headings: Iterable[Child], rows: Iterable[Child], **attributes: Attribute) -> Html:
    """A table of these headings (``<th>``; none: no head) and rows (``<tr>``)."""
    first = list(headings)
    top = tag("thead", tag("tr", *first)) if first else None
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
