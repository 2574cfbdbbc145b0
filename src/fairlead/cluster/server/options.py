"""The options of a server, read and checked."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fairlead.cluster.autoscaling.engine_config import EngineConfig
from fairlead.cluster.front.transport import Tls
from fairlead.cluster.protocol.read_job_spec import ACCELERATOR
from fairlead.cluster.server.runtime_options import DEFAULT_RUNTIME, RuntimeOptions
from fairlead.cluster.server.webhook import Webhook
from fairlead.cluster.store.tokens import check_name
from fairlead.errors import ConfigError
from fairlead.estimation.registry import check_spec
from fairlead.model.argument_checks import check_both_or_none
from fairlead.model.cluster import Node
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler.mechanism.round_length import AUTO
from fairlead.scheduler.mechanism.settings import PROFILES, MechanismSettings
from fairlead.simulator.traces.cluster_files import (
    DEFAULT_PRICES,
    parse_cluster,
    parse_prices,
    stated_prices,
)
from fairlead.simulator.traces.throughput_tables import read_throughputs

DEFAULT_POLICY = "max_min_fairness_perf"  # of a new cluster: LAS with regard to types
MAX_PRICE = 1e6  # $ per device-hour


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options of a live cluster; all times in seconds."""

    policy: str
    profile: MechanismSettings
    catalogue: Throughputs
    nodes: tuple[Node, ...] | None = None  # None: whatever agents register
    prices: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    lease_s: float = 30.0
    heartbeat_s: float = 2.0  # the shortest; see Fleet
    rate_bound: float = 0.01  # drift between the clocks of two machines, relative
    mtbf_s: float = 86400.0  # of a node, as long as nothing is known of it
    solve_limit_s: float = 60.0
    automatic_round: bool = False  # the length of rounds follows from what switches cost
    early_round_end: bool = False  # rounds end early where devices are free and jobs wait
    restart_s: float | None = None  # that a start costs, until it is known; None = a guess by round
    checkpoints: str = ""  # directory for those of new jobs; "" = the one that the cluster had
    estimator: str = "oracle"  # of rates; oracle = the catalogue, and what jobs bring along
    segment_records: int = 20_000
    keep_segments: int = 2
    ignored_witnesses: frozenset[str] = frozenset()  # nodes that may know of a later state
    runtime: RuntimeOptions = DEFAULT_RUNTIME  # at the start
    webhook: Webhook | None = None  # None: nobody is sent notices
    engine: EngineConfig | None = None  # None: nodes come by themselves


def live_options(
    cluster: Path | None,
    policy: str,
    profile: str,
    round_s: float | Literal["auto"] | None,
    throughputs: str,
    seed: int,
    lease_s: float,
    heartbeat_s: float,
    solve_limit_s: float,
    mtbf_h: float = 24.0,
    restart_s: float = 0.0,
    early_round_end: bool = True,
    checkpoints: Path | None = None,
    estimator: str = "oracle",
    ignored_witnesses: Collection[str] = (),
    runtime: RuntimeOptions = DEFAULT_RUNTIME,
    webhook: Webhook | None = None,
    engine: EngineConfig | None = None,
) -> LiveOptions:
    """Raises InputError with the option and its value. policy: "" = the one that the cluster had;
    round_s: None = that of the profile, "auto" = by what switches cost; restart_s: 0 = it will be measured;
    early_round_end: whether a round ends early where devices are free and jobs wait."""
    if profile not in PROFILES:
        raise ConfigError(f"--profile: must be one of {', '.join(PROFILES)}, got {profile!r}")
    chosen = PROFILES[profile]
    if chosen.imitates_simulator:
        raise ConfigError(
            f"--profile: {profile!r} imitates a simulator, and is not for live clusters"
        )
    if isinstance(round_s, float | int):
        _check("round", round_s, 0.5, 86_400.0)
        chosen = replace(chosen, round_s=round_s)
    registry.make(policy or DEFAULT_POLICY, seed=seed, profile=profile)
    _check("lease", lease_s, 1.0, 3600.0)
    _check("heartbeat", heartbeat_s, 0.05, lease_s / 3, "seconds (a third of --lease)")
    _check("solve-limit", solve_limit_s, 0.1, 3600.0)
    _check("mtbf-hours", mtbf_h, 1 / 3600, 1e5, "hours")
    _check("restart-cost", restart_s, 0.0, 86_400.0)
    check_spec(estimator)
    _check_retention(runtime)
    for name in ignored_witnesses:
        check_name("--ignore-witness", name)
    if engine is not None and cluster is not None:
        raise ConfigError("--engine: its nodes come and go; leave --cluster out (prices: --prices)")
    named = None if cluster is None else parse_cluster(str(cluster))
    stated = {} if cluster is None else stated_prices(cluster)
    stated |= runtime.prices
    return LiveOptions(
        policy=policy,
        profile=chosen,
        catalogue=read_throughputs(throughputs),
        nodes=None if named is None else named.nodes,
        prices={**(DEFAULT_PRICES if named is None else named.prices), **stated},
        seed=seed,
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        solve_limit_s=solve_limit_s,
        mtbf_s=mtbf_h * 3600,
        restart_s=restart_s or None,
        automatic_round=round_s == AUTO,
        early_round_end=early_round_end,
        estimator=estimator,
        ignored_witnesses=frozenset(ignored_witnesses),
        runtime=replace(runtime, prices=stated),
        webhook=webhook,
        engine=engine,
        checkpoints="" if checkpoints is None else str(checkpoints.absolute()),
    )


SHORTEST_DAYS, LONGEST_DAYS = 0.00001, 100_000  # for which ended jobs are kept


def _check_retention(runtime: RuntimeOptions) -> None:
    """Raise ConfigError unless what belongs to a job stays no longer than the job: nobody would know whose it
    is."""
    for name in ("keep_ended_jobs", "keep_logs", "keep_checkpoints"):
        days = getattr(runtime, name)
        if days and not SHORTEST_DAYS <= days <= LONGEST_DAYS:
            raise ConfigError(
                f"--{name.replace('_', '-')}: must be 0 (for ever) or from {SHORTEST_DAYS:.5f} (a second) to "
                f"{LONGEST_DAYS:,} days, got {days:g}"
            )
        if days > runtime.keep_ended_jobs > 0:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option}: must be at most as long as --keep-ended-jobs ({runtime.keep_ended_jobs:g} days), "
                f"got {days:g}"
            )


def check_prices(text: str) -> dict[str, float]:
    """The prices of ``--prices``; "" = none. Raises ConfigError."""
    prices = parse_prices(text) if text else {}
    for name, price in prices.items():
        if not ACCELERATOR.fullmatch(name):
            raise ConfigError(f"--prices: {name[:40]!r} is no accelerator type")
        if not 0 <= price <= MAX_PRICE:
            raise ConfigError(f"--prices: {name}: must be from 0 to {MAX_PRICE:g}, got {price:g}")
    return prices


def _check(name: str, value: float, least: float, most: float, unit: str = "seconds") -> None:
    if not least <= value <= most:
        raise ConfigError(f"--{name}: must be from {least:g} to {most:g} {unit}, got {value:g}")


def tls_of(certificate: Path | None, key: Path | None) -> Tls | None:
    """Return the TLS options; None if neither file is given. Raises ConfigError for files that cannot be
    used."""
    check_both_or_none({"--tls-cert": certificate, "--tls-key": key})
    if certificate is None or key is None:
        return None
    found = Tls(key, certificate)
    try:
        found.credentials()
    except ConfigError as problem:
        raise ConfigError(f"--tls-cert: {problem}") from None
    return found
