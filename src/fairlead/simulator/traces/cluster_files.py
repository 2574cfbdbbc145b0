"""A cluster from the command line or from a TOML file (docs/formats.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlead.errors import ClusterError
from fairlead.model.argument_checks import (
    TEXT,
    check_arguments,
    instance_of,
    mapping_to_numbers,
    or_none,
)
from fairlead.model.cluster import Cluster, Node
from fairlead.model.limits import MAX_DEVICES, MAX_NUMBER
from fairlead.model.near_names import did_you_mean
from fairlead.model.option_text import parse_options
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines

# $ per device-hour on Google Cloud, as Gavel's evaluation uses them (OSDI'20). Others are free.
DEFAULT_PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
GAVEL_ORDER = ("v100", "p100", "k80")  # of its A:B:C notation


_TYPES = {
    "spec": TEXT,
    "devices_per_server": or_none(TEXT),
    "prices": or_none(
        mapping_to_numbers(instance_of(str), "$ per device-hour by accelerator type")
    ),
}


def parse_cluster(
    spec: str,
    devices_per_server: str | None = None,
    prices: Mapping[str, float] | None = None,
) -> Cluster:
    """``v100=36,p100=36,k80=36``, Gavel's ``36:36:36`` (v100:p100:k80), or a TOML file of nodes.

    devices_per_server: ``4`` for every type, or one number per type as in ``spec`` (default 1).
    prices: $ per device-hour, over those of the file and over the defaults.
    """
    given = {"spec": spec, "devices_per_server": devices_per_server, "prices": prices}
    check_arguments("parse_cluster", given, _TYPES, ClusterError)
    if not spec.strip():
        raise ClusterError("cluster: must not be empty; an example is v100=8,p100=16,k80=24")
    if _is_file(spec):
        if devices_per_server is not None:
            raise ClusterError(f"{spec}: states its nodes; devices per server cannot be given too")
        with naming_lines(Path(spec)):
            nodes, listed = _read_toml(Path(spec))
        return priced(Cluster(nodes), {**listed, **(prices or {})})
    counts = _counts("cluster", spec)
    per_server = _per_server(devices_per_server, counts)
    return priced(Cluster.of(counts, per_server), prices or {})


def parse_prices(text: str) -> dict[str, float]:
    """``v100=0.74,k80=0.135`` in $ per device-hour."""
    prices = {}
    given = parse_options(text, "prices", expected="NAME=NUMBER", error=ClusterError)
    for name, value in given.items():
        try:
            if "_" in value:
                raise ValueError  # Python would read 1_000 as a number
            prices[name] = float(value)
        except ValueError:
            raise ClusterError(f"prices: {name}: expected a number, got {value!r}") from None
    return prices


def stated_prices(path: Path) -> dict[str, float]:
    """The prices that a TOML file of nodes states, without defaults, in $ per device-hour."""
    with naming_lines(path):
        return _read_toml(path)[1]


def _is_file(spec: str) -> bool:
    if "=" in spec or ":" in spec:
        return False
    try:
        return spec.endswith(".toml") or Path(spec).exists()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


def priced(cluster: Cluster, given: Mapping[str, float]) -> Cluster:
    """The cluster with these prices in $ per device-hour, over the defaults."""
    for name in given:
        if name not in cluster.accelerators:
            have = ", ".join(cluster.accelerators)
            raise ClusterError(f"prices: {name!r} is not in the cluster, which has {have}")
    prices = {**DEFAULT_PRICES, **given}
    return Cluster(cluster.nodes, {a: prices[a] for a in cluster.accelerators if a in prices})


def _counts(what: str, text: str) -> dict[str, int]:
    """Numbers by accelerator type from either notation."""
    if "=" in text:
        pairs = parse_options(text, what, expected="NAME=NUMBER", error=ClusterError)
    else:
        parts = text.split(":")
        if len(parts) != len(GAVEL_ORDER):
            raise ClusterError(
                f"{what}: expected NAME=NUMBER,..., {':'.join(GAVEL_ORDER)} or a TOML file, "
                f"got {text!r}"
            )
        pairs = dict(zip(GAVEL_ORDER, parts, strict=True))
    return {name: _whole(what, name, value) for name, value in pairs.items()}


def _whole(what: str, name: str, text: str) -> int:
    try:
        if "_" in text:
            raise ValueError  # Python would read 1_000 as a number
        return int(text)
    except ValueError:
        raise ClusterError(f"{what}: {name}: expected a whole number, got {text!r}") from None


def _per_server(text: str | None, counts: Mapping[str, int]) -> int | dict[str, int]:
    what = "devices per server"
    if text is None:
        return 1
    if "=" not in text and ":" not in text:
        return _whole(what, "all types", text)
    given = _counts(what, text)
    for name in given:
        if name not in counts and "=" in text:
            raise ClusterError(f"{what}: {name!r} is not in the cluster")
    return given


def _read_toml(path: Path) -> tuple[tuple[Node, ...], dict[str, float]]:
    """``[[node]]`` tables with name, accelerator, devices and optionally count; ``[prices]``."""
    document = read_toml(path, ClusterError)
    _only(path, "the file", document, {"node", "prices"})
    tables = document.get("node", [])
    if not isinstance(tables, list) or not tables:
        raise ClusterError(f"{path}: needs at least one [[node]] table")
    nodes = [node for at, table in enumerate(tables, 1) for node in _nodes(path, at, table)]
    return tuple(nodes), _toml_prices(path, document.get("prices", {}))


def _only(path: Path, where: str, table: Mapping[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            choice = did_you_mean(key, known) or f"; known: {sorted(known)}"
            raise ClusterError(f"{path}: {where}: unknown key {key!r}{choice}")


def _nodes(path: Path, at: int, table: Any) -> list[Node]:
    """The nodes of one table: one, or ``count`` of them named NAME-0, NAME-1, ..."""
    where = f"node {at}"
    if not isinstance(table, dict):
        raise ClusterError(f"{path}: {where}: expected a table, got {table!r}")
    _only(path, where, table, {"name", "accelerator", "devices", "count"})
    name = _toml_value(path, where, table, "name", str)
    accelerator = _toml_value(path, where, table, "accelerator", str)
    devices = _toml_value(path, where, table, "devices", int)
    if "count" not in table:
        return [Node(name, accelerator, devices)]
    count = _toml_value(path, where, table, "count", int)
    if count * devices > MAX_DEVICES:
        raise ClusterError(
            f"{path}: {where}: count: at most {MAX_DEVICES} devices in all, got {count} x {devices}"
        )
    return [Node(f"{name}-{i}", accelerator, devices) for i in range(count)]


def _toml_value(
    path: Path, where: str, table: dict[str, Any], key: str, value_type: type[Any]
) -> Any:
    value = table.get(key)
    if value is None:
        raise ClusterError(f"{path}: {where}: {key!r} is missing")
    if value_type is str:
        prices, good = "a name", isinstance(value, str) and value != ""
    else:
        prices, good = "a whole number >= 1", type(value) is int and value >= 1
    if not good:
        raise ClusterError(f"{path}: {where}: {key}: expected {prices}, got {value!r}")
    return value


def _toml_prices(path: Path, table: Any) -> dict[str, float]:
    if not isinstance(table, dict):
        raise ClusterError(f"{path}: [prices]: expected a table, got {table!r}")
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClusterError(f"{path}: [prices] {name}: expected a number, got {value!r}")
        if not 0 <= value <= MAX_NUMBER:
            raise ClusterError(
                f"{path}: [prices] {name}: must be a number from 0 to {MAX_NUMBER:g}, got {value!r}"
            )
    return {name: float(value) for name, value in table.items()}
