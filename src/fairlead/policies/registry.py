"""Policies by name.

Adding a policy is one file and one line of ``BUILT_IN`` in this one; or, in another package, an entry point
in the group ``fairlead.policies`` whose name is the policy's and whose value is a ``PolicyFactory``.
"""

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from fairlead.errors import ConfigError, FairleadWarning
from fairlead.model.argument_checks import brief_repr
from fairlead.model.near_names import did_you_mean
from fairlead.model.plan import Planner, Policy
from fairlead.model.third_party import third_party_call
from fairlead.policies import recorded
from fairlead.policies.allox import AlloX
from fairlead.policies.cost import (
    MinCost,
    MinCostDeadlines,
    SpaceSharingThroughputPerCostDeadlines,
    ThroughputPerCost,
    ThroughputPerCostDeadlines,
)
from fairlead.policies.elastic.objectives import OBJECTIVES
from fairlead.policies.elastic.optimus import Optimus
from fairlead.policies.elastic.planner import ElasticPlanner, best_by
from fairlead.policies.entities import requested_entities
from fairlead.policies.fifo import FastestFirstFifo, FifoPlanner, FifoShares
from fairlead.policies.finish_time import AgnosticFinishTime, FinishTime, SpaceSharingFinishTime
from fairlead.policies.gandiva.planner import Gandiva
from fairlead.policies.gandiva_fair import GandivaFair
from fairlead.policies.gandiva_packing import GandivaPacking
from fairlead.policies.gavel_reference import factories as gavel_reference
from fairlead.policies.isolated import Isolated
from fairlead.policies.las import AgnosticLas, Las, SpaceSharingLas
from fairlead.policies.makespan import AgnosticMakespan, Makespan, SpaceSharingMakespan
from fairlead.policies.nash import Nash, StrategyProof
from fairlead.policies.partition import Partition
from fairlead.policies.proportional import Proportional
from fairlead.policies.python_random_stream import PythonRandomStream
from fairlead.policies.recorded_rounds import load_rounds
from fairlead.policies.request import PolicyFactory, PolicyRequest
from fairlead.policies.shockwave.options import PRESETS, read_options
from fairlead.policies.shockwave.planner import Shockwave
from fairlead.policies.shockwave_reference import factories as shockwave_reference
from fairlead.policies.shortest_job import ShortestJobFirst, ShortestRemainingTimeFirst
from fairlead.policies.simple_share import SimpleShare
from fairlead.policies.space_sharing_fifo import SpaceSharingFifo
from fairlead.policies.tiresias import Tiresias
from fairlead.policies.total_throughput import (
    NormalisedThroughput,
    SpaceSharingThroughput,
    TotalThroughput,
)
from fairlead.policies.water_filling import (
    AgnosticWaterFilling,
    SpaceSharingWaterFilling,
    WaterFilling,
)

