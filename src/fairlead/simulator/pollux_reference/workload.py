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
    on: Mapping[str, Application]  # as measured on each accelerator type, one at least
    replicas: int  # that its owner asks for, where the policy leaves that to owners
    batch: int  # samples of a step of the whole job, likewise

    @property
    def application(self) -> Application:
        """Return that of the first type: its trainings are those of all of them."""
        return next(iter(self.on.values()))


def read_workload(
    path: Path, applications: Mapping[str, Mapping[str, Application]]
) -> list[ElasticJob]:
    """The jobs of a file in its order. applications: by name and accelerator type. Raises TraceError."""
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
    source: Source,
    line: int,
    cell: Mapping[str, str],
    applications: Mapping[str, Mapping[str, Application]],
) -> ElasticJob:
    if not cell["name"]:
        raise source.fault(line, "name: must not be empty")
    on = applications.get(cell["application"])
    if on is None:
        known = ", ".join(applications)
        raise source.fault(
            line, f"application: expected one of {known}, got {cell['application']!r}"
        )
    replicas = fields.whole(source, line, "num_replicas", cell["num_replicas"], 1)
    batch = fields.whole(source, line, "batch_size", cell["batch_size"], 1)
    batches = next(iter(on.values())).batches
    least, most = batches[0], batches[-1]
    if not least <= batch <= most:
        raise source.fault(
            line,
            f"batch_size: must be from {least} to {most}, as {cell['application']} was trained, got {batch}",
        )
    return ElasticJob(
        name=cell["name"],
        submitted_s=int(fields.seconds(source, line, "time", cell["time"])),
        on=on,
        replicas=replicas,
        batch=batch,
    )
