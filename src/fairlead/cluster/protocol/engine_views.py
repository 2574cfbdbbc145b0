"""What people are told of the engine that starts nodes."""

import msgspec


class NodeTypeView(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of an accelerator type that an engine starts."""

    accelerator: str
    devices: int  # of a node
    minimum: int
    maximum: int
    running: int  # nodes
    queued: int  # nodes that were asked for and wait
    ending: int  # of those that run: taken away soon, or given back
    price: float  # jobs at their best rate that one device more would bring
    asks: int  # nodes that are asked for now
    gives_back: int  # nodes that are given back now
    why: str  # a sentence without a full stop
    hindered: bool = False  # none is asked for though jobs would run faster: ``why`` says why


class LaunchView(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was asked for."""

    id: str  # the engine's: with Slurm the number of the job
    node: str
    accelerator: str
    state: str  # "queued", "running" or "given back"
    left_s: float | None  # until it is taken away; None = not known
    why: str = ""  # why it waits, in the engine's words


class EngineView(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, and what would be asked of it now."""

    engine: str
    dry_run: bool
    age_s: float | None  # of this view; None = nothing was looked at yet
    trouble: str  # why the engine cannot be asked; "" = it can
    types: tuple[NodeTypeView, ...]
    launches: tuple[LaunchView, ...]
