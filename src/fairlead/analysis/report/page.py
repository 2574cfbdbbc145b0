"""The parts of every report: the page, its sections, the configuration, the command."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from fairlead.analysis.report.markup import Html, head, join, table, tag
from fairlead.analysis.report.svg import (
    colour,
    dashes,
)
from fairlead.model.duration_text import DASH

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(title: str, parts: Iterable[Html]) -> Html:
    """A whole page from its parts. Its Content-Security-Policy forbids it to reach the network."""
    files = resources.files("fairlead.analysis.report")
    style = files.joinpath("page.css").read_text("utf-8")
    script = files.joinpath("page.js").read_text("utf-8")
    top = head(title, style, {}, policy=_POLICY)
    body = tag(
        "body",
        *parts,
        tag("footer", "Fairlead report"),
        tag("div", id="tip"),
        tag("script", Html(script)),
    )
    return Html(f"<!DOCTYPE html>\n{tag('html', top, body, lang='en')}\n")


def section(title: str, inner: Html) -> Html:
    """A part of the page under a heading."""
    return tag("section", tag("h2", title), inner)


def note(words: str) -> Html:
    """A remark in small type."""
    return tag("p", words, class_="note")


def gallery(*pictures: tuple[str, Html]) -> Html:
    """Pictures (title, SVG) side by side where there is room."""
    return tag("div", *(figure(title, picture) for title, picture in pictures), class_="figures")


def figure(title: str, *parts: Html) -> Html:
    """A picture and what belongs to it, under a title."""
    return tag("figure", tag("h3", title), *parts)


def wide(picture: Html, *, title: str = "", key: Html | None = None) -> Html:
    """A picture alone in a row, which may be scrolled on a narrow screen."""
    heading = tag("h3", title) if title else None
    return tag("figure", heading, key, tag("div", picture, class_="scroll"), class_="wide")


def legend(entries: Sequence[tuple[str, int]]) -> Html:
    """Return the legend of colours: names and their series."""
    return line_legend([(name, colour(series), dashes(series)) for name, series in entries])


def line_legend(entries: Sequence[tuple[str, str, str]]) -> Html:
    """Return the legend of lines: name, colour and dash pattern of each."""
    items = (
        tag(
            "li",
            tag(
                "svg",
                tag(
                    "path",
                    d="M0 5H26",
                    stroke_width=4,
                    stroke=stroke,
                    stroke_dasharray=dash or "none",
                ),
                viewBox="0 0 26 10",
                aria_hidden="true",
            ),
            name,
        )
        for name, stroke, dash in entries
    )
    return tag("ul", *items, class_="legend")


GLOSSARY = (
    "JCT: job completion time, from arrival to completion. Rho: finish-time fairness; isolated = JCT over "
    "the JCT under an equal, isolated share of the cluster; static = JCT over exclusive run time x max(1, "
    "jobs of the trace / devices); themis = the same with the mean number of jobs in the system while it "
    "was there. Above 1 a job did worse than under an equal split. Envy: how far two jobs differ in the "
    "part of the rounds from arrival to end in which they ran."
)


def setup_line(config: Mapping[str, object], metrics: Mapping[str, object]) -> str:
    """The trace, the cluster and the options of a run, in one line."""
    cluster = config.get("cluster")
    parts = [
        f"{config['trace']}" if config.get("trace") else "",
        f"{metrics['n_jobs']:,} jobs" if isinstance(metrics.get("n_jobs"), int) else "",
        ", ".join(f"{count} {name}" for name, count in cluster.items())
        if isinstance(cluster, Mapping)
        else str(cluster or ""),
        f"rounds of {format_short(config['round_s'])} s" if config.get("round_s") else "",
        f"{config['profile']} profile" if config.get("profile") else "",
        f"seed {config['seed']}" if config.get("seed") is not None else "",
    ]
    return " · ".join(part for part in parts if part)


_OPTIONS = (
    ("--trace", "trace"),
    ("--throughputs", "throughputs"),
    ("--cluster", "cluster"),
    ("--policy", "policy"),
    ("--profile", "profile"),
    ("--round", "round_s"),
    ("--seed", "seed"),
    ("--window", "window"),
)


def command(configs: Sequence[Mapping[str, object]], verb: str) -> str:
    """The shell command that makes these runs again. The runs differ in their policy only."""
    words = ["fairlead", verb]
    for option, key in _OPTIONS:
        values = dict.fromkeys(_argument(config.get(key)) for config in configs)
        words += [word for value in values if value for word in (option, shlex.quote(value))]
    return " ".join(words)


def _argument(value: object) -> str:
    match value:
        case None:
            return ""
        case Mapping():
            return ",".join(f"{name}={count}" for name, count in value.items())
        case list() | tuple():
            return ":".join(str(part) for part in value)
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)


def reproduction(configs: Sequence[Mapping[str, object]], verb: str) -> Html:
    """The commands that make these runs again: the ``command`` of each configuration, else built from its
    fields."""
    given = [config.get("command") for config in configs]
    lines = [line for line in dict.fromkeys(given) if isinstance(line, str)]
    known = bool(lines) and all(isinstance(line, str) for line in given)
    line = "\n".join(lines) if known else command(configs, verb)
    version = next((c["version"] for c in configs if c.get("version")), None)
    made = f"Made by Fairlead {version}. " if version else ""
    words = f"{made}The same input and seed give the same run, to the last bit."
    return join(tag("pre", line), note(words))


def configuration(config: Mapping[str, object]) -> Html:
    """A configuration as a table."""
    rows = (
        tag("tr", tag("td", key), tag("td", format_short(value), class_="name"))
        for key, value in config.items()
    )
    return table((), rows)


def configurations(labels: Sequence[str], configs: Sequence[Mapping[str, object]]) -> Html:
    """Return the options that all runs share, once, and a table of the others by run."""
    keys = dict.fromkeys(key for config in configs for key in config)
    common = {
        key: configs[0].get(key)
        for key in keys
        if len({format_short(config.get(key)) for config in configs}) == 1
    }
    varying = [key for key in keys if key not in common]
    headings = [tag("th"), *(tag("th", key, scope="col") for key in varying)]
    rows = (
        tag(
            "tr",
            tag("td", label),
            *(tag("td", format_short(config.get(k)), class_="name") for k in varying),
        )
        for label, config in zip(labels, configs, strict=True)
    )
    differing = table(headings, rows) if varying else None
    return tag(
        "div",
        tag("div", configuration(common)),
        tag("div", differing, class_="scroll"),
        class_="figures",
    )


def format_short(value: object) -> str:
    """A value of a configuration as text."""
    match value:
        case None:
            return DASH
        case Mapping():
            return ", ".join(f"{name}: {format_short(inner)}" for name, inner in value.items())
        case list() | tuple():
            return ", ".join(format_short(inner) for inner in value)
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)
