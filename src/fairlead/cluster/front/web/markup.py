"""Elements that only the pages of a live cluster have, and the words in them."""

import math
import re
from urllib.parse import urlencode

from fairlead.analysis.report.markup import Attribute, Child, Html, join, tag
from fairlead.model.duration_text import DASH


def link(href: str, *children: Child, **attributes: Attribute) -> Html:
    """A link within these pages."""
    return tag("a", *children, href=href, **attributes)


def address(path: str, **query: object) -> str:
    """A path with those parts of the query that say something."""
    text = urlencode({name: value for name, value in query.items() if value not in ("", None)})
    return f"{path}?{text}" if text else path


def name(text: str) -> Html:
    """A name chosen by a user, isolated from the direction of the text around it."""
    return tag("bdi", text) if text else Html(DASH)


def breakable(text: str) -> Html:
    """A name of words with _ between them, which a narrow place may break there."""
    first, *others = text.split("_")
    return tag("bdi", first, *(join("_", tag("wbr"), word) for word in others))


def count(value: float) -> str:
    """A number of steps or jobs."""
    if not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    """A part of a whole."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else DASH


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def strip_escapes(log: str) -> str:
    """Output of a program without colours, and of lines that it drew again the last state only."""
    lines = _ESCAPES.sub("", log).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
