"""What every report has in common: the page, its sections, the configuration, the command."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from fairlead.analysis.report.svg import (
    clean,
    colour,
    dashes,
)
from fairlead.model.duration_text import DASH

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of HTML from its parts. Its own policy forbids it to reach the network."""
    files = resources.files("fairlead.analysis.report")
    style = files.joinpath("page.css").read_text("utf-8")
    script = files.joinpath("page.js").read_text("utf-8")
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<link rel="icon" href="data:,"><title>{clean(title)}</title><style>{style}</style></head>\n'
        f'<body>{"".join(parts)}<footer>Fairlead report</footer><div id="tip"></div>'
        f"<script>{script}</script></body></html>\n"
    )


def section(title: str, inner: str) -> str:
    """A part of the page under a heading; ``inner`` is HTML."""
    return f"<section><h2>{title}</h2>{inner}</section>"


def note(words: str) -> str:
    """A remark in small type."""
    return f"<p class='note'>{clean(words)}</p>"


def gallery(*pictures: tuple[str, str]) -> str:
    """Pictures (title, SVG) side by side where there is room."""
    inner = (f"<figure><h3>{clean(title)}</h3>{picture}</figure>" for title, picture in pictures)
    return f"<div class='figures'>{''.join(inner)}</div>"


def legend(entries: Sequence[tuple[str, int]]) -> str:
    """What each colour means: names and their series."""
    items = (
        f"<li><svg viewBox='0 0 26 10' aria-hidden='true'><path d='M0 5H26' stroke-width='4' "
        f"stroke='{colour(series)}' stroke-dasharray='{dashes(series) or 'none'}'/></svg>"
        f"{clean(name)}</li>"
        for name, series in entries
    )
    return f"<ul class='legend'>{''.join(items)}</ul>"


GLOSSARY = (
    "JCT: job completion time, from arrival to completion. Rho: finish-time fairness; isolated = JCT over "
    "the JCT under an equal, isolated share of the cluster; static = JCT over exclusive run time x max(1, "
    "jobs of the trace / devices); themis = the same with the mean number of jobs in the system while it "
    "was there. Above 1 a job did worse than under an equal split. Envy: how far two jobs differ in the "
    "part of the rounds from arrival to end in which they ran."
)


def setting(config: Mapping[str, object], metrics: Mapping[str, object]) -> str:
    """What was run on what, in one line."""
    cluster = config.get("cluster")
    parts = [
        f"{config['trace']}" if config.get("trace") else "",
        f"{metrics['n_jobs']:,} jobs" if isinstance(metrics.get("n_jobs"), int) else "",
        ", ".join(f"{count} {name}" for name, count in cluster.items())
        if isinstance(cluster, Mapping)
        else str(cluster or ""),
        f"rounds of {brief(config['round_s'])} s" if config.get("round_s") else "",
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


def reproduce(configs: Sequence[Mapping[str, object]], verb: str) -> str:
    """How to make these runs again: the ``command`` of each configuration, else built from its fields."""
    given = [config.get("command") for config in configs]
    lines = [line for line in dict.fromkeys(given) if isinstance(line, str)]
    known = bool(lines) and all(isinstance(line, str) for line in given)
    line = "\n".join(lines) if known else command(configs, verb)
    version = next((c["version"] for c in configs if c.get("version")), None)
    made = f"Made by Fairlead {version}. " if version else ""
    words = f"{made}The same input and seed give the same run, to the last bit."
    return f"<pre>{clean(line)}</pre>{note(words)}"


def configuration(config: Mapping[str, object]) -> str:
    """A configuration as a table."""
    rows = "".join(
        f"<tr><td>{clean(key)}</td><td class='name'>{clean(brief(value))}</td></tr>"
        for key, value in config.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def configurations(labels: Sequence[str], configs: Sequence[Mapping[str, object]]) -> str:
    """What all runs have in common once, the rest run by run."""
    keys = dict.fromkeys(key for config in configs for key in config)
    common = {
        key: configs[0].get(key)
        for key in keys
        if len({brief(config.get(key)) for config in configs}) == 1
    }
    own = [key for key in keys if key not in common]
    head = "".join(f"<th scope='col'>{clean(key)}</th>" for key in own)
    rows = "".join(
        f"<tr><td>{clean(label)}</td>"
        + "".join(f"<td class='name'>{clean(brief(config.get(key)))}</td>" for key in own)
        + "</tr>"
        for label, config in zip(labels, configs, strict=True)
    )
    differ = (
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        if own
        else ""
    )
    return f"<div class='figures'><div>{configuration(common)}</div><div class='scroll'>{differ}</div></div>"


def brief(value: object) -> str:
    """A value of a configuration, in few words."""
    match value:
        case None:
            return DASH
        case Mapping():
            return ", ".join(f"{name}: {brief(inner)}" for name, inner in value.items())
        case list() | tuple():
            return ", ".join(brief(inner) for inner in value)
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)
