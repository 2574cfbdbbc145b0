"""Shockwave's generator: equal to its released traces; a stream that is seeded and mixed as asked."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import ConfigError, ThroughputError
from fairlead.model.adaptation import Mode
from fairlead.model.cluster import SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.adapting_arrivals import (
    FAMILIES,
    Mix,
    adapting_arrivals,
)
from fairlead.simulator.generate import generate
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs

CLUSTER = parse_cluster("v100=8")
BUILTIN = builtin_throughputs()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("jobs", "mean_s", "seed", "rates"),
    [(120, 40, 25, "tacc"), (220, 25, 4, "wisr"), (900, 5, 15, "wisr")],
)
def test_the_released_traces_are_equal(
    jobs: int, mean_s: int, seed: int, rates: str, shared: Path
) -> None:
    table = read_throughputs(shared / f"data/shockwave/{rates}_throughputs.json")
    (path,) = (shared / "data/shockwave/traces").glob(f"{jobs}_*")
    spec = f"shockwave,jobs={jobs},interarrival={mean_s},durations=100,multi-gpu"
    made, count = generate(spec, table, CLUSTER, seed)
    assert count == jobs
    assert list(made) == read_trace(path, table).arrivals


def test_the_stream_is_endless_and_seeded() -> None:
    first, again, other = (
        list(islice(adapting_arrivals(BUILTIN, mean_interarrival_s=40.0, seed=seed), 60))
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert {a.job.scale_factor for a in first} == {1}


def test_jobs_are_mixed_as_asked() -> None:
    mix = Mix(modes=(0.2, 0.5, 0.3), scales=(0.5, 0.2, 0.2, 0.1))
    jobs = [
        arrival.job
        for arrival in adapting_arrivals(
            BUILTIN, mean_interarrival_s=1.0, jobs=3000, multi_gpu=True, mix=mix
        )
    ]
    long = [job for job in jobs if job.duration_s and job.duration_s >= 1000]
    modes = Counter(job.adaptation.mode for job in long if job.adaptation)
    assert modes[Mode.ACCORDION] / len(long) == pytest.approx(0.5, abs=0.03)
    assert modes[Mode.GNS] / len(long) == pytest.approx(0.3, abs=0.03)
    spread = [job for job in jobs if not job.family.startswith("Recommendation")]
    scales = Counter(job.scale_factor for job in spread)
    for scale, part in zip((1, 2, 4, 8), mix.scales, strict=True):
        assert scales[scale] / len(spread) == pytest.approx(part, abs=0.03)
    durations = np.array([job.duration_s for job in jobs], np.float64)
    assert (durations < 0.2 * 4.8 * 3600 + 720).mean() == pytest.approx(0.72, abs=0.03)
    assert durations.max() <= 5 * 3600


def test_short_accordion_jobs_stay_static() -> None:
    mix = Mix(modes=(0.0, 1.0, 0.0))
    stream = adapting_arrivals(BUILTIN, mean_interarrival_s=1.0, jobs=500, mix=mix)
    modes = {
        (job.duration_s is not None and job.duration_s < 1000, job.adaptation.mode)
        for job in (arrival.job for arrival in stream)
        if job.adaptation
    }
    assert modes == {(True, Mode.STATIC), (False, Mode.ACCORDION)}


def test_only_families_that_run_are_drawn() -> None:
    kinds = ((FAMILIES[0], 1), (FAMILIES[0], 2), (FAMILIES[5], 1), ("GPT", 1))
    table = Throughputs(
        (SlotType("tpu"),), job_types(*kinds), np.array([[1.0], [2.0], [0.0], [1.0]])
    )
    jobs = [
        arrival.job
        for arrival in adapting_arrivals(
            table, mean_interarrival_s=0.0, jobs=200, multi_gpu=True, mix=Mix((1.0, 0.0, 0.0))
        )
    ]
    assert {(job.family, job.scale_factor) for job in jobs} == {(FAMILIES[0], 1), (FAMILIES[0], 2)}
    none = Throughputs(
        (SlotType("tpu"),),
        job_types(
            ("GPT", 1),
        ),
        np.ones((1, 1)),
    )
    with pytest.raises(ThroughputError, match="no family of Shockwave has a rate"):
        adapting_arrivals(none, mean_interarrival_s=1.0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shockwave,duration=5", "shockwave does not take 'duration=5'"),
        ("gavel,durations=5", "gavel does not take 'durations=5'"),
        ("bursty,multi-gpu", "bursty does not take 'multi-gpu'"),
        ("poisson", "'poisson' is not known .choose from gavel, bursty, shockwave"),
        ("shockwave,durations=4", "durations: must be from 5 to 100000, got 4"),
        ("shockwave,durations=9.5", "durations must be a whole number from 1 to 100000, got '9.5'"),
        ("shockwave,modes=1:0", "modes must be three parts, got 2"),
        ("shockwave,modes=0.5:0.1:0.1", "mix of modes: parts must be >= 0 and add up to 1"),
        ("shockwave,modes=a:0:1", "modes must be a number from 0 to 1, got 'a'"),
        ("shockwave,interarrival=0", "needs a number of jobs"),
    ],
)
def test_what_cannot_be_generated(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(spec, BUILTIN, CLUSTER, 0)


def test_modes_by_description() -> None:
    made, _ = generate("shockwave,jobs=50,modes=1:0:0", BUILTIN, CLUSTER, 0)
    assert {a.job.adaptation.mode for a in made if a.job.adaptation} == {Mode.STATIC}
