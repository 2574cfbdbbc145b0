"""What a job that waits is told of nodes that its engine was asked for."""

from collections.abc import Iterator

import msgspec

from fairlead.cluster.protocol.api_models import Explanation
from fairlead.cluster.protocol.engine_views import EngineView


def with_nodes_asked_for(told: Explanation, engine: EngineView) -> Explanation:
    """Return the explanation of a job with sentences on nodes that are to come, if it waits for devices."""
    job = told.job
    if job.state not in ("waiting", "preempted") or job.node:
        return told
    more = tuple(_sentences(engine, set(job.rates)))
    if not more:
        return told
    why = " ".join((told.why_here, *more))
    return msgspec.structs.replace(told, facts=(*told.facts, *more), why_here=why)


def _sentences(engine: EngineView, accelerators: set[str]) -> Iterator[str]:
    """accelerators: on which it runs, of those that are known; none = nobody knows."""
    if engine.trouble:
        yield f"Engine {engine.engine} cannot be asked for nodes: {engine.trouble}."
    for one in engine.types:
        if accelerators and one.accelerator not in accelerators:
            continue
        if one.queued:
            whys = {
                launch.why for launch in engine.launches if launch.accelerator == one.accelerator
            }
            why = ", ".join(sorted(whys - {""}))
            nodes = "1 node" if one.queued == 1 else f"{one.queued} nodes"
            wait = "waits" if one.queued == 1 else "wait"
            yield (
                f"Engine {engine.engine} was asked for {nodes} of {one.accelerator}, which {wait}"
                f"{f' ({why})' if why else ''}."
            )
        elif one.hindered:
            yield f"Of {one.accelerator}, {one.why}."
