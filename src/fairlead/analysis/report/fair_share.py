"""The device time that an equal split of the cluster, by weight, would have given to each job."""

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
    the jobs in the system, by weight, each taking no more than it can use. None where the tables lack
    columns for it."""
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
    total_weight = np.cumsum(entered - left)[:-1]
    capacity = devices.to_numpy()[np.maximum(np.searchsorted(starts, at[:-1], "right") - 1, 0)]
    busy = total_weight > 1e-9 * weight.max(initial=1.0)
    devices_per_weight = np.divide(
        capacity, total_weight, out=np.zeros(len(total_weight)), where=busy
    )
    first, last = np.searchsorted(at, arrival), np.searchsorted(at, end)
    # Per weight: a job has no use for more devices than its scale factor.
    useful_devices = jobs["scale_factor"].to_numpy() / weight
    received = np.zeros(jobs.height)
    for limit in np.unique(useful_devices):
        so_far = np.append(0.0, np.cumsum(np.minimum(devices_per_weight, limit) * np.diff(at)))
        with_limit = useful_devices == limit
        received[with_limit] = so_far[last[with_limit]] - so_far[first[with_limit]]
    return np.asarray(weight * received, np.float64)
