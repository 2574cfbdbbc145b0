"""Stints: times that units spent on the same devices without a break."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from fairlead.commands import StartRound
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job


class Stints:
    """Collects them round by round."""

    def __init__(self) -> None:
        self._closed: list[tuple[Any, ...]] = []

    def close(
        self,
        start: StartRound,
        member: Ints,
        kind: Ints,
        end_s: Floats,
        over: Ints,
        began: Floats,
    ) -> None:
        """Units of a round stop there. over: their rows; member: (units, width) positions of jobs; kind:
        (units,) accelerator types; end_s: (units,) when they stopped; began: (over,) when they started."""
        scale = np.diff(start.first)[over]
        first = np.concatenate([[0], np.cumsum(scale)])
        spread = np.arange(first[-1]) - np.repeat(first[:-1], scale)
        devices = start.devices[np.repeat(start.first[over], scale) + spread]
        small = np.int32  # there may be millions of stints
        self._closed.append(
            (
                member[over].astype(small),
                kind[over].astype(small),
                scale.astype(small),
                devices.astype(small),
                began[over],
                end_s[over],
            )
        )

    def table(self, cluster: Cluster, jobs: Sequence[Job]) -> pl.DataFrame:
        """One row per stint, in order of end; ``partner`` is the other job of a packed pair. To be asked
        for once."""
        stints, self._closed = self._closed, []
        ids = np.array([job.id for job in jobs] + [-1], np.int64)
        tables = [_some(stints[i : i + 256], cluster, ids) for i in range(0, len(stints), 256)]
        return pl.concat(tables or [_some([], cluster, ids)])


def _some(stints: list[tuple[Any, ...]], cluster: Cluster, ids: Ints) -> pl.DataFrame:
    """A part of the table, for made in one piece it would be in memory several times."""
    parts = list(zip(*stints, strict=True)) or [()] * 6
    first, last = _join([m[:, 0] for m in parts[0]]), _join([m[:, -1] for m in parts[0]])
    packed = (last >= 0) & (last != first)
    names = pl.Enum(cluster.accelerators)
    offsets = np.concatenate([[0], np.cumsum(_join(parts[2]))])
    stints.clear()
    table = pl.DataFrame(
        {
            "job": ids[first],
            "partner": ids[np.where(packed, last, -1)],
            "accelerator": pl.Series(cluster.accelerators, dtype=names).gather(_join(parts[1])),
            "start_s": _join(parts[4], np.float64),
            "end_s": _join(parts[5], np.float64),
            "devices": _lists(_join(parts[3]), offsets),
        }
    )
    partner = pl.when(pl.col("partner") >= 0).then(pl.col("partner")).alias("partner")
    return table.with_columns(partner)


def _join(parts: Sequence[Any], dtype: Any = np.int32) -> Any:
    return np.concatenate(parts) if len(parts) else np.zeros(0, dtype)


def _lists(values: Any, offsets: Ints) -> pl.Series:
    """values[offsets[i]:offsets[i + 1]] as the i-th list."""
    row = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    frame = pl.DataFrame({"row": row, "devices": values})
    grouped = frame.group_by("row", maintain_order=True).agg("devices")
    return grouped["devices"] if len(grouped) else pl.Series("devices", [], pl.List(pl.Int32))
