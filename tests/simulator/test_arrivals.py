"""Generated jobs: Gavel's exactly, bursty ones within the measured figures."""

import gzip
import json
import math
import re
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import ConfigError, ThroughputError
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.arrivals import (
    GAVEL_FAMILIES,
    Shape,
    bursty_arrivals,
    gavel_arrivals,
)
from fairlead.simulator.traces.describe import describe
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs
from fairlead.simulator.traces.trace import Trace


def table(*kinds: tuple[str, int], accelerators: tuple[str, ...] = ("v100", "h100")) -> Throughputs:
    rate = np.arange(1.0, 1 + len(kinds) * len(accelerators)).reshape(len(kinds), -1)
    return Throughputs(tuple(SlotType(a) for a in accelerators), job_types(*kinds), rate)


SMALL = table(("B", 1), ("A3C", 1), ("B", 2), ("B", 4), ("B", 8))


def reference_config(path: Path) -> dict[str, object]:
    """The configuration beside a file of jobs; one run has none, but its name says it all."""
    config = path.with_name(path.name.replace(".jobs.json.gz", ".json"))
    if config.exists():
        found: dict[str, object] = json.loads(config.read_text())["config"]
        return found
    name = re.fullmatch(r"single__\w+__(\d+)-(\d+)-(\d+)__lam(\d+)__s(\d+)\.jobs.*", path.name)
    assert name is not None
    v100, p100, k80, lam, seed = name.groups()
    return {"cluster_spec": f"{v100}:{p100}:{k80}", "lam": int(lam), "seed": int(seed)}


@pytest.mark.shared
def test_gavels_generated_jobs_are_equal_to_the_last_bit(shared: Path) -> None:
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    paths = sorted((shared / "golden/gavel/continuous").glob("*.jobs.json.gz"))
    assert len(paths) == 65
    for path in paths:
        rows = json.loads(gzip.decompress(path.read_bytes()))
        config = reference_config(path)
        counts = [int(count) for count in str(config["cluster_spec"]).split(":")]
        cluster = Cluster.of(dict(zip(("v100", "p100", "k80"), counts, strict=True)))
        ours = gavel_arrivals(
            rates,
            mean_interarrival_s=float(str(config["lam"])),
            seed=int(str(config["seed"])),
            jobs=len(rows),
            multi_gpu=bool(config.get("multi_gpu")),
            multi_priority=bool(config.get("multi_priority")),
            slos=bool(config.get("assign_SLOs")),
            steady_state=cluster if config.get("steady_state") else None,
        )
        for arrival, row in zip(ours, rows, strict=True):
            job = arrival.job
            slo_s = None if row["SLO"] is None else row["SLO"] * row["duration"]
            assert (
                (job.id, arrival.time_s, job.family, job.scale_factor),
                (job.total_steps, job.duration_s, job.weight, job.slo_s),
            ) == (
                (row["id"], row["arrival"], row["job_type"], row["scale_factor"]),
                (row["total_steps"], row["duration"], row["priority"], slo_s),
            ), path.name


