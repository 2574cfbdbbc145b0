"""The alerts on top of every page: the nodes that have failed."""

import time
from collections.abc import Sequence

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.cluster.front.web.layout import FAST, Section
from fairlead.cluster.front.web.markup import address, link, name
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.protocol.node_states import FAILED
from fairlead.model.duration_text import duration

SHOWN = 5  # nodes; of the others their number


def alerts(failed: Sequence[NodeView], *, live: bool) -> Section:
    """The section of the nodes that have failed, hidden where none has. live: fetched again and again."""
    kind = FAST if live else ""
    if not failed:
        return Section("alerts", "", Html(""), kind, hidden=True)
    have = "node has" if len(failed) == 1 else "nodes have"
    items = [tag("li", *_failure(node)) for node in failed[:SHOWN]]
    if len(failed) > SHOWN:
        more = f"and {len(failed) - SHOWN:,} more"
        items.append(tag("li", link(address("/nodes", state=FAILED), more)))
    body = tag("ul", *items, class_="banner bad")
    return Section("alerts", f"{len(failed):,} {have} failed", body, kind)


def _failure(node: NodeView) -> tuple[Html | str, ...]:
    """Which node, what is the matter, and since when."""
    where = link(address("/nodes", name=node.name), name(node.name))
    why = f": {node.reason}" if node.reason else ""
    return (tag("strong", where, f" is {node.state}"), _since(node.state_since_s), why)


def _since(seconds: float | None) -> Html:
    if seconds is None:
        return Html(" since before the server was started")
    at = time.gmtime(time.time() - seconds)
    moment = tag(
        "time",
        time.strftime("%Y-%m-%d %H:%M:%S UTC", at),
        datetime=time.strftime("%Y-%m-%dT%H:%M:%SZ", at),
    )
    return join(" since ", moment, f" ({duration(seconds)})")
