"""The part of the catalogue that Gavel's generator draws from."""

from pathlib import Path

import pytest

from fairlead.model.cluster import SlotType
from fairlead.simulator.generate import generate
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs


def test_it_has_gavels_families_and_types_only() -> None:
    table = read_throughputs("builtin:gavel")
    assert {slot.accelerator for slot in table.slots} == {"k80", "p100", "v100"}
    assert len(table.families) == 26
    assert table.families < builtin_throughputs().families


@pytest.mark.shared
def test_its_rates_alone_are_those_of_the_release(shared: Path) -> None:
    theirs = read_throughputs(shared / "data" / "gavel" / "simulation_throughputs.json")
    ours = read_throughputs("builtin:gavel")
    slots = tuple(map(SlotType, ("k80", "p100", "v100")))
    ours, theirs = ours.columns(slots), theirs.columns(slots)
    rates = [dict(zip(one.job_types, one.rate.tolist(), strict=True)) for one in (ours, theirs)]
    assert rates[0] == rates[1]
    cluster = parse_cluster("v100=4,p100=4,k80=4")
    drawn = [generate("gavel,jobs=50,multi-gpu", one, cluster, 3)[0] for one in (ours, theirs)]
    assert list(drawn[0]) == list(drawn[1]), "the generator draws the same jobs from both"
