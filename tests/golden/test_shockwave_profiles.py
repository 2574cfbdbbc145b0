"""Profiles and batch-size rules against those of Shockwave's release."""

import json
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.batch_size_rules import (
    GNS,
)
from fairlead.model.cluster import SlotType
from fairlead.simulator.shockwave_reference.profiles import (
    released_epoch_s,
    released_exclusive_s,
    released_profile,
    released_schedule,
)
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs

pytestmark = pytest.mark.shared
V100 = SlotType("v100")
RUNS = (
    ("profile_120_100_tacc.json", "120_", "tacc"),
    ("profile_220_100_wisr.json", "220_", "wisr"),
)


def every_epoch(adaptation: Adaptation) -> list[int]:
    """The batch size of each epoch."""
    ends = [first for first, _ in adaptation.schedule[1:]] + [ceil(adaptation.epochs)]
    stages = zip(adaptation.schedule, ends, strict=True)
    return [batch for (first, batch), end in stages for _ in range(first, end)]


@pytest.mark.parametrize(("golden", "trace", "rates"), RUNS)
def test_profiles_equal_the_reference(golden: str, trace: str, rates: str, shared: Path) -> None:
    """Epochs, schedule, seconds per epoch and alone: to the last bit."""
    table = read_throughputs(shared / f"data/shockwave/{rates}_throughputs.json").columns((V100,))
    (path,) = (shared / "data/shockwave/traces").glob(f"{trace}*")
    jobs = [arrival.job for arrival in read_trace(path, table).arrivals]
    reference = json.loads((shared / "golden/shockwave" / golden).read_text())
    for job, expected in zip(jobs, reference, strict=True):
        made = released_profile(job)
        assert made is not None
        assert made.mode == expected["mode"]
        assert made.epochs == expected["num_epochs"]
        runs = [[batch, len(list(run))] for batch, run in groupby(every_epoch(made))]
        assert runs == expected["bs_rle"]
        seconds = released_epoch_s(made, job.job_type, table)[:, 0]
        by_batch = {str(b): s for b, s in zip(made.batches, seconds.tolist(), strict=True)}
        assert by_batch == expected["epoch_duration_by_bs"]
        alone = released_exclusive_s(made, job.job_type, table)
        assert alone.tolist() == [expected["exclusive_runtime"]]


@pytest.fixture(scope="module")
def rules(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared / "golden/shockwave/bs_rules.json").read_text())
    return found


def test_gns_equals_the_reference(rules: dict[str, Any]) -> None:
    """Over 1,000 epochs, the last of which falls back; and nothing else ever adapts."""
    for key, stages in rules["gns"].items():
        model, batch, scale = key.split("|")
        steps = 1000.0 * -(-SIZES[model] // int(batch))
        family = f"{model} (batch size {batch})"
        made = released_schedule(family, int(scale[2:]), steps, Mode.GNS)
        assert [list(stage) for stage in made.schedule] == stages, key
    listed = {(m, b, s) for m, rows in GNS.items() for b, row in rows.items() for s in row}
    assert listed == {
        (model, int(batch), int(scale[2:]))
        for model, batch, scale in (key.split("|") for key in rules["gns"])
    }


def test_accordion_equals_the_reference(rules: dict[str, Any]) -> None:
    for key, stages in rules["accordion_1000ep"].items():
        model, batch = key.split("|")
        steps = 1000.0 * -(-SIZES[model] // int(batch))
        made = released_schedule(f"{model} (batch size {batch})", 1, steps, Mode.ACCORDION)
        assert [list(stage) for stage in made.schedule] == stages, key


SIZES = {
    "ResNet-18": 50000,
    "ResNet-50": 100000,
    "Transformer": 10000,
    "LM": 59675,
    "Recommendation": 117907,
}
