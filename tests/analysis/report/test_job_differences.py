"""Two runs of the same jobs, job by job."""

import polars as pl
import pytest

from fairlead.analysis.report.job_differences import difference_section, job_differences


def _jobs(*jct_s: float | None, steps: float = 5.0) -> pl.DataFrame:
    n = len(jct_s)
    columns = {"job": range(n), "family": ["x"] * n, "scale_factor": [1] * n}
    return pl.DataFrame(
        {**columns, "total_steps": [steps] * n, "jct_s": jct_s},
        schema_overrides={"jct_s": pl.Float64},
    )


def test_differences_are_parts_of_the_mean_jct_of_the_first() -> None:
    found = job_differences(("live", "sim"), _jobs(10, 20, 30, None), _jobs(11, 16, 30, 5))
    assert found is not None
    assert found.jobs["job"].to_list() == [1, 0, 2], "those that differ most come first"
    assert found.jobs["difference_s"].to_list() == [-4, 1, 0]
    assert found.mean_part == pytest.approx(5 / 3 / 20)
    assert (found.p50_part, found.largest_part) == pytest.approx((1 / 20, 4 / 20))
    assert "3 jobs" in found.sentence
    assert found.as_json()["jct_s"] == {"1": [20, 16], "0": [10, 11], "2": [30, 30]}
    assert "Differences per job" in str(difference_section(found))


@pytest.mark.parametrize(
    "other", [_jobs(1, 2), _jobs(1, 2, 3, steps=6.0), _jobs(None, None, None), pl.DataFrame()]
)
def test_runs_of_other_jobs_have_none(other: pl.DataFrame) -> None:
    assert job_differences(("a", "b"), _jobs(1, 2, 3), other) is None
