"""Allocation problems as JSON lines."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import InputError
from fairlead.model.cluster import SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.instances import read_instances

RATES = Throughputs(
    (SlotType("v100"), SlotType("k80")),
    job_types(("LM", 1), ("LM", 2), ("A3C", 1)),
    np.array([[4.0, 1.0], [7.0, 0.0], [3.0, 2.0]]),
    origin="rates.csv",
)


def job(**changes: Any) -> dict[str, Any]:
    return {
        "id": 0,
        "job_type": "LM",
        "scale_factor": 1,
        "priority": 1.0,
        "total_steps": 100,
        "num_steps_remaining": 40.5,
        "time_since_start": 7.0,
        **changes,
    }


def problem(*jobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"k": 3, "cluster_spec": {"v100": 2, "k80": 4}, "jobs": list(jobs), **changes}


def test_a_line_is_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    line = problem(job(id=5, priority=5.0), job(id=2, scale_factor=2), job(id=9), results={})
    path.write_text(json.dumps(line) + "\n\n")
    [(k, snapshot)] = list(read_instances(path, RATES))
    assert k == 3
    assert snapshot.jobs.tolist() == [2, 5, 9]
    assert [slot.accelerator for slot in snapshot.slots] == ["k80", "v100"]
    assert snapshot.capacity.tolist() == [4, 2]
    assert snapshot.solo_rate.tolist() == [[0, 7], [1, 4], [1, 4]]
    assert snapshot.scale.tolist() == [2, 1, 1]
    assert snapshot.weight.tolist() == [1, 5, 1]
    assert len(set(snapshot.job_class.tolist())) == 3
    assert snapshot.steps_left.tolist() == [40.5] * 3
    assert snapshot.age_s.tolist() == [7.0] * 3


def test_prices_are_those_of_the_line_or_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    lines = [problem(job()), problem(job(), prices={"k80": 2.5})]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = (snapshot.price.tolist() for _, snapshot in read_instances(path, RATES))
    assert first == [0.135, 0.74]
    assert second == [2.5, 0.74]


def test_alike_jobs_are_one_class_and_gzip_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "p.gz"
    line = problem(job(), job(id=1), job(id=2, job_type="A3C"))
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    [(_, snapshot)] = list(read_instances(path, RATES))
    assert snapshot.job_class[0] == snapshot.job_class[1] != snapshot.job_class[2]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not an allocation problem"),
        ("[]", "not an allocation problem"),
        (problem(), "jobs: expected at least one"),
        (problem(job(), k="x"), r"not an allocation problem: .*\$\.k"),
        (problem(job(), job()), r"jobs\[1\]\.id: appears twice, got 0"),
        (problem(job(scale_factor=0)), r"jobs\[0\]\.scale_factor: must be >= 1, got 0"),
        (problem(job(priority=0)), r"jobs\[0\]\.priority: must be > 0"),
        (problem(job(num_steps_remaining=-1)), r"num_steps_remaining: must be > 0"),
        (problem(job(time_since_start=-1)), r"time_since_start: must be >= 0"),
        (
            problem(job(job_type="GPT")),
            r"job 0: job_type: 'GPT' at scale_factor 1 has no rates in .*rates\.csv",
        ),
        (problem(job(scale_factor=8)), "at scale_factor 8"),
        (problem(job(), cluster_spec={"tpu": 2}), "'tpu'"),
        (problem(job(), prices={"p100": 1.0}), "prices: 'p100' is not in the cluster"),
        (problem(job(), prices={"k80": -1.0}), "price of 'k80': must be a number from 0 to"),
        (problem(job(), cluster_spec={"v100": -1}), "must be >= 0, got -1"),
        (problem(job(), cluster_spec={"v100": 10**12}), "must be <= 1000000, got 1000000000000"),
        (problem(job(), cluster_spec={}), "no devices"),
        (problem(job(id=1 << 80)), "not an allocation problem"),
        (problem(job(id=1 << 53)), r"not an allocation problem: .*\$\.jobs\[0\]\.id"),
    ],
)
def test_bad_lines_are_one_sentence_with_file_and_line(
    tmp_path: Path, line: object, says: str
) -> None:
    path = tmp_path / "p.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(json.dumps(problem(job())) + "\n" + text + "\n")
    with pytest.raises(InputError, match=says) as caught:
        list(read_instances(path, RATES))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "\n" not in str(caught.value)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        list(read_instances(path, RATES))
