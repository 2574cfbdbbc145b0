"""Finish-time fairness in ``--json``: rho of every job, the worst, and the shares treated unfairly."""

from collections.abc import Mapping
from typing import Any

import polars as pl

LIMITS = (1.0, 1.05, 1.1)  # the three that are used for "unfair" in Shockwave's paper and scripts
_NAMES = {  # of the static rho, as printed -> as measured
    "worst_rho": "max",
    "unfair_1": "unfair_1",
    "unfair_105": "unfair_1_05",
    "unfair_11": "unfair_1_1",
}


def metrics_for_json(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a run, with those that Shockwave reports at the top level.

    Of a run over all jobs: ``worst_rho``, the largest static rho, and the shares of jobs whose static
    rho is above 1, 1.05 and 1.1 (``unfair_1``, ``unfair_105``, ``unfair_11``). What is measured of each
    definition of rho stands under ``fairness``, because ``rho`` is that of the jobs.
    """
    others = {name: value for name, value in metrics.items() if name != "rho"}
    fairness = metrics.get("rho", {})
    static = fairness.get("static", {})
    top = {name: static[key] for name, key in _NAMES.items() if key in static}
    return {**others, "fairness": fairness, **top}


def rho_of_jobs(metrics: Mapping[str, Any], jobs: pl.DataFrame) -> dict[str, float | None]:
    """Static rho by job id, None for those that did not complete; empty for a run over a window."""
    if "static" not in metrics.get("rho", {}):
        return {}
    return dict(jobs.select(pl.col("job").cast(pl.String), "rho_static").iter_rows())
