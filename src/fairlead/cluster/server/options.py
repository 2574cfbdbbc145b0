"""The options of a server, read and checked."""

from dataclasses import replace
from pathlib import Path

from fairlead.cluster.front.transport import Tls
from fairlead.cluster.server.recovery import DEFAULT_POLICY
from fairlead.cluster.server.server_loop import LiveOptions
from fairlead.errors import ConfigError
from fairlead.estimation.estimator import check_spec
from fairlead.policies import registry
from fairlead.scheduler.mechanism.settings import PROFILES
from fairlead.simulator.traces.cluster_files import DEFAULT_PRICES, parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs

EARLY = 36  # a round may end after this part of it, where devices are free and jobs wait


def live_options(
    cluster: Path | None,
    policy: str,
    profile: str,
    round_s: float,
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
) -> LiveOptions:
    """Raises InputError with the option and its value. policy: "" = the one that the cluster had;
    round_s: 0 = that of the profile; restart_s: 0 = it will be measured; early_round_end: whether a round
    ends early where devices are free and jobs wait."""
    if profile not in PROFILES:
        raise ConfigError(f"profile: must be one of {', '.join(PROFILES)}, got {profile!r}")
    chosen = PROFILES[profile]
    if chosen.released_world or chosen.place_by_device_id:
        raise ConfigError(
            f"profile: {profile!r} imitates a simulator, and is not for live clusters"
        )
    if round_s:
        _check("round", round_s, 0.5, 86_400.0)
        chosen = replace(chosen, round_s=round_s)
    registry.make(policy or DEFAULT_POLICY, seed=seed, profile=profile)
    _check("lease", lease_s, 1.0, 3600.0)
    _check("heartbeat", heartbeat_s, 0.05, lease_s / 3)
    _check("solve-limit", solve_limit_s, 0.1, 3600.0)
    _check("mtbf", mtbf_h, 1 / 3600, 1e5, "hours")
    _check("restart-cost", restart_s, 0.0, 86_400.0)
    check_spec(estimator)
    named = None if cluster is None else parse_cluster(str(cluster))
    return LiveOptions(
        policy=policy,
        profile=chosen,
        catalogue=read_throughputs(throughputs),
        nodes=None if named is None else named.nodes,
        prices=dict(DEFAULT_PRICES if named is None else named.prices),
        seed=seed,
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        solve_limit_s=solve_limit_s,
        mtbf_s=mtbf_h * 3600,
        restart_s=restart_s or None,
        early_s=chosen.round_s / EARLY if early_round_end else float("inf"),
        estimator=estimator,
        checkpoints="" if checkpoints is None else str(checkpoints.absolute()),
    )


def _check(name: str, value: float, least: float, most: float, unit: str = "seconds") -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name}: must be from {least:g} to {most:g} {unit}, got {value:g}")


def tls_of(certificate: Path | None, key: Path | None) -> Tls | None:
    """Both or none."""
    if (certificate is None) != (key is None):
        raise ConfigError("tls-cert and tls-key: give both or none")
    return None if certificate is None or key is None else Tls(key, certificate)
