"""The page that asks for a token."""

import re

from fairlead.analysis.report.markup import tag
from fairlead.cluster.front.web.layout import (
    Page,
    Section,
    note,
)

_TARGET = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # an address of ours: no host, no control characters


def safe_target(address: str) -> str:
    """Return the address to open after the login: always one of this server, whatever the form says."""
    return address if _TARGET.fullmatch(address) and len(address) <= 2000 else "/"


def login_page(target: str, error: str = "", status: int = 200) -> Page:
    """The page at ``/login``. wrong: what was wrong with the last try."""
    alert = tag("p", error, role="alert", class_="banner bad") if error else None
    box = tag(
        "input",
        type="password",
        name="token",
        required=True,
        autofocus=True,
        autocomplete="current-password",
        maxlength=256,
    )
    form = tag(
        "form",
        tag("label", tag("span", "Token"), box),
        tag("input", type="hidden", name="next", value=safe_target(target)),
        tag("button", "Log in", type="submit", class_="main"),
        method="post",
        action="/login",
    )
    words = note("An administrator makes one with ", tag("code", "fairlead user add"), ".")
    body = tag("div", alert, form, words, class_="login")
    return Page("Log in", "Log in to the cluster", [Section("login", "Fairlead", body)], status)
