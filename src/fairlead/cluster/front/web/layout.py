"""Parts of all pages: the document, its sections, who is asking, what the browser may do."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fairlead.analysis.report.markup import Child, Html, head, join, tag
from fairlead.cluster.front.web.markup import link, name
from fairlead.cluster.protocol.access import Caller
from fairlead.model.duration_text import duration

FAST, SLOW = "fast", "slow"
REFRESH_S = {FAST: 2, SLOW: 10}  # how often a browser asks for the sections of each kind again
_NAVIGATION = (
    ("/", "Cluster"),
    ("/jobs", "Jobs"),
    ("/nodes", "Nodes"),
    ("/searches", "Searches"),
    ("/what-if", "What if"),
    ("/submit", "Submit"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page under a heading."""

    id: str
    title: str
    body: Html
    live: str = ""  # FAST or SLOW: fetched again and again; "" = stays as it is
    wide: bool = True
    tools: Html | None = None  # beside the heading
    hidden: bool = False  # there is nothing to show; it may come


@dataclass(frozen=True, slots=True)
class Page:
    """A page: what ``document`` makes HTML of."""

    title: str
    description: str
    sections: Sequence[Section]
    status: int = 200
    here: str = ""  # the address in the navigation
    moved_to: str = ""  # where the browser goes instead; "" = it shows this page


def document(page: Page, caller: Caller | None, nonce: str) -> str:
    """The whole page. nonce: of the Content-Security-Policy that goes with it."""
    body = tag("body", *_frame(page, caller), _script(nonce))
    return f'<!DOCTYPE html>\n<html lang="en">{_head(page, nonce)}{body}</html>\n'


def fragments(page: Page) -> str:
    """The sections alone, for a page that shows older ones."""
    return join(*map(_section, page.sections))


def policy(nonce: str) -> str:
    """The Content-Security-Policy: nothing from elsewhere, no script or style but the page's own."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def new_nonce() -> str:
    """A random value for one answer, which cannot be guessed."""
    return secrets.token_urlsafe(18)


def columns(*children: Child) -> Html:
    """Parts side by side where there is room."""
    return tag("div", *children, class_="columns")


def figure(title: str, *children: Child) -> Html:
    """A picture with its heading; where it is wider than the screen it scrolls, with the keyboard too."""
    return tag("figure", tag("h3", title), *children, tabindex="0", aria_label=title)


def note(*children: Child) -> Html:
    """A remark in small type."""
    return tag("p", *children, class_="note")


def old_state(ages_s: Iterable[float | None]) -> Html | None:
    """A banner over what is older than it should be; None = it is new."""
    oldest = max((age_s for age_s in ages_s if age_s is not None), default=None)
    if oldest is None:
        return None
    words = f" has not answered for {duration(oldest)}: this is the state before that."
    return tag("p", tag("strong", "The scheduler"), words, role="status", class_="banner bad")


def scroll(label: str, *children: Child) -> Html:
    """Return a box for what may be wider than the screen: it scrolls by itself, with the keyboard too."""
    return tag("div", *children, class_="scroll", tabindex="0", role="region", aria_label=label)


def button(action: str, words: str, confirm: str = "", **fields: str) -> Html:
    """A form of one button that changes something. confirm: a question to ask before."""
    hidden = (tag("input", type="hidden", name=key, value=value) for key, value in fields.items())
    press = tag("button", words, type="submit", class_="danger" if confirm else None)
    return tag("form", *hidden, press, method="post", action=action, data_confirm=confirm or None)


def problem(status: int, title: str, words: str) -> Page:
    """A page that says why there is none."""
    body = tag("p", words, role="alert", class_="banner bad")
    return Page(title, words, [Section("problem", title, body)], status)


def _frame(page: Page, caller: Caller | None) -> list[Html]:
    title = tag("h1", page.title, class_="visually-hidden")  # for those who go by headings
    main = tag("main", title, *map(_section, page.sections), id="main", tabindex="-1")
    if caller is None:
        return [main]
    skip = link("#main", "Skip to the content", class_="skip")
    return [skip, _header(page, caller), main]


def _section(section: Section) -> Html:
    heading = tag("div", tag("h2", section.title), section.tools, class_="heading")
    return tag(
        "section",
        heading,
        section.body,
        id=section.id,
        data_live=section.live or None,
        hidden=section.hidden,
        class_="wide" if section.wide else None,
    )


def _header(page: Page, caller: Caller) -> Html:
    links = (
        tag("li", link(href, words, aria_current="page" if href == page.here else None))
        for href, words in _NAVIGATION
    )
    tenant = join(name(caller.tenant), " · ") if caller.tenant else None
    who = join(name(caller.user), " · ", tenant, caller.role)
    return tag(
        "header",
        link("/", "Fairlead", class_="brand"),
        tag("nav", tag("ul", *links), aria_label="Pages"),
        tag("p", "", id="connection", role="status"),
        tag("span", who, class_="who"),
        button("/logout", "Log out"),
    )


def _head(page: Page, nonce: str) -> Html:
    about = {
        "description": page.description,
        "color-scheme": "light dark",
        "robots": "noindex",
    }
    return head(f"{page.title} · Fairlead", _file("page.css"), about, nonce=nonce)


def _script(nonce: str) -> Html:
    periods = {f"data-{accelerator}": seconds for accelerator, seconds in REFRESH_S.items()}
    return tag("script", Html(_file("page.js")), id="script", nonce=nonce, **periods)


@cache
def _file(name: str) -> str:
    return resources.files("fairlead.cluster.front.web").joinpath(name).read_text("utf-8")
