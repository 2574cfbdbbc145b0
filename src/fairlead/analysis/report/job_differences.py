"""What two runs of the same jobs make of each job: a live run and its simulation, or two policies."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from fairlead.analysis.report.markup import Html, join
from fairlead.analysis.report.metric_catalogue import MetricKind
from fairlead.analysis.report.page import note, section
from fairlead.analysis.report.sortable_tables import SortableColumn, sortable

_SAME = ("job", "family", "scale_factor", "total_steps")
MAX_JOBS = 1_000  # in the table: those that differ most


@dataclass(frozen=True, slots=True)
class JobDifferences:
    """Of the jobs that were completed in both runs. labels: of the runs; jobs: job, family, jct_s of either,
    difference_s (second - first), largest first.

    Relative to the mean JCT of the first: mean_part, p50_part, p90_part and largest_part, of the absolute
    differences.
    """

    labels: tuple[str, str]
    jobs: pl.DataFrame
    mean_part: float
    p50_part: float
    p90_part: float
    largest_part: float

    @property
    def sentence(self) -> str:
        """The differences in words."""
        first, second = self.labels
        return (
            f"The same {len(self.jobs):,} jobs were completed in both runs: per job, the JCT of {second} is "
            f"off that of {first} by {self.mean_part:.1%} of its mean JCT on average, by {self.p50_part:.1%} "
            f"or less in half of the jobs, by {self.p90_part:.1%} or less in nine of ten, by "
            f"{self.largest_part:.1%} at most."
        )

    def as_json(self) -> dict[str, object]:
        """For ``--json``; ``jct_s`` has, of each job, that of the first run and that of the second."""
        rows = self.jobs.select("job", "first_s", "second_s").iter_rows()
        parts = ("mean_part", "p50_part", "p90_part", "largest_part")
        return {
            "of": list(self.labels),
            **{name: getattr(self, name) for name in parts},
            "jct_s": {str(job): [one, other] for job, one, other in rows},
        }


def job_differences(
    labels: tuple[str, str], first: pl.DataFrame, second: pl.DataFrame
) -> JobDifferences | None:
    """Compare two tables of jobs; None: they have not the same jobs, or none was completed in both."""
    if not {*_SAME, "jct_s"} <= {*first.columns} & {*second.columns}:
        return None
    one, other = (jobs.select(*_SAME, "jct_s").sort("job") for jobs in (first, second))
    if not one.select(_SAME).equals(other.select(_SAME)):
        return None
    both = one.with_columns(first_s=pl.col("jct_s"), second_s=other["jct_s"]).drop_nulls()
    mean_s = both["first_s"].mean() if len(both) else None
    if not isinstance(mean_s, float) or mean_s <= 0:
        return None
    both = both.with_columns(difference_s=pl.col("second_s") - pl.col("first_s"))
    apart = both["difference_s"].abs().to_numpy() / mean_s
    columns = ("job", "family", "scale_factor", "first_s", "second_s", "difference_s")
    ordered = both.sort(pl.col("difference_s").abs(), descending=True).select(columns)
    p50, p90 = np.percentile(apart, (50, 90)).tolist()
    return JobDifferences(labels, ordered, float(apart.mean()), p50, p90, float(apart.max()))


def difference_section(found: JobDifferences) -> Html:
    """The section of a page."""
    first, second = found.labels
    jobs = found.jobs.head(MAX_JOBS)
    columns = [
        SortableColumn("Job", jobs["job"].to_list(), is_name=True, kind=MetricKind.COUNT),
        SortableColumn("Family", jobs["family"].to_list()),
        SortableColumn("Devices", jobs["scale_factor"].to_list(), MetricKind.COUNT),
        SortableColumn(f"JCT, {first}", jobs["first_s"].to_list(), MetricKind.TIME),
        SortableColumn(f"JCT, {second}", jobs["second_s"].to_list(), MetricKind.TIME),
        SortableColumn("Difference", jobs["difference_s"].to_list(), MetricKind.TIME),
    ]
    more = f" The {MAX_JOBS:,} that differ most:" if len(found.jobs) > MAX_JOBS else ""
    return section("Differences per job", join(note(found.sentence + more), sortable(columns)))
