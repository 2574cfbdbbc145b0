"""examples/workloads.toml: a program for each of the papers' families."""

from pathlib import Path

import pytest

from fairlead.cluster.play.workloads import read_workloads
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.simulator.arrivals import GAVEL_FAMILIES
from fairlead.workloads.command_line import _parser
from fairlead.workloads.registry import WORKLOADS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "workloads.toml"


def test_it_names_the_families_of_all_workloads_and_no_other() -> None:
    families = {one.family for one in WORKLOADS.values()}
    assert set(read_workloads(FILE).specs) == families
    assert families == {JobType.parse(name).family for name in GAVEL_FAMILIES}


def test_the_papers_batch_sizes_are_those_of_the_catalogue() -> None:
    for one in WORKLOADS.values():
        sizes = [JobType.parse(name).batch_size for name in GAVEL_FAMILIES]
        of_family = [
            size
            for name, size in zip(GAVEL_FAMILIES, sizes, strict=True)
            if JobType.parse(name).family == one.family and size is not None
        ]
        assert not of_family or tuple(of_family) == one.batch_sizes


@pytest.mark.parametrize("name", GAVEL_FAMILIES)
def test_each_job_type_is_played_by_its_workload_with_its_batch_size(name: str) -> None:
    job = Job(JobId(3), name, scale_factor=1, total_steps=10.0)
    spec = read_workloads(FILE).spec_of(job, {"v100": 1.0})
    assert spec.command[:3] == ("python3", "-m", "fairlead.workloads")
    options = _parser().parse_args(spec.command[3:])
    workload = WORKLOADS[options.name]
    assert workload.family == job.job_type.family
    assert (options.batch_size or workload.batch_sizes[0]) in workload.batch_sizes
    assert options.batch_size in (job.job_type.batch_size, workload.batch_sizes[0], None)


def test_the_page_shows_the_file() -> None:
    shown = FILE.read_text().split("\n\n", 1)[1]
    assert shown in (ROOT / "docs" / "workloads.md").read_text()
