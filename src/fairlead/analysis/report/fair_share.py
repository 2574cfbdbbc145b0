"""What an equal split of the cluster, by the weights of jobs, would have given to each."""

import numpy as np
import polars as pl

from fairlead.analysis.report.aggregate import accelerators
from fairlead.model.arrays import Floats

_NEEDED = ("arrival_s", "end_s", "weight", "run_s", "scale_factor", "tenant")


def received_s(jobs: pl.DataFrame) -> pl.Series:
    """(jobs,) device-seconds held; both jobs of a packed pair hold their devices."""
    return jobs["run_s"] * jobs["scale_factor"]


def fair_share_s(jobs: pl.DataFrame, rounds: pl.DataFrame) -> Floats | None:
    """(jobs,) device-seconds that each would have had, had all devices been split at every moment among
    the jobs in the system, by weight, each taking no more than it can use. None where the tables do not
    tell."""
    if not jobs.height or not rounds.height or any(name not in jobs.columns for name in _NEEDED):
        return None
    last = rounds.row(-1, named=True)
    over_s = max(last["time_s"] + last["seconds"], float(jobs["arrival_s"].max() or 0.0))  # type: ignore[arg-type]
    arrival = jobs["arrival_s"].to_numpy()
    end = np.maximum(jobs["end_s"].fill_null(over_s).to_numpy(), arrival)
    weight = jobs["weight"].to_numpy()
    starts = rounds["time_s"].to_numpy()
    devices = sum((rounds[f"capacity_{name}"] for name in accelerators(rounds)), pl.Series([0]))
    changes = np.flatnonzero(np.diff(devices.to_numpy(), prepend=np.nan) != 0)
    at = np.unique(np.concatenate([arrival, end, starts[changes]]))
    entered = np.bincount(np.searchsorted(at, arrival), weight, len(at))
    left = np.bincount(np.searchsorted(at, end), weight, len(at))
    in_all = np.cumsum(entered - left)[:-1]
    there = devices.to_numpy()[np.maximum(np.searchsorted(starts, at[:-1], "right") - 1, 0)]
    busy = in_all > 1e-9 * weight.max(initial=1.0)
    each = np.divide(there, in_all, out=np.zeros(len(in_all)), where=busy)
    first, last = np.searchsorted(at, arrival), np.searchsorted(at, end)
    most = jobs["scale_factor"].to_numpy() / weight  # a job has no use for more devices than these
    gained = np.zeros(jobs.height)
    for limit in np.unique(most):
        so_far = np.append(0.0, np.cumsum(np.minimum(each, limit) * np.diff(at)))
        alike = most == limit
        gained[alike] = so_far[last[alike]] - so_far[first[alike]]
    return np.asarray(weight * gained, np.float64)
