"""Descriptions, by hand and against published figures."""

from pathlib import Path

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.model.cluster import SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.describe import Demand, describe
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs
from fairlead.simulator.traces.trace import Trace


@pytest.fixture(scope="module")
def table() -> Throughputs:
    kinds = (("LM", 1), ("LM", 2))
    return Throughputs((SlotType("h100"),), job_types(*kinds), np.array([[10.0], [18.0]]))


def job(number: int, scale: int, duration_s: float | None, tenant: str = "") -> Job:
    return Job(JobId(number), "LM", scale, 60.0, tenant=tenant, duration_s=duration_s)


def test_four_jobs(table: Throughputs) -> None:
    times = (0.0, 0.0, 6.0, 7200.0)
    jobs = (job(0, 1, 100.0), job(1, 1, 100.0, "a"), job(2, 2, 100.0, "b"), job(3, 4, 1e5, "a"))
    trace = Trace("x", "y", [Arrival(t, j) for t, j in zip(times, jobs, strict=True)])
    seen = describe(trace, table)
    assert (seen.jobs, seen.largest_demand, seen.with_deadline) == (4, 4, 0)
    assert seen.families == {"LM": 4}
    assert seen.tenants == {"a": 2, "b": 1}
    assert seen.durations is not None
    assert seen.durations.stated
    assert seen.durations.percentiles_s[50] == 100.0
    assert seen.durations.over_a_day == 0.25
    total = 400.0 + 4e5
    assert seen.demand == (
        Demand("1", 0.5, 200.0 / total),
        Demand("2", 0.25, 200.0 / total),
        Demand("3-4", 0.25, 4e5 / total),
    )
    assert seen.arrivals.jobs_per_hour == 2.0
    assert seen.arrivals.within_10_s == pytest.approx(2 / 3)
    assert seen.arrivals.same_second == pytest.approx(1 / 3)
    assert seen.arrivals.peak_hour == pytest.approx(3 / (4 / 3))  # hours with 3, 0 and 1 jobs
    assert seen.arrivals.hourly_fano == pytest.approx((14 / 9) / (4 / 3))


def test_durations_on_the_fastest_type_where_none_are_stated(table: Throughputs) -> None:
    trace = Trace("x", "y", [Arrival(0.0, job(0, 2, None)), Arrival(0.0, job(1, 3, None))])
    seen = describe(trace, table)
    assert seen.durations is not None
    assert not seen.durations.stated
    assert (seen.durations.jobs, seen.durations.mean_s) == (1, 60 / 18)
    assert seen.arrivals.jobs_per_hour is None


@pytest.mark.shared
def test_philly_durations_are_close_to_the_published_ones(shared: Path) -> None:
    """The file has 62,223 of the 82,247 jobs behind the published table."""
    trace = read_trace(shared / "data/philly/philly_jobs_dev_vcs.csv.gz", builtin_throughputs())
    seen = describe(trace, builtin_throughputs())
    assert (seen.jobs, seen.largest_demand) == (62_223, 32)
    assert seen.durations is not None
    assert seen.durations.percentiles_s[5] == pytest.approx(48, rel=0.1)
    assert seen.durations.percentiles_s[75] == pytest.approx(2_932, rel=0.05)
    assert seen.durations.percentiles_s[99] == pytest.approx(254_758, rel=0.2)
    assert seen.durations.over_a_day == pytest.approx(0.032, abs=0.01)
    shares = {one.devices: one.jobs for one in seen.demand}
    assert shares["1"] == pytest.approx(0.932, abs=0.015)
    assert shares["2"] == pytest.approx(0.022, abs=0.006)
    assert seen.arrivals.gap_cv == pytest.approx(15.1, rel=0.1)
    assert seen.arrivals.within_10_s == pytest.approx(0.55, abs=0.08)
    assert seen.arrivals.hourly_fano == pytest.approx(161, rel=0.1)
    assert seen.arrivals.peak_hour == pytest.approx(25, rel=0.1)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("cluster", "per_hour", "within", "same_second", "fano"),
    [("cluster01", 2.0, 0.88, 0.54, 63), ("cluster10", 0.33, 0.004, 0.0, 9.7)],
)
def test_the_extremes_of_the_published_itp_ranges(
    shared: Path, cluster: str, per_hour: float, within: float, same_second: float, fano: float
) -> None:
    """Published over ten clusters: 0.3 to 13 jobs/h, 0.4 to 88 % within 10 s, 0 to 54 % in the same
    second, Fano factors of 10 to 63. These two clusters are the ends of most of the ranges."""
    trace = read_trace(shared / f"data/ms_itp/raw/{cluster}.csv.gz", builtin_throughputs())
    seen = describe(trace, builtin_throughputs()).arrivals
    assert seen.jobs_per_hour == pytest.approx(per_hour, rel=0.02)
    assert seen.within_10_s == pytest.approx(within, abs=0.005)
    assert seen.same_second == pytest.approx(same_second, abs=0.005)
    assert seen.hourly_fano == pytest.approx(fano, rel=0.01)


@pytest.mark.shared
def test_the_extremes_of_the_published_philly_ranges(shared: Path) -> None:
    """Published over five virtual clusters: 0.7 to 16 jobs/h, CV 2.7 to 15, 9 to 84 % within 10 s."""
    path = shared / "data/philly/philly_jobs_dev_vcs.csv.gz"
    table = builtin_throughputs()
    seen = {vc: describe(read_trace(path, table, vc=vc), table).arrivals for vc in VCS}
    assert max(a.jobs_per_hour or 0 for a in seen.values()) == pytest.approx(16, rel=0.03)
    assert max(a.gap_cv or 0 for a in seen.values()) == pytest.approx(15, rel=0.03)
    assert max(a.within_10_s or 0 for a in seen.values()) == pytest.approx(0.84, abs=0.01)
    assert max(a.hourly_fano or 0 for a in seen.values()) == pytest.approx(210, rel=0.02)


VCS = ("6214e9", "11cb48", "103959", "0e4a51", "7f04ca")
