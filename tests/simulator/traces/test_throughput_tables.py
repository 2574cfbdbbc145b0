"""Throughput tables: Gavel's JSON, our CSV, the built-in catalogue."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job_types import job_types

from fairlead.errors import ThroughputError
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.throughput_tables import (
    builtin_throughputs,
    read_throughputs,
    write_throughputs_csv,
)

CSV = "family,scale_factor,accelerator,locality,steps_per_s,source\n"
PAIRS = "family,scale_factor,accelerator,locality,steps_per_s,source,beside\n"
GAVEL = {
    "v100": {
        "('LM (batch size 5)', 1)": {"null": 4.0, "('LM (batch size 5)', 1)": [2.5, 2.0]},
        "('A3C', 1)": {"null": 1, "('LM (batch size 5)', 1)": [0.5, 3.0]},
    },
    "v100_unconsolidated": {"('A3C', 1)": {"null": 0.75}},
}


def write(folder: Path, text: str) -> Path:
    path = folder / "table"
    path.write_text(text)
    return path


def test_gavel_tables_have_localities_and_pairs(tmp_path: Path) -> None:
    table = read_throughputs(write(tmp_path, json.dumps(GAVEL)))
    assert table.slots == (SlotType("v100"), SlotType("v100", Locality.SCATTERED))
    assert table.job_types == job_types(("LM (batch size 5)", 1), ("A3C", 1))
    assert table.rate.tolist() == [[4.0, 0.0], [1.0, 0.75]]
    assert table.colocated_rate is not None
    assert table.colocated_rate[:, :, 0].tolist() == [[2.5, 0.0], [0.5, 0.0]]


def test_the_oldest_gavel_tables_have_families_as_keys(tmp_path: Path) -> None:
    table = read_throughputs(write(tmp_path, '{"k80": {"A3C": {"null": 2.0, "A3C": [1, 1]}}}'))
    assert table.job_types == job_types(("A3C", 1))
    assert table.colocated_rate is not None


def test_a_rate_that_has_no_row_is_0(tmp_path: Path) -> None:
    text = CSV + "LM,1,h100,consolidated,9,a\nLM,2,l4,spread,3.5,b\n"
    table = read_throughputs(write(tmp_path, text))
    assert table.slots == (SlotType("h100"), SlotType("l4", Locality.SCATTERED))
    assert table.rate.tolist() == [[9.0, 0.0], [0.0, 3.5]]
    assert table.colocated_rate is None
    assert table.fastest.tolist() == [9.0, 0.0]  # consolidated rates only, where there are any


BAD = {
    "empty": ("", ": is empty"),
    "no rows": (CSV, ":1: the table has no rows"),
    "column": ("family,scale_factor\nLM,1\n", ":1: column 'accelerator' is missing; it needs fam"),
    "locality": (CSV + "LM,1,a,near,3,\n", ":2: locality: expected consolidated or spread, got 'n"),
    "negative": (CSV + "LM,1,a,spread,-3,\n", ":2: steps_per_s: must be >= 0, got '-3'"),
    "nan": (CSV + "LM,1,a,spread,nan,\n", ":2: steps_per_s: expected a finite number, got 'nan'"),
    "scale": (CSV + "LM,0,a,spread,3,\n", ":2: scale_factor: must be >= 1, got '0'"),
    "family": (CSV + ",1,a,spread,3,\n", ":2: family: must not be empty"),
    "twice": (CSV + "LM,1,a,spread,3,\n" * 2, ":3: LM at scale factor 1 on a: the row appears tw"),
    "stranger beside": (
        PAIRS + "LM,1,a,spread,3,,\nLM,1,a,spread,2,,A3C\n",
        ":3: beside: A3C at scale factor 1 has no row of its own",
    ),
    "twice beside": (
        PAIRS + "LM,1,a,spread,3,,\n" + "LM,1,a,spread,2,,LM\n" * 2,
        ":4: LM at scale factor 1 on a beside LM: the row appears twice",
    ),
    "json": ('{"v100": \n!', ":2: not valid JSON: "),
    "json, no rows": ("{}", ": the table has no rows"),
    "json type": ('{"v100": 3}', ": Expected `object`, got `int` - at `$[...]`"),
    "json key": ('{"a": {"(1, 2)": {"null": 3}}}', ": key '(1, 2)': expected ('family', scale fac"),
    "json rate": (
        """{"a": {"LM": {"null": -3}}}""",
        ": a, LM: the rate must be a number >= 0, got",
    ),
    "json pair": ('{"a": {"LM": {"LM": [1]}}}', ": a, LM, LM: expected two rates >= 0, got [1.0]"),
    "json partner": ('{"a": {"LM": {"X": [1, 1]}}}', ": a, LM: partner 'X' has no row"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_bad_tables_are_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ThroughputError) as caught:
        read_throughputs(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


@given(
    rate=st.lists(st.lists(st.floats(0, 1e12), min_size=2, max_size=2), min_size=1, max_size=4),
    name=st.text(
        st.characters(codec="utf-8", exclude_characters="\r\n#"), min_size=1, max_size=9
    ).filter(lambda text: text.strip() == text),
)
def test_csv_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rate: list[list[float]], name: str
) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    kinds = tuple(JobType.parse(name, n + 1) for n in range(len(rate)))
    slots = (SlotType("a"), SlotType("a", Locality.SCATTERED))
    table = Throughputs(slots, kinds, np.array(rate))
    write_throughputs_csv(table, path)
    again = read_throughputs(path)
    assert (again.slots, again.job_types) == (slots, kinds)
    assert again.rate.tolist() == rate


def test_pairs_survive_a_csv(tmp_path: Path) -> None:
    table = read_throughputs(write(tmp_path, json.dumps(GAVEL)))
    write_throughputs_csv(table, tmp_path / "t.csv")
    again = read_throughputs(tmp_path / "t.csv")
    assert again.job_types == table.job_types
    assert again.colocated_rate is not None
    assert table.colocated_rate is not None
    assert again.colocated_rate.tolist() == table.colocated_rate.tolist()


def test_rows_beside_another_family_are_pairs(tmp_path: Path) -> None:
    rows = "LM,1,h100,consolidated,2,measured,A3C\nLM,1,h100,consolidated,3,,\n"
    rows += "A3C,1,h100,consolidated,9,,\nA3C,1,h100,consolidated,5,, LM \n"
    table = read_throughputs(write(tmp_path, PAIRS + rows))
    assert table.job_types == job_types(("LM", 1), ("A3C", 1))
    assert table.colocated_rate is not None
    assert table.colocated_rate[:, :, 0].tolist() == [[0.0, 2.0], [5.0, 0.0]]


def test_the_catalogue_covers_old_and_new_accelerators() -> None:
    table = read_throughputs("builtin")
    names = {slot.accelerator for slot in table.slots}
    assert {"v100", "p100", "k80", "a100-40", "a100-80", "h100", "l4"} <= names
    assert len(table.families) == 26 + 22
    new = [table.slots.index(SlotType(name)) for name in ("a100-40", "a100-80", "h100", "l4")]
    v100 = table.slots.index(SlotType("v100"))
    modern = {
        one.name for one, rates in zip(table.job_types, table.rate, strict=True) if rates[new].any()
    }
    shared_with_v100 = {
        one.name
        for one, rates in zip(table.job_types, table.rate, strict=True)
        if rates[new].any() and rates[v100] > 0
    }
    assert len(modern) >= 20
    assert len(shared_with_v100) >= 8
    assert {one.scale_factor for one in table.job_types if one.name in modern} >= {
        1,
        2,
        4,
        8,
        16,
        32,
        64,
    }


def test_more_devices_of_a_type_are_faster_in_the_catalogue_nearly_always() -> None:
    """A guard against a wrong unit in a row: total rates grow with the scale factor."""
    table = builtin_throughputs()
    slower = [
        (one, slot)
        for i, one in enumerate(table.job_types)
        for t, slot in enumerate(table.slots)
        if slot.locality is Locality.CONSOLIDATED
        and one.scale_factor > 1
        and (half := table.row(JobType.parse(one.name, one.scale_factor // 2))) is not None
        and 0 < table.rate[i, t] < 0.95 * table.rate[half, t]
    ]
    assert len(slower) < 12, slower


@pytest.mark.shared
def test_the_catalogue_has_gavels_rates(shared: Path) -> None:
    gavel = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    ours = builtin_throughputs()
    for i, one in enumerate(gavel.job_types):
        row = ours.row(one)
        assert row is not None
        columns = [ours.slots.index(slot) for slot in gavel.slots]
        assert ours.rate[row, columns].tolist() == gavel.rate[i].tolist()


@pytest.mark.shared
def test_gavels_own_table(shared: Path) -> None:
    table = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    assert len(table.job_types) == 83
    assert len(table.slots) == 6
    assert table.colocated_rate is not None
    alone = table.colocated_rate[:, :, [0, 2, 4]]
    # 5277 ordered pairs over the three types, 1170 + 1103 + 1123 of them impossible.
    assert np.count_nonzero(alone) == 5277 - 1170 - 1103 - 1123


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "gavel/physical_cluster_throughputs.json",
        "gavel/oracle_throughputs_motivation.json",
        "shockwave/tacc_throughputs.json",
        "shockwave/wisr_throughputs.json",
        "shockwave/actual_throughputs.json",
    ],
)
def test_other_released_tables(shared: Path, name: str) -> None:
    table = read_throughputs(shared / "data" / name)
    assert len(table.families) == 26
    assert (table.rate >= 0).all()


def test_a_rate_beside_another_cannot_be_above_the_rate_alone(tmp_path: Path) -> None:
    """But for the noise of a measurement."""
    path = tmp_path / "a.csv"
    for rate in ("10.9", "11.1"):
        path.write_text(
            PAIRS + "A,1,v100,consolidated,10,x,\nB,1,v100,consolidated,5,x,\n"
            f"A,1,v100,consolidated,{rate},x,B\n"
        )
        if rate == "10.9":
            assert read_throughputs(path).colocated_rate is not None
            continue
        with pytest.raises(
            ThroughputError, match=r":4: steps_per_s: A .* must not be above the rate"
        ):
            read_throughputs(path)
