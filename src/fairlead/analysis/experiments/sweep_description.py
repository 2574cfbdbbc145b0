"""A sweep as people describe it, in a TOML file or by options: the same keys, the same checks."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from fairlead.analysis.experiments.sweep import Automatic, Spec
from fairlead.analysis.experiments.sweep_loads import loads
from fairlead.errors import ClusterError, ConfigError, InputError
from fairlead.model.near_names import did_you_mean
from fairlead.model.toml import read_toml
from fairlead.policies import registry
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.cluster_files import parse_cluster

SWEEP_KEYS = ("policies", "profiles", "seeds", "rates", "jobs", "utilization_threshold", "cutoff")
POLICIES = ("las", "las_aware")
_TYPES = get_type_hints(SimulationInput)
_LISTS = ("restart_cost", "resume_cost")  # whose values are lists themselves
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def read_table(path: Path) -> dict[str, Any]:
    """A TOML file as a table, or ConfigError."""
    return read_toml(path, ConfigError)


def described(table: Mapping[str, Any], where: str, names: Mapping[str, str]) -> Spec:
    """The sweep that a table describes. where: names the table in errors; names: keys of the table by
    field of the input. Every key of the input may have a list of values: a line each."""
    return _Reader(table, where, names).spec()


class _Reader:
    def __init__(self, table: Mapping[str, Any], where: str, names: Mapping[str, str]) -> None:
        self.table, self.where, self.names = table, where, names

    def spec(self) -> Spec:
        keys = [*SWEEP_KEYS, *(key for field, key in self.names.items() if field != "seed")]
        for key in self.table:
            if key not in keys:
                choice = did_you_mean(key, keys) or f" (known: {', '.join(keys)})"
                raise self._error(key, f"is not a key of a sweep{choice}")
        given = self._input()
        fixed = {name: values[0] for name, values in given.items() if len(values) == 1}
        vary = {name: values for name, values in given.items() if len(values) > 1}
        spec = Spec(
            policies=self._list("policies", str, POLICIES),
            profiles=self._list("profiles", str, ("default",)),
            seeds=self._list("seeds", int, (0,)),
            input=SimulationInput(**fixed),
            vary=vary,
        )
        spec = self._with_cutoffs(self._with_loads(spec))
        self._check(spec)
        return spec

    # --- values ----------------------------------------------------------------------------------

    def _input(self) -> dict[str, list[Any]]:
        """The values of each field that is given."""
        found: dict[str, list[Any]] = {}
        for field in fields(SimulationInput):
            key = self.names[field.name]
            if key not in self.table or field.name == "seed":
                continue
            value = self.table[key]
            if field.name in _LISTS:
                found[field.name] = [self._costs(key, value)]
                continue
            several = value if isinstance(value, list) else [value]
            if not several:
                raise self._error(key, "expected at least one value, got none")
            values = [self._typed(key, one, _TYPES[field.name]) for one in several]
            found[field.name] = [one for at, one in enumerate(values) if one not in values[:at]]
        return found

    def _list(self, key: str, kind: type, default: tuple[Any, ...]) -> tuple[Any, ...]:
        """One value or a list of them."""
        if key not in self.table:
            return default
        value = self.table[key]
        several = value if isinstance(value, list) else [value]
        if not several:
            raise self._error(key, "expected at least one value, got none")
        found = [self._typed(key, one, kind) for one in several]
        if kind is int and min(found) < 0:
            raise self._error(key, f"must be >= 0, got {min(found)}")
        return tuple(dict.fromkeys(found))

    def _costs(self, key: str, value: Any) -> list[str]:
        """Seconds or FAMILY=SECONDS, or a list of them, as the texts that the option takes."""
        several = value if isinstance(value, list) else [value]
        for one in several:
            if isinstance(one, bool) or not isinstance(one, (int, float, str)):
                text = f"expected seconds or FAMILY=SECONDS, or a list of them, got {one!r}"
                raise self._error(key, text)
        return [str(one) for one in several]

    def _typed(self, key: str, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            words = [text for one, text in _KINDS.items() if one in _members(kind)]
            raise self._error(key, f"expected {' or '.join(words)}, got {value!r}") from None

    def _error(self, key: str, problem: object) -> ConfigError:
        return ConfigError(f"{self.where}: {key}: {problem}")

    # --- loads -----------------------------------------------------------------------------------

    def _with_loads(self, spec: Spec) -> Spec:
        rates, jobs = (self._texts(key) for key in ("rates", "jobs"))
        if rates is not None and jobs is not None:
            raise self._error(
                "rates", "goes without jobs: loads are either rates or numbers of jobs"
            )
        automatic = rates is not None and str(rates[0]).partition(":")[0] == "auto"
        if "utilization_threshold" in self.table and not automatic:
            raise self._error("utilization_threshold", "goes with rates = auto")
        traces = spec.input.trace is not None or "trace" in spec.vary
        if traces:
            for key in ("rates", "jobs"):
                if key in self.table:
                    raise self._error(key, "goes with generated jobs, not with a trace")
            return replace(spec, axis="none")
        if jobs is not None:
            return replace(spec, axis="jobs", loads=self._loads("jobs", jobs, True))
        if rates is None:
            raise ConfigError(f"{self.where}: give loads: rates, jobs, or a trace")
        if automatic:
            return replace(spec, axis="rates", automatic=self._automatic(rates))
        return replace(spec, axis="rates", loads=self._loads("rates", rates, False))

    def _texts(self, key: str) -> list[str | float] | None:
        if key not in self.table:
            return None
        value = self.table[key]
        several = value if isinstance(value, list) else [value]
        if not several:
            raise self._error(key, "expected at least one load, got none")
        return [self._typed(key, one, float | str) for one in several]

    def _loads(self, key: str, texts: list[str | float], whole: bool) -> tuple[float, ...]:
        try:
            return loads(texts, whole)
        except ConfigError as problem:
            raise self._error(key, problem) from None

    def _automatic(self, rates: list[str | float]) -> Automatic:
        """``auto`` or ``auto:FIRST:STEP``."""
        threshold = self._typed(
            "utilization_threshold", self.table.get("utilization_threshold", 0.98), float
        )
        if not 0 < threshold <= 1:
            raise self._error("utilization_threshold", f"must be in (0, 1], got {threshold}")
        _, *parts = str(rates[0]).split(":")
        try:
            first, step = map(float, parts) if parts else (None, None)
        except ValueError:
            first, step = 0.0, 0.0
        if len(rates) > 1 or (first is not None and not (first > 0 and step and step > 0)):
            raise self._error("rates", f"expected auto or auto:FIRST:STEP, got {rates[0]!r}")
        return Automatic(threshold, first, step)

    # --- what can be told only together ----------------------------------------------------------

    def _with_cutoffs(self, spec: Spec) -> Spec:
        """Gavel's file: {cluster: {policy: rate}}."""
        if "cutoff" not in self.table:
            return spec
        path = Path(self._typed("cutoff", self.table["cutoff"], str))
        try:
            content = msgspec.convert(json.loads(path.read_text()), dict[str, dict[str, float]])
        except OSError as problem:
            raise self._error("cutoff", f"{path}: cannot be read ({problem.strerror})") from None
        except (ValueError, msgspec.ValidationError) as problem:
            text = f"{path}: expected JSON as {{cluster: {{policy: rate}}}}: {problem}"
            raise self._error("cutoff", text) from None
        found = {}
        for name, (line, given) in spec.lines().items():
            for cluster, by_policy in content.items():
                limits = {_canonical_name(policy): rate for policy, rate in by_policy.items()}
                if _same(cluster, given.cluster) and _canonical_name(line.policy) in limits:
                    found[name] = limits[_canonical_name(line.policy)]
        return replace(spec, cutoffs=found)

    def _check(self, spec: Spec) -> None:
        """Put every line together once, so that nothing begins that cannot be run."""
        load = max(spec.loads, default=None) if spec.axis != "none" else None
        if spec.automatic is not None:
            load = 1.0
        for name in spec.lines():
            point = spec.point(name, load, spec.seeds[0])
            try:
                point.input.prepare(point.policy, point.profile)
            except InputError as problem:
                raise ConfigError(f"{self.where}: {name}: {problem}") from None


def _members(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__args__", (kind,))


def _same(one: str, other: str) -> bool:
    """Return whether two texts describe the same cluster."""
    try:
        return one == other or parse_cluster(one).nodes == parse_cluster(other).nodes
    except ClusterError:
        return False


def _canonical_name(policy: str) -> str:
    """A policy's own name, for one of its aliases."""
    name, colon, argument = policy.partition(":")
    for known in registry.describe():
        if name in known.aliases:
            name = known.name
    return name + colon + argument