def test_gavels_stream_is_endless_and_seeded() -> None:
    first, again, other = (
        list(islice(gavel_arrivals(SMALL, mean_interarrival_s=60.0, seed=seed), 50))
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first[0].time_s == 0.0
    assert all(a.time_s < b.time_s for a, b in pairwise(first))
    assert [a.job.id for a in first] == list(range(50))


def test_any_accelerator_may_be_the_reference() -> None:
    """Without a v100 the steps are those of the fastest accelerator type of each kind."""
    rates = table(("B", 1), ("C", 1), accelerators=("tpu", "l4"))  # rates 1, 2 and 3, 4
    for arrival in gavel_arrivals(rates, mean_interarrival_s=1.0, jobs=20):
        job = arrival.job
        assert job.duration_s is not None
        assert job.total_steps == job.duration_s * {"B": 2.0, "C": 4.0}[job.family]
    fixed = gavel_arrivals(
        SMALL, mean_interarrival_s=1.0, jobs=9, fixed_duration_s=10.0, reference="h100"
    )
    assert {a.job.total_steps for a in fixed} == {20.0, 40.0}


def test_several_devices_only_for_families_that_have_a_rate() -> None:
    jobs = [a.job for a in gavel_arrivals(SMALL, mean_interarrival_s=0.0, jobs=500, multi_gpu=True)]
    assert {job.scale_factor for job in jobs} == {1, 2, 4, 8}
    assert {job.family for job in jobs if job.scale_factor > 1} == {"B"}
    share = sum(job.scale_factor > 1 for job in jobs) / len(jobs)
    assert share == pytest.approx(0.3, abs=0.07)
    with pytest.raises(ThroughputError, match="one device has one at scale factor 2"):
        gavel_arrivals(table(("B", 1), ("C", 2)), mean_interarrival_s=1.0, multi_gpu=True)


def test_a_steady_state_fills_each_type_before_the_poisson_stream() -> None:
    cluster = Cluster.of({"v100": 3, "h100": 2})
    stream = gavel_arrivals(SMALL, mean_interarrival_s=60.0, steady_state=cluster)
    times = [a.time_s for a in islice(stream, 8)]
    assert times[:6] == [0.0] * 6  # 5 devices, and the first of the stream
    assert times[6] > 0


@pytest.mark.parametrize(
    ("mean_s", "jobs", "message"),
    [
        (-1.0, 5, "mean inter-arrival time: must be from 0 to .* s, got -1.0"),
        (math.nan, 5, "mean inter-arrival time: must be from 0 to .* s, got nan"),
        (0.0, None, "needs a number of jobs"),
        (1.0, 0, "number of jobs: must be from 1 to 2000000, got 0"),
    ],
)
def test_bad_options(mean_s: float, jobs: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gavel_arrivals(SMALL, mean_interarrival_s=mean_s, jobs=jobs)
    with pytest.raises(ConfigError, match=message):
        bursty_arrivals(SMALL, mean_interarrival_s=mean_s, jobs=jobs, rng=np.random.default_rng(0))


def test_more_bad_options() -> None:
    with pytest.raises(
        ConfigError, match=r"fixed duration: must be above 0 and at most .* s, got 0"
    ):
        gavel_arrivals(SMALL, mean_interarrival_s=1.0, fixed_duration_s=0)
    with pytest.raises(ConfigError, match=r"must be above the 2\.0 s within a sweep, got 1\.0"):
        bursty_arrivals(SMALL, mean_interarrival_s=1.0, rng=np.random.default_rng(0))
    with pytest.raises(ThroughputError, match="no rate > 0 at scale factors 1, 2, 4, 8, 16, 32"):
        bursty_arrivals(table(("B", 3)), mean_interarrival_s=9.0, rng=np.random.default_rng(0))


def test_bursty_jobs_look_like_those_of_real_clusters() -> None:
    rates = builtin_throughputs()
    rng = np.random.default_rng(7)
    stream = bursty_arrivals(rates, mean_interarrival_s=74.5, rng=rng, jobs=40_000)
    seen = describe(Trace("bursty", "bursty", list(stream)), rates)
    assert seen.durations is not None
    # Measured on Philly and ITP: 31 to 48 jobs/h, CV 3.8 to 15, 49 to 55 % within 10 s, hourly Fano
    # 61 to 161, peak over mean 11 to 25; Philly durations and demand.
    assert seen.arrivals.jobs_per_hour == pytest.approx(48.3, rel=0.1)
    assert 3 < (seen.arrivals.gap_cv or 0) < 15
    assert 0.45 < (seen.arrivals.within_10_s or 0) < 0.65
    assert 15 < (seen.arrivals.hourly_fano or 0) < 161
    assert seen.durations.percentiles_s[50] == pytest.approx(1_144, rel=0.25)
    assert seen.durations.percentiles_s[95] == pytest.approx(43_646, rel=0.35)
    assert seen.durations.over_a_day == pytest.approx(0.032, abs=0.015)
    assert seen.demand[0].jobs == pytest.approx(0.932, abs=0.03)
    assert seen.demand[0].device_time is not None
    assert seen.demand[0].device_time < 0.6  # few big jobs take much of the time


def test_the_jobs_of_a_sweep_are_alike() -> None:
    rng = np.random.default_rng(1)
    stream = bursty_arrivals(
        builtin_throughputs(), mean_interarrival_s=1e5, rng=rng, shape=Shape(sweep_tail=0.5)
    )
    jobs = list(islice(stream, 300))
    kinds = [
        ((a.job.family, a.job.scale_factor), (b.job.family, b.job.scale_factor))
        for a, b in pairwise(jobs)
        if b.time_s - a.time_s < 20
    ]
    assert len(kinds) > 200
    assert all(one == next_one for one, next_one in kinds)


def test_bursty_is_seeded() -> None:
    one, again, other = (
        list(
            bursty_arrivals(
                SMALL, mean_interarrival_s=60.0, rng=np.random.default_rng(seed), jobs=40
            )
        )
        for seed in (1, 1, 2)
    )
    assert one == again != other
    assert {a.job.family for a in one} <= {"A3C", "B"}


def test_gavels_families_are_26() -> None:
    assert len(set(GAVEL_FAMILIES)) == 26
