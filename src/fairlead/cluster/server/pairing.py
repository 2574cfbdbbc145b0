"""The reason why a job shares its devices with no other, under a policy that may have jobs share them."""

import numpy as np

from fairlead.cluster.server.decided_shares import DecidedShares


def why_unpaired(decided: DecidedShares, job: int, policy: str, states_rates: bool = False) -> str:
    """Return why a job has no pair, as one sentence; "" if nobody would expect a pair. states_rates: whether
    the job states its co-located rates."""
    if not decided.space_sharing:
        return f"Policy {policy} never has two jobs share devices." if states_rates else ""
    at = decided.at(job)
    return "" if at is None else f"It is in no pair: {_obstacle(decided, at)}."


def _obstacle(decided: DecidedShares, at: int) -> str:
    table = decided.table
    if table is None or table.pair_rates is None:
        return "no rates of jobs beside each other are known (state colocated_fraction in job.toml)"
    mine = int(decided.row[at])
    if not (table.pair_rates[mine] > 0).any():
        return (
            "nothing is known of how fast it is beside others (state colocated_fraction in job.toml, or a "
            "family of the table)"
        )
    same = decided.scale == decided.scale[at]
    same[at] = False
    if not same.any():
        devices = int(decided.scale[at])
        several = "1 device" if devices == 1 else f"{devices} devices"
        return f"no other job wants {several}, as it does"
    rows = np.unique(decided.row[same])
    partners, other = (
        table.pair_rates[mine, rows],
        table.pair_rates[rows, mine],
    )  # (rows, slots)
    both = (partners > 0) & (other > 0)
    if not both.any():
        return "of none of the jobs with as many devices is it known that both fit one device"
    solo = np.where(table.rate[mine] > 0, table.rate[mine], np.inf)
    theirs = np.where(table.rate[rows] > 0, table.rate[rows], np.inf)
    worth = np.where(both, partners / solo + other / theirs, 0.0)
    best = float(worth.max())
    if best <= 1:
        return (
            f"taking turns does as well, for beside the best of the others the two would get {best:.2f} of "
            "what one gets alone"
        )
    return (
        f"beside the best of the others the two would get {best:.2f} of what one gets alone, but it would "
        "not raise what the policy aims at"
    )