GROUP = "fairlead.policies"
# profile -> name of a policy -> makes it as the release does that the profile reproduces
RELEASES: dict[str, Mapping[str, PolicyFactory]] = {
    "gavel": gavel_reference.FACTORIES,
    "shockwave": shockwave_reference.FACTORIES,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A name, its aliases, how to make it, and the class whose docstring tells the program."""

    name: str
    aliases: tuple[str, ...]
    make: PolicyFactory
    documented: object
    argument: str = ""  # what stands behind the colon; empty = nothing may; [in brackets] = it may
    names_file: bool = False  # the argument does


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyDescription:
    """One line of ``fairlead policies``."""

    name: str
    aliases: tuple[str, ...]
    argument: str  # what stands behind a colon; empty = nothing
    program: str  # the first line of the docstring
    source: str  # the package that it comes from


def _tiresias(request: PolicyRequest) -> Planner:
    return Tiresias.of(request.argument, request.seed)


def _gandiva_packing(request: PolicyRequest) -> Policy:
    return GandivaPacking(random=PythonRandomStream(request.seed))


def _elastic(name: str, _: PolicyRequest) -> Planner:
    return ElasticPlanner(decide=best_by(OBJECTIVES[name]()), name=name)


def _optimus(_: PolicyRequest) -> Planner:
    return ElasticPlanner(decide=Optimus().decide, name="optimus")


def _partition(request: PolicyRequest) -> Policy:
    assert request.argument is not None
    parts, colon, spec = request.argument.partition(":")
    if not colon or not spec:
        raise ConfigError(
            f"policy 'partition:{request.argument}': partition needs partition:K:POLICY"
        )
    inner = make(spec, seed=request.seed, profile=request.profile)
    if not isinstance(inner, Policy):
        raise ConfigError(
            f"policy 'partition': {spec!r} plans rounds itself and has no shares to join"
        )
    return Partition.of(parts, inner, request.seed)


def _recorded(request: PolicyRequest) -> Policy | Planner:
    assert request.argument is not None
    return load_rounds(request.argument) or recorded.load(request.argument)


BUILT_IN = (
    Entry("isolated", (), lambda _: Isolated(), Isolated),
    Entry("proportional", (), lambda _: Proportional(), Proportional),
    Entry("fifo", (), lambda request: FifoPlanner(request.seed, False), FifoShares),
    Entry(
        "fifo_aware",
        ("fifo_perf",),
        lambda request: FifoPlanner(request.seed, True),
        FastestFirstFifo,
    ),
    Entry(
        "las",
        ("max_min_fairness", "gavel_las"),
        lambda _: AgnosticLas(),
        AgnosticLas,
    ),
    Entry("las_aware", ("max_min_fairness_perf",), lambda _: Las(), Las),
    Entry(
        "las_packed",
        ("max_min_fairness_packed",),
        lambda _: SpaceSharingLas(),
        SpaceSharingLas,
    ),
    Entry(
        "makespan", ("min_total_duration", "ossp"), lambda _: AgnosticMakespan(), AgnosticMakespan
    ),
    Entry(
        "makespan_aware",
        ("min_total_duration_perf",),
        lambda _: Makespan(),
        Makespan,
    ),
    Entry(
        "makespan_packed",
        ("min_total_duration_packed",),
        lambda _: SpaceSharingMakespan(),
        SpaceSharingMakespan,
    ),
    Entry(
        "finish_time", ("finish_time_fairness",), lambda _: AgnosticFinishTime(), AgnosticFinishTime
    ),
    Entry(
        "finish_time_aware",
        ("finish_time_fairness_perf", "themis"),
        lambda _: FinishTime(),
        FinishTime,
    ),
    Entry(
        "finish_time_packed",
        ("finish_time_fairness_packed",),
        lambda _: SpaceSharingFinishTime(),
        SpaceSharingFinishTime,
    ),
    Entry("fifo_packed", (), lambda _: SpaceSharingFifo(), SpaceSharingFifo),
    Entry("shortest_job_first", ("sjf",), lambda _: ShortestJobFirst(), ShortestJobFirst),
    Entry("srtf", (), lambda _: ShortestRemainingTimeFirst(), ShortestRemainingTimeFirst),
    Entry("tiresias", (), _tiresias, Tiresias, "[S,...,promote=K]"),
    Entry("allox", ("allox_alpha",), lambda request: AlloX.of(request.argument), AlloX, "[ALPHA]"),
    Entry(
        "gandiva",
        (),
        lambda request: Gandiva.of(request.argument),
        Gandiva,
        "[no-MECHANISM,...]",
    ),
    *(
        Entry(name, (), partial(_elastic, name), OBJECTIVES[name])
        for name in ("sia", "pollux", "goodput", "elastic_srpt")
    ),
    Entry("optimus", (), _optimus, Optimus),
    Entry("gandiva_packing", (), _gandiva_packing, GandivaPacking),
    Entry("gandiva_fair", (), lambda _: GandivaFair(), GandivaFair),
    Entry(
        "isolated_plus", (), lambda _: SimpleShare(strict=True, name="isolated_plus"), SimpleShare
    ),
    Entry(
        "total_throughput",
        ("max_sum_throughput_perf", "mst"),
        lambda _: TotalThroughput(),
        TotalThroughput,
    ),
    Entry(
        "total_throughput_normalised", (), lambda _: NormalisedThroughput(), NormalisedThroughput
    ),
    Entry(
        "total_throughput_packed",
        ("max_sum_throughput_packed",),
        lambda _: SpaceSharingThroughput(),
        SpaceSharingThroughput,
    ),
    Entry(
        "throughput_per_cost",
        ("max_sum_throughput_normalized_by_cost_perf",),
        lambda _: ThroughputPerCost(),
        ThroughputPerCost,
    ),
    Entry(
        "throughput_per_cost_slo",
        ("max_sum_throughput_normalized_by_cost_perf_SLOs",),
        lambda _: ThroughputPerCostDeadlines(),
        ThroughputPerCostDeadlines,
    ),
    Entry(
        "throughput_per_cost_packed_slo",
        ("max_sum_throughput_normalized_by_cost_packed_SLOs",),
        lambda _: SpaceSharingThroughputPerCostDeadlines(),
        SpaceSharingThroughputPerCostDeadlines,
    ),
    Entry("min_cost", (), lambda _: MinCost(), MinCost),
    Entry("min_cost_slo", (), lambda _: MinCostDeadlines(), MinCostDeadlines),
    Entry("nash", ("proportional_fairness",), lambda _: Nash(), Nash),
    Entry(
        "strategy_proof",
        ("max_min_fairness_strategy_proof_perf", "strategy_proof_perf"),
        lambda _: StrategyProof(),
        StrategyProof,
    ),
    Entry("partition", (), _partition, Partition, "K:POLICY"),
    Entry(
        "water_filling",
        ("max_min_fairness_water_filling",),
        lambda request: AgnosticWaterFilling(entities=requested_entities(request.argument)),
        AgnosticWaterFilling,
        "[ENTITIES.toml]",
        names_file=True,
    ),
    Entry(
        "water_filling_aware",
        ("max_min_fairness_water_filling_perf",),
        lambda request: WaterFilling(entities=requested_entities(request.argument)),
        WaterFilling,
        "[ENTITIES.toml]",
        names_file=True,
    ),
    Entry(
        "water_filling_packed",
        ("max_min_fairness_water_filling_packed",),
        lambda request: SpaceSharingWaterFilling(entities=requested_entities(request.argument)),
        SpaceSharingWaterFilling,
        "[ENTITIES.toml]",
        names_file=True,
    ),
    Entry(
        "shockwave",
        (),
        lambda request: Shockwave(read_options(request.argument or "default")),
        Shockwave,
        "[CONFIG]",
        names_file=True,
    ),
    Entry("recorded", (), _recorded, recorded.Recorded, "LOG", names_file=True),
)


def make(spec: str, *, seed: int, profile: str) -> Policy | Planner:
    """The policy or planner that ``NAME[:ARG]`` names."""
    name, *argument = re.split("[:=]", spec, maxsplit=1)  # Gavel writes NAME=ARG
    request = PolicyRequest(argument[0] if argument else None, seed, profile)
    for entry in BUILT_IN:
        if name == entry.name or name in entry.aliases:
            _warn_of_namesakes(name)
            _check_argument(spec, entry, request)
            return RELEASES.get(profile, {}).get(entry.name, entry.make)(request)
    for point in _plugins():
        if point.name == name:
            return _from_plugin(point, request)
    raise ConfigError(_unknown(name))


def may_read_file(spec: str) -> bool:
    """Return whether to make a policy may read a file that its text names: not for people who may not read it
    themselves. Of installed policies nobody knows what they do with an argument."""
    name, *argument = re.split("[:=]", spec, maxsplit=1)
    if not argument:
        return False
    entry = next((one for one in BUILT_IN if name == one.name or name in one.aliases), None)
    if entry is None:
        return True
    if entry.name == "partition":
        return may_read_file(argument[0].partition(":")[2])
    is_preset = entry.name == "shockwave" and argument[0] in PRESETS
    return entry.names_file and not is_preset


def code_files(spec: str) -> list[Path]:
    """The files whose code an installed policy is made of: its module's, or all of its package's; none of a
    built-in policy, whose code is Fairlead's own."""
    name = re.split("[:=]", spec, maxsplit=1)[0]
    if any(name in (entry.name, *entry.aliases) for entry in BUILT_IN):
        return []
    for point in _plugins():
        if point.name == name:
            return _files_of(point.module)
    return []


def _files_of(module: str) -> list[Path]:
    try:
        found = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return []
    if found is None or not found.origin:
        return []
    if found.submodule_search_locations:
        return sorted(
            path for at in found.submodule_search_locations for path in Path(at).rglob("*.py")
        )
    return [Path(found.origin)]


def listed_name(spec: str) -> str:
    """``NAME[:ARG]`` with the name that ``describe`` lists, where it is another name of a built-in policy."""
    name = re.split("[:=]", spec, maxsplit=1)[0]
    entry = next((entry for entry in BUILT_IN if name in entry.aliases), None)
    return spec if entry is None else entry.name + spec[len(name) :]


def describe() -> list[PolicyDescription]:
    """Every policy that ``make`` knows, in the order of the registry, plug-ins last. Warns of plug-ins that
    it does not know, since a built-in policy has their name."""
    built_in = [
        PolicyDescription(
            name=e.name,
            aliases=e.aliases,
            argument=e.argument,
            program=_program(e.documented),
            source="fairlead",
        )
        for e in BUILT_IN
    ]
    taken = {name for e in BUILT_IN for name in (e.name, *e.aliases)}
    for name in sorted(taken & {point.name for point in _plugins()}):
        _warn_of_namesakes(name)
    return built_in + [_describe_plugin(point) for point in _plugins() if point.name not in taken]


def _check_argument(spec: str, entry: Entry, request: PolicyRequest) -> None:
    if entry.argument and not request.argument and not entry.argument.startswith("["):
        raise ConfigError(f"policy {spec!r}: {entry.name} needs {entry.name}:{entry.argument}")
    if entry.argument and request.argument == "":
        raise ConfigError(f"policy {spec!r}: there is nothing after the colon")
    if not entry.argument and request.argument is not None:
        raise ConfigError(f"policy {spec!r}: {entry.name} takes nothing after a colon")


def _plugins() -> Iterator[EntryPoint]:
    yield from sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _warn_of_namesakes(name: str) -> None:
    """Warn of plug-ins that have the name of a built-in policy: they are never made."""
    for point in _plugins():
        if point.name == name:
            warnings.warn(
                f"policy {name!r} is the built-in one; the entry point of this name in {_source(point)} "
                "is not used: it needs another name",
                FairleadWarning,
                stacklevel=3,
            )


def _source(point: EntryPoint) -> str:
    """The package that it comes from."""
    return point.dist.name if point.dist else point.module


def _load(point: EntryPoint) -> PolicyFactory:
    with third_party_call(f"policy {point.name!r}: entry point {point.value!r}", ConfigError):
        try:
            maker: PolicyFactory = point.load()
        except (ImportError, AttributeError) as problem:
            raise ConfigError(
                f"policy {point.name!r}: entry point {point.value!r} cannot be loaded ({problem})"
            ) from None
    return maker


def _describe_plugin(point: EntryPoint) -> PolicyDescription:
    try:
        program = _program(_load(point))
    except ConfigError as problem:
        program = str(problem)
    return PolicyDescription(
        name=point.name, aliases=(), argument="", program=program, source=_source(point)
    )


def _from_plugin(point: EntryPoint, request: PolicyRequest) -> Policy | Planner:
    maker = _load(point)
    with third_party_call(f"policy {point.name!r}: entry point {point.value!r}"):
        made = maker(request)
    if not isinstance(made, Policy | Planner):
        raise ConfigError(
            f"policy {point.name!r}: entry point {point.value!r} returned {brief_repr(made)}, "
            "which is neither a policy nor a planner"
        )
    return made


def _unknown(name: str) -> str:
    names = [n for e in BUILT_IN for n in (e.name, *e.aliases)] + [p.name for p in _plugins()]
    meant = did_you_mean(name, names)
    if meant:
        return f"policy {name!r}: no such policy{meant} (fairlead policies)"
    known = ", ".join(entry.name for entry in BUILT_IN)
    return f"policy {name!r}: no such policy, there are {known}"


def _program(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]
