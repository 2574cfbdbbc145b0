"""Rates of pairs in the built-in catalogue."""

import csv
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job_types import job_types

from fairlead.model.arrays import Floats
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.interference import (
    Interference,
    builtin_interference,
    fits,
    progress,
)
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs

SMALL = Interference(
    {"a": (6.0, 1.0), "b": (11.0, 2.0)}, {"fast": (16.0, 0.5), "large": (32.0, 0.5)}
)
pressures = st.lists(st.floats(0.05, 20.0), min_size=2, max_size=6).map(np.array)


@given(pressures, st.floats(0.01, 3.0), st.floats(0.0, 1.0))
def test_progress_is_between_0_and_1_and_falls_with_the_neighbours_claim(
    pressure: Floats, contention: float, protection: float
) -> None:
    got = progress(pressure, contention, protection)
    assert ((got > 0) & (got < 1)).all()
    rising = got[:, np.argsort(pressure)]
    assert (np.diff(rising, axis=1) <= 0).all(), "a heavier neighbour costs more"
    heavier = got[np.argsort(pressure)]
    assert (np.diff(heavier, axis=0) >= 0).all(), "a heavier job suffers less"
    assert (progress(pressure, contention / 2, protection) > got).all()


@given(pressures)
def test_two_jobs_of_one_family_get_the_same(pressure: Floats) -> None:
    twice = progress(np.repeat(pressure, 2), 0.5)
    assert (twice == np.repeat(np.repeat(progress(pressure, 0.5), 2, axis=0), 2, axis=1)).all()


def test_memory_decides_who_fits() -> None:
    assert fits(np.array([6.0, 10.0]), 16.0).tolist() == [[True, True], [True, False]]


def test_pairs_need_one_device_memory_rates_and_known_names() -> None:
    slots = (SlotType("fast"), SlotType("large", Locality.SCATTERED), SlotType("unheard of"))
    kinds = (("a", 1), ("b", 1), ("a", 2), ("stranger", 1))
    rate = np.array([[10.0, 10.0, 10.0], [4.0, 0.0, 4.0], [9.0] * 3, [9.0] * 3])
    pair = SMALL.colocated_rate(Throughputs(slots, job_types(*kinds), rate))
    own = 1 / (1 + 0.5)
    assert pair[0, 0] == pytest.approx([10 * own, 10 * own, 0])
    assert not pair[0, 1].any(), "17 GB are too many for fast, and b has no rate on large"
    assert not pair[1:].any()


def test_a_heavier_family_keeps_more_of_its_rate() -> None:
    table = Throughputs(
        (SlotType("large"),), job_types(("a", 1), ("b", 1)), np.array([[10.0], [10.0]])
    )
    pair = SMALL.colocated_rate(table)[:, :, 0]
    assert pair[0, 1] == pytest.approx(10 / (1 + 0.5 * 2))
    assert pair[1, 0] > pair[1, 1] > pair[0, 1]


def test_the_catalogue_has_pairs_of_jobs_on_one_device() -> None:
    table = builtin_throughputs()
    assert table.colocated_rate is not None
    single = np.array([one.scale_factor == 1 for one in table.job_types])
    assert not table.colocated_rate[~single].any()
    assert not table.colocated_rate[:, ~single].any()
    assert (table.colocated_rate < table.rate[:, None])[table.colocated_rate > 0].all()
    both = table.colocated_rate > 0
    assert (both == both.transpose(1, 0, 2)).all()
    alone_only = {table.slots[t].accelerator for t in np.flatnonzero(~both.any(axis=(0, 1)))}
    assert alone_only == {"l4"}, "24 GB, and both of its families need more than half of that"


def test_every_family_and_accelerator_type_of_the_catalogue_has_parameters() -> None:
    table, model = builtin_throughputs(), builtin_interference()
    assert {slot.accelerator for slot in table.slots} == set(model.accelerators)
    assert {one.name for one in table.job_types if one.scale_factor == 1} == set(model.families)


@pytest.mark.parametrize("name", ["families.csv", "accelerators.csv"])
def test_each_parameter_says_what_it_rests_on(name: str) -> None:
    text = (files("fairlead.simulator.traces.data") / name).read_text(encoding="utf-8")
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    assert all(row["basis"].startswith(("fitted", "guess")) for row in rows)
    assert sum(row["basis"] == "fitted" for row in rows) == {"families.csv": 26}.get(name, 3)


@pytest.mark.shared
def test_the_model_is_as_far_off_gavels_measurements_as_the_docs_say(shared: Path) -> None:
    measured = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    assert measured.colocated_rate is not None
    model = builtin_interference().colocated_rate(measured)
    single = [i for i, one in enumerate(measured.job_types) if one.scale_factor == 1]
    near = [t for t, s in enumerate(measured.slots) if s.locality is Locality.CONSOLIDATED]
    got, true = (
        model[np.ix_(single, single, near)],
        measured.colocated_rate[np.ix_(single, single, near)],
    )
    both = (got > 0) & (true > 0)
    error = np.abs(got[both] / true[both] - 1)
    assert np.median(error) < 0.13
    assert np.quantile(error, 0.9) < 0.38
    assert got.size == 2028
    assert ((got > 0) == (true > 0)).mean() > 0.98
