"""The release's predictions, as recorded in its window problems."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.policies.adapting import Row, snapshot_of_adapting

from fairlead.model.cluster import Cluster
from fairlead.policies.shockwave.options import RELEASED, ProfileCalibration
from fairlead.policies.shockwave.remaining_work import remaining_work
from fairlead.simulator.shockwave_reference.profiles import released_profile
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs

pytestmark = pytest.mark.shared


@pytest.mark.parametrize(
    ("instances", "trace", "table", "devices"),
    [("n32", "120_", "tacc", 32), ("n64", "220_", "wisr", 64)],
)
def test_remaining_times_and_epoch_times(
    shared: Path, instances: str, trace: str, table: str, devices: int
) -> None:
    """All but those (4 %) that the release's calibration, which is off here, had changed."""
    data = shared / "data" / "shockwave"
    rates = read_throughputs(data / f"{table}_throughputs.json")
    (path,) = (data / "traces").glob(f"{trace}*.trace")
    jobs = {arrival.job.id: arrival.job for arrival in read_trace(path, rates).arrivals}
    cluster = Cluster.of({"v100": devices})
    options = replace(RELEASED, calibration=ProfileCalibration.OFF)
    same = total = 0
    for line in (shared / f"golden/shockwave/window/{instances}.jsonl").read_text().splitlines():
        problem = json.loads(line)["inst"]
        rows = []
        for job, progress in zip(problem["ids"], problem["cur"], strict=True):
            announced = released_profile(jobs[job])
            assert announced is not None
            rows.append(Row(jobs[job].family, announced, progress, jobs[job].scale_factor, id=job))
        view = remaining_work(snapshot_of_adapting(rows, cluster, rates), options)
        assert view.epochs.tolist() == problem["E"]
        left = np.isclose(view.mean_left_s, problem["R"], rtol=1e-9)
        epoch = np.isclose(view.epoch_s[:, 0], problem["d"], rtol=1e-9)
        same += int((left & epoch).sum())
        total += len(rows)
    assert same >= 0.955 * total
