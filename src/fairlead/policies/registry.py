"""Policies by name.

Adding a policy is one file and one line of ``BUILT_IN``; or, in another package, an entry point in the
group ``fairlead.policies`` whose name is the policy's and whose value is a ``Maker``.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

from fairlead.errors import ConfigError
from fairlead.model.plan import Planner, Policy
from fairlead.policies import recorded
from fairlead.policies.fifo import FifoAwareShares, FifoPlanner, FifoShares
from fairlead.policies.isolated import Isolated
from fairlead.policies.las import AgnosticLas, Las
from fairlead.policies.proportional import Proportional

GROUP = "fairlead.policies"
GAVEL = "gavel"  # the profile that wants policies as Gavel has them


@dataclass(frozen=True, slots=True)
class Request:
    """What a policy is made from: ``NAME[:ARG]``, the run's seed, the mechanism's profile."""

    argument: str | None
    seed: int
    profile: str


Maker: TypeAlias = Callable[[Request], Policy | Planner]


@dataclass(frozen=True, slots=True)
class Entry:
    """A name, its aliases, how to make it, and the class whose docstring tells the programme."""

    name: str
    aliases: tuple[str, ...]
    make: Maker
    documented: object
    argument: str = ""  # what stands behind the colon; empty = nothing may


@dataclass(frozen=True, slots=True)
class Description:
    """One line of ``fairlead policies``."""

    name: str
    aliases: tuple[str, ...]
    argument: str  # what stands behind a colon; empty = nothing
    programme: str  # the first line of the docstring
    source: str  # the package that it comes from


def _fifo(request: Request) -> Policy | Planner:
    return (
        FifoShares(request.seed) if request.profile == GAVEL else FifoPlanner(request.seed, False)
    )


def _fifo_aware(request: Request) -> Policy | Planner:
    return FifoAwareShares() if request.profile == GAVEL else FifoPlanner(request.seed, True)


def _las_aware(request: Request) -> Policy:
    return Las(central=request.profile == GAVEL)


def _recorded(request: Request) -> Policy:
    assert request.argument is not None
    return recorded.load(request.argument)


BUILT_IN = (
    Entry("isolated", (), lambda _: Isolated(), Isolated),
    Entry("proportional", (), lambda _: Proportional(), Proportional),
    Entry("fifo", (), _fifo, FifoShares),
    Entry("fifo_aware", ("fifo_perf",), _fifo_aware, FifoAwareShares),
    Entry(
        "las",
        ("max_min_fairness",),
        lambda request: AgnosticLas(central=request.profile == GAVEL),
        AgnosticLas,
    ),
    Entry("las_aware", ("max_min_fairness_perf",), _las_aware, Las),
    Entry("recorded", (), _recorded, recorded.Recorded, "LOG"),
)


def make(spec: str, *, seed: int, profile: str) -> Policy | Planner:
    """The policy or planner that ``NAME[:ARG]`` names."""
    name, colon, argument = spec.partition(":")
    request = Request(argument if colon else None, seed, profile)
    for entry in BUILT_IN:
        if name == entry.name or name in entry.aliases:
            _check_argument(spec, entry, request)
            return entry.make(request)
    for point in _plugins():
        if point.name == name:
            return _from_plugin(point, request)
    raise ConfigError(_unknown(name))


def describe() -> list[Description]:
    """Every policy that ``make`` knows, in the order of the registry, plug-ins last."""
    built_in = [
        Description(e.name, e.aliases, e.argument, _programme(e.documented), "fairlead")
        for e in BUILT_IN
    ]
    return built_in + [_describe_plugin(point) for point in _plugins()]


def _check_argument(spec: str, entry: Entry, request: Request) -> None:
    if entry.argument and not request.argument:
        raise ConfigError(f"policy {spec!r}: {entry.name} needs {entry.name}:{entry.argument}")
    if not entry.argument and request.argument is not None:
        raise ConfigError(f"policy {spec!r}: {entry.name} takes nothing after a colon")


def _plugins() -> Iterator[EntryPoint]:
    yield from sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _load(point: EntryPoint) -> Maker:
    try:
        maker: Maker = point.load()
    except (ImportError, AttributeError) as problem:
        raise ConfigError(
            f"policy {point.name!r}: entry point {point.value!r} cannot be loaded ({problem})"
        ) from None
    return maker


def _describe_plugin(point: EntryPoint) -> Description:
    try:
        programme = _programme(_load(point))
    except ConfigError as problem:
        programme = str(problem)
    source = point.dist.name if point.dist else point.module
    return Description(point.name, (), "", programme, source)


def _from_plugin(point: EntryPoint, request: Request) -> Policy | Planner:
    made = _load(point)(request)
    if not isinstance(made, Policy | Planner):
        raise ConfigError(
            f"policy {point.name!r}: entry point {point.value!r} made a {type(made).__name__}, "
            "which is neither a policy nor a planner"
        )
    return made


def _unknown(name: str) -> str:
    names = [n for e in BUILT_IN for n in (e.name, *e.aliases)] + [p.name for p in _plugins()]
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"policy {name!r}: no such policy, there are {', '.join(names)}{hint}"


def _programme(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]
