"""Averages of a run: the same whoever adds them up."""

import numpy as np
import polars as pl
from tests.small import job, run

JOBS = [job(n, 40.0 * n, 1_000.0 * (1 + (n * 7919) % 997), 1 + n % 2) for n in range(120)]


def test_the_average_by_devices_is_added_up_in_the_order_of_the_jobs() -> None:
    result = run(JOBS, fast=40, slow=40)
    of_scale = {
        str(scale): float(
            np.mean(result.jobs.filter(pl.col("scale_factor") == scale)["jct_s"].to_numpy())
        )
        for scale in (1, 2)
    }
    assert result.metrics["avg_jct_by_scale_s"] == of_scale
