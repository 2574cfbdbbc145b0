"""Workloads of Pollux's release: jobs of applications that arrive over time, as CSV."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import TraceError
from fairlead.simulator.pollux_reference.applications import Application
from fairlead.simulator.traces import fields
from fairlead.simulator.traces.source import Source, csv_cells

_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A job as it is submitted."""

    name: str
    submitted_s: int
    application: Application
    replicas: int  # that its owner asks for, where the policy leaves that to owners
    batch: int  # samples of a step of the whole job, likewise


def read_workload(path: Path, applications: Mapping[str, Application]) -> list[ElasticJob]:
    """The jobs of a file in its order. Raises TraceError."""
    source = Source(path, TraceError)
    jobs = dict[str, ElasticJob]()
    for number, cell in csv_cells(source, _COLUMNS):
        job = _job(source, number, cell, applications)
        if job.name in jobs:
            raise source.fault(number, f"name: appears twice, got {job.name!r}")
        jobs[job.name] = job
    if not jobs:
        raise source.fault(None, "has no jobs")
    return list(jobs.values())


def _job(
    source: Source, line: int, cell: Mapping[str, str], applications: Mapping[str, Application]
) -> ElasticJob:
    if not cell["name"]:
        raise source.fault(line, "name: must not be empty")
    application = applications.get(cell["application"])
    if application is None:
        known = ", ".join(applications)
        raise source.fault(
            line, f"application: expected one of {known}, got {cell['application']!r}"
        )
    replicas = fields.whole(source, line, "num_replicas", cell["num_replicas"], 1)
    batch = fields.whole(source, line, "batch_size", cell["batch_size"], 1)
    least, most = application.batches[0], application.batches[-1]
    if not least <= batch <= most:
        raise source.fault(
            line,
            f"batch_size: must be from {least} to {most}, as {application.name} was trained, got {batch}",
        )
    return ElasticJob(
        name=cell["name"],
        submitted_s=int(fields.seconds(source, line, "time", cell["time"])),
        application=application,
        replicas=replicas,
        batch=batch,
    )
