"""Tables of a run of any length, reduced to as many points as a picture can show."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from fairlead.analysis.report.picture_data import OverTime, Timeline
from fairlead.model.arrays import Floats


def over_time(rounds: pl.DataFrame, max_bins: int = 400) -> OverTime | None:
    """Exact averages per bin; a bin is a round where the rounds are few. None without rounds."""
    start, seconds = _column(rounds, "time_s"), _column(rounds, "seconds")
    if not start.size or not seconds.sum() > 0:
        return None
    end = start + seconds
    if start.size <= max_bins:
        edges = np.unique(np.concatenate([start, end]))
    else:
        edges = np.linspace(start[0], end.max(), max_bins + 1)
    run_edges = np.maximum.accumulate(np.column_stack([start, end]).ravel())
    capacity_edges = np.maximum.accumulate(
        np.append(start, end[-1])
    )  # capacity lasts through idle gaps

    def in_bins(amount: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(amount)])
        return np.diff(np.interp(edges, run_edges, np.repeat(total, 2)[1:-1]))

    def mean(count: Floats) -> Floats:
        return in_bins(count * seconds) / np.diff(edges)

    def available(capacity: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(capacity * np.diff(capacity_edges))])
        return np.diff(np.interp(edges, capacity_edges, total))

    shares, average = {}, {}
    busy_s, available_s, stranded_s = (np.zeros(len(edges) - 1) for _ in range(3))
    waits = _waiting(rounds) > 0
    for name in accelerators(rounds):
        busy = in_bins(_column(rounds, f"busy_{name}"))
        capacity_s = available(_column(rounds, f"capacity_{name}"))
        shares[name] = _ratio(busy, capacity_s)
        average[name] = float(busy.sum() / capacity_s.sum()) if capacity_s.sum() > 0 else 0.0
        busy_s, available_s = busy_s + busy, available_s + capacity_s
        idle = _column(rounds, f"capacity_{name}") * seconds - _column(rounds, f"busy_{name}")
        stranded_s = stranded_s + in_bins(np.maximum(idle, 0.0) * waits)
    active, running = mean(_column(rounds, "active")), mean(_column(rounds, "running"))
    return OverTime(
        edges,
        active,
        running,
        shares,
        average,
        busy=_ratio(busy_s, available_s),
        stranded=_ratio(stranded_s, available_s),
        scattered=_ratio(in_bins(_column(rounds, "spread_s")), busy_s),
        lost_s=in_bins(_column(rounds, "lost_s")),
        preempted=in_bins(_column(rounds, "preempted")),
    )


def _waiting(rounds: pl.DataFrame) -> Floats:
    """(rounds,) jobs that wait; for runs that did not count them, an upper bound: those that do not run."""
    if "waiting" in rounds.columns:
        return _column(rounds, "waiting")
    return _column(rounds, "active") - _column(rounds, "running")


def accelerators(rounds: pl.DataFrame) -> list[str]:
    """The accelerator types that the rounds count."""
    names = [name.removeprefix("busy_") for name in rounds.columns if name.startswith("busy_")]
    return [name for name in names if f"capacity_{name}" in rounds.columns]


def completion_times(jobs: pl.DataFrame) -> Floats:
    """(completed jobs,) seconds from arrival to completion, increasing."""
    return _increasing(jobs, "jct_s")


def static_rho(jobs: pl.DataFrame) -> Floats:
    """(completed jobs,) static rho, increasing."""
    return rho_of(jobs, "rho_static")


def rho_of(jobs: pl.DataFrame, column: str) -> Floats:
    """(completed jobs,) rho by one of its definitions, increasing."""
    return _increasing(jobs, column)


def _increasing(jobs: pl.DataFrame, name: str) -> Floats:
    """The finite values of a column, increasing."""
    if name not in jobs.columns:
        return np.empty(0)
    values = jobs[name].cast(pl.Float64).drop_nulls().drop_nans().to_numpy()
    return np.sort(values[np.isfinite(values)])


def measured_jobs(config: Mapping[str, object], jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs that the metrics are about: the measured jobs of ``--window``, all without it."""
    match config.get("window"):
        case [int(first), int(end)]:
            return jobs.slice(first, end - first)
        case _:
            return jobs


