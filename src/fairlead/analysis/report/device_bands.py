"""The devices of elastic jobs over time, a band for each."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from fairlead.analysis.report.markup import Html, clean
from fairlead.analysis.report.metric_catalogue import MetricKind, devices, unit_for
from fairlead.analysis.report.svg import FAINT, Axis, PlotFrame, colour, grid_x, picture, write
from fairlead.model.arrays import Floats, Ints

MOST = 30  # bands in a figure: those of the jobs that came first
_BAND, _GAP = 26, 6  # px, of a band with the most devices of all, and above it


@dataclass(frozen=True, slots=True)
class DeviceBand:
    """The stays of a job, in the order of time."""

    job: int
    start_s: Floats  # (stays,)
    end_s: Floats  # (stays,)
    devices: Ints  # (stays,)

    @property
    def changes(self) -> int:
        """How often it went on with another number of devices."""
        return int(np.count_nonzero(np.diff(self.devices)))


def device_bands(intervals: pl.DataFrame) -> list[DeviceBand]:
    """The bands of the jobs that had more than one number of devices. intervals: a row per placement."""
    counted = intervals.select(
        "job", "start_s", "end_s", pl.col("devices").list.len().alias("count")
    ).sort("job", "start_s")
    numbers = counted.group_by("job").agg(pl.col("count").n_unique())
    elastic = numbers.filter(pl.col("count") > 1)["job"]
    found = counted.filter(pl.col("job").is_in(elastic.to_list())).partition_by(
        "job", maintain_order=True
    )
    return [
        DeviceBand(
            job=int(one["job"][0]),
            start_s=one["start_s"].to_numpy(),
            end_s=one["end_s"].to_numpy(),
            devices=one["count"].to_numpy().astype(np.int64),
        )
        for one in found
    ]


def bands_over_time(bands: list[DeviceBand], until_s: float, *, width: int = 1100) -> Html:
    """A band per job, as thick as it has devices; the first ``MOST`` jobs. until_s: the end of the run."""
    shown = bands[:MOST]
    most = max(int(one.devices.max()) for one in shown)
    pitch = _BAND + _GAP
    frame = PlotFrame(width, len(shown) * pitch + 50, left=72)
    unit = unit_for(MetricKind.TIME, [until_s])
    x = Axis(0.0, until_s, frame.left, frame.right)
    body = [grid_x(frame, x, unit, f"time ({unit.name})")]
    for row, band in enumerate(shown):
        base = frame.top + row * pitch + _BAND
        body.append(write(frame.left - 8, base - 4, f"job {band.job}", anchor="end", fill=FAINT))
        for start, end, count in zip(
            x.all(band.start_s), x.all(band.end_s), band.devices.tolist(), strict=True
        ):
            height = max(_BAND * count / most, 1.0)
            body.append(
                f'<rect x="{start:.1f}" y="{base - height:.1f}" width="{max(end - start, 0.5):.1f}" '
                f'height="{height:.1f}" fill="{colour(row)}">'
                f"<title>{clean(f'job {band.job} on {devices(count)}')}</title></rect>"
            )
    return picture(width, int(frame.height), "Devices of elastic jobs over time", "".join(body))
