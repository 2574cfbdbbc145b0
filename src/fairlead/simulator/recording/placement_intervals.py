"""Placement intervals: times that job groups spent on the same devices without a break."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from fairlead.model.arrays import Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.simulator.recording.recorder_kernels import IntervalBlock

_ROWS = (
    32768  # of a block: the table is made block by block, or it would be in memory several times
)


def _block(rows: int, devices: int) -> IntervalBlock:
    return IntervalBlock(
        groups=np.empty((rows, 4), np.int32),
        times=np.empty((rows, 2)),
        devices=np.empty(devices, np.int32),
        used=np.zeros(2, np.int64),
    )


def _trimmed(block: IntervalBlock) -> IntervalBlock:
    """Return a copy without the room that is left."""
    rows, devices = block.used.tolist()
    return IntervalBlock(
        block.groups[:rows].copy(),
        block.times[:rows].copy(),
        block.devices[:devices].copy(),
        block.used,
    )


class PlacementIntervals:
    """Collects them round by round."""

    def __init__(self, keep: bool = True) -> None:
        """keep: if not, they are thrown away, and the table stays empty."""
        self.keep = keep
        self._full: list[IntervalBlock] = []
        self._block = _block(_ROWS, _ROWS)

    def room(self, rows: int, devices: int) -> IntervalBlock:
        """A block with room for so many placement intervals, with so many devices in all."""
        block = self._block
        if not self.keep:
            block.used[:] = 0
        row, device = block.used.tolist()
        if row + rows > len(block.groups) or device + devices > len(block.devices):
            if row:
                self._full.append(_trimmed(block))
            self._block = block = _block(max(_ROWS, rows), max(_ROWS, 2 * devices))
        return block

    def table(self, cluster: Cluster, jobs: Sequence[Job]) -> pl.DataFrame:
        """One row per placement interval, in order of end; ``partner`` is the other job of a pair that
        shares devices. To be called once."""
        blocks, self._full = self._full, []
        if self.keep and self._block.used[0]:
            blocks.append(_trimmed(self._block))
        ids = np.array([job.id for job in jobs] + [-1], np.int64)
        tables = []
        for i, block in enumerate(blocks):
            tables.append(_some(block, cluster, ids))
            blocks[i] = _block(0, 0)
        return pl.concat(tables or [_some(_block(0, 0), cluster, ids)])


def _some(block: IntervalBlock, cluster: Cluster, ids: Ints) -> pl.DataFrame:
    """A part of the table."""
    first, last, accelerator, scale = block.groups.T
    colocated = (last >= 0) & (last != first)
    names = pl.Enum(cluster.accelerators)
    offsets = np.concatenate([[0], np.cumsum(scale)])
    table = pl.DataFrame(
        {
            "job": ids[first],
            "partner": ids[np.where(colocated, last, -1)],
            "accelerator": pl.Series(cluster.accelerators, dtype=names).gather(accelerator.copy()),
            "start_s": block.times[:, 0],
            "end_s": block.times[:, 1],
            "devices": _lists(block.devices, offsets),
        }
    )
    partner = pl.when(pl.col("partner") >= 0).then(pl.col("partner")).alias("partner")
    return table.with_columns(partner)


def _lists(values: Ints, offsets: Ints) -> pl.Series:
    """values[offsets[i]:offsets[i + 1]] as the i-th list."""
    row = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    frame = pl.DataFrame({"row": row, "devices": values})
    grouped = frame.group_by("row", maintain_order=True).agg("devices")
    return grouped["devices"] if len(grouped) else pl.Series("devices", [], pl.List(pl.Int32))