def worst_jobs(jobs: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most so many jobs: first those that did not complete (a fifth at most), then the slowest."""
    if jobs.height <= most:
        return jobs
    ordered = jobs.sort("jct_s", descending=True, nulls_last=True, maintain_order=True)
    lost = ordered.filter(pl.col("end") != "completed").head(most // 5)
    completed = ordered.filter(pl.col("end") == "completed").head(most - lost.height)
    return pl.concat([lost, completed])


def timeline(
    intervals: pl.DataFrame,
    sizes: Mapping[str, int],
    window_s: tuple[float, float],
    *,
    columns: int = 1000,
    max_rows: int = 96,
) -> Timeline | None:
    """The placement intervals inside a window of time, on the first devices of each type; None where
    there are none.

    ``sizes`` is the number of devices per accelerator type. An interval shorter than a column shows only
    if it covers the middle of one, so the picture is a fair sample however long the run is.
    """
    start_s, end_s = window_s
    if not intervals.height or not end_s > start_s:
        return None
    shown = _shown_devices(intervals, sizes, max_rows)
    rows = [(name, device) for name, (ids, _) in shown.items() for device in ids]
    column = [
        ((pl.col(name) - start_s) / (end_s - start_s) * columns - 0.5)
        .ceil()
        .clip(0, columns)
        .cast(pl.Int64)
        .alias(alias)
        for name, alias in (("start_s", "first"), ("end_s", "last"))
    ]
    seen = _members(intervals).with_columns(column).filter(pl.col("first") < pl.col("last"))
    where = pl.DataFrame(
        {
            "accelerator": [name for name, _ in rows],
            "device": [device for _, device in rows],
            "row": range(len(rows)),
        },
        schema={"accelerator": pl.String, "device": pl.Int64, "row": pl.Int64},
    )
    bars = (
        seen.explode("devices")
        .rename({"devices": "device"})
        .with_columns(pl.col("accelerator").cast(pl.String), pl.col("device").cast(pl.Int64))
        .join(where, on=["accelerator", "device"])
    )
    groups = tuple((name, len(ids), size) for name, (ids, size) in shown.items())
    return Timeline(start_s, end_s, columns, groups, tuple(rows), _merged(bars))


def _members(intervals: pl.DataFrame) -> pl.DataFrame:
    """One row per job and placement interval; of a packed pair the lower id is drawn in the upper half."""
    keep = ["job", "half", "accelerator", "devices", "start_s", "end_s"]
    if "partner" not in intervals.columns:
        return intervals.with_columns(half=pl.lit(0, pl.Int64)).select(keep)
    job, partner = pl.col("job").cast(pl.Int64), pl.col("partner").cast(pl.Int64)
    half = pl.when(partner.is_null()).then(0).when(job < partner).then(1).otherwise(2)
    ours = intervals.with_columns(job, half.cast(pl.Int64).alias("half"))
    colocated = ours.filter(partner.is_not_null())
    theirs = colocated.with_columns(job=partner, half=3 - pl.col("half"))  # whether listed or not
    return pl.concat([ours.select(keep), theirs.select(keep)])


def _merged(bars: pl.DataFrame) -> pl.DataFrame:
    """The bars, with those of one job on one device that touch or overlap joined."""
    keys = ["row", "half", "job"]
    ordered = bars.select(*keys, "first", "last").sort("row", "half", "first", "job")
    fresh = pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in keys) | (
        pl.col("first") > pl.col("last").shift(1)
    )
    return (
        ordered.with_columns(run=fresh.fill_null(True).cum_sum())
        .group_by(*keys, "run", maintain_order=True)
        .agg(pl.col("first").min(), pl.col("last").max())
        .drop("run")
    )


def _shown_devices(
    intervals: pl.DataFrame, sizes: Mapping[str, int], max_rows: int
) -> dict[str, tuple[list[int], int]]:
    """Accelerator type -> (ids of the devices shown, number of devices)."""
    every = _numbered(sizes)
    known = set(every)
    others = sorted(set(intervals["accelerator"].unique().to_list()) - known)
    for name in others:
        used = intervals.filter(pl.col("accelerator") == name)["devices"].explode().drop_nulls()
        every[name] = sorted(used.unique().to_list())
    most = max(max_rows // max(len(every), 1), 2)
    free_rows = max_rows - sum(min(len(ids), most) for ids in every.values())
    shown: dict[str, tuple[list[int], int]] = {}
    for name, ids in every.items():
        extra = max(min(len(ids) - most, free_rows), 0)
        free_rows -= extra
        shown[name] = (ids[: most + extra], len(ids))
    return shown


def _numbered(sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """Device ids as a cluster gives them: types in alphabetical order, one after the other."""
    ids: dict[str, list[int]] = {}
    first = 0
    for name in sorted(sizes):
        ids[name] = list(range(first, first + sizes[name]))
        first += sizes[name]
    return ids


def busiest_window(over: OverTime, share: float) -> tuple[float, float]:
    """Start and end, s, of a part of the run around the time with the most jobs running. share: its part of
    the run's length."""
    start, end = float(over.edges_s[0]), float(over.edges_s[-1])
    center = float(over.edges_s[int(np.argmax(over.running))])
    half = share * (end - start) / 2
    first = min(max(center - half, start), end - 2 * half)
    return first, first + 2 * half


def _column(frame: pl.DataFrame, name: str) -> Floats:
    if name not in frame.columns:
        return np.zeros(frame.height)
    return frame[name].cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy().astype(np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    ratio = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return np.asarray(ratio, np.float64)
