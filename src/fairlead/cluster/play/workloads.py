"""The programs that the jobs of a trace run as: those of a file, by family, or stand-ins."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import make_spec, read_content
from fairlead.errors import InputError
from fairlead.model.job import Arrival, Job
from fairlead.model.toml_lines import naming_lines

# Fields of a job that the trace says.
OF_TRACE = (
    *("family", "name", "rates", "scale_factor", "slo_s", "total_steps", "weight"),
    *("after", "array"),
)
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
PLACEHOLDERS = ("{batch_size}", "{job}", "{scale_factor}", "{total_steps}")


@dataclass(frozen=True, slots=True)
class Workloads:
    """Programs by family. specs: name of a job type, or of a family -> its job, but for what the trace
    says."""

    specs: Mapping[str, JobSpec]

    def unused(self, arrivals: Iterable[Arrival]) -> list[str]:
        """Names of which there is no job."""
        there = {one.job.family for one in arrivals}
        there |= {one.job.job_type.family for one in arrivals}
        return sorted(self.specs.keys() - there)

    def spec_of(self, job: Job, rates: Mapping[str, float]) -> JobSpec:
        """The job as it is submitted, but for its name. job: its steps are those to be played. rates:
        accelerator type -> steps/s, of the types on which it can run."""
        spec = self.specs.get(job.family) or self.specs.get(job.job_type.family)
        if spec is None:
            spec = _stand_in(rates)
        values = {
            "{batch_size}": str(job.job_type.batch_size or 0),
            "{job}": str(job.id),
            "{scale_factor}": str(job.scale_factor),
            "{total_steps}": str(int(job.total_steps)),
        }
        return msgspec.structs.replace(
            spec,
            command=tuple(_filled(word, values) for word in spec.command),
            checkpoint_dir=_filled(spec.checkpoint_dir, values),
            total_steps=int(job.total_steps),
            scale_factor=job.scale_factor,
            weight=job.weight,
            slo_s=job.slo_s,
            rates=dict(rates),
        )


def read_workloads(path: str | Path) -> Workloads:
    """A TOML or JSON file with a table for each family: the fields of a job, without those that the trace
    says (``OF_TRACE``). In the words of ``command``, ``PLACEHOLDERS`` stand for what it says. InputError
    names file, line, family and field."""
    path = Path(path)
    with naming_lines(path):
        content = read_content(path, "workloads")
        if not isinstance(content, dict):
            raise InputError(f"{path}: expected a table for each family")
        return Workloads({name: _spec(path, name, fields) for name, fields in content.items()})


def _spec(path: Path, name: str, fields: Any) -> JobSpec:
    where = f"{path}: {name}"
    if not isinstance(fields, dict):
        raise InputError(f"{where}: expected a table of fields of a job, got {fields!r}")
    for field in OF_TRACE:
        if field in fields:
            raise InputError(f"{where}: {field}: is what the trace says, got {fields[field]!r}")
    folder = fields.get("checkpoint_dir", "")
    if folder and "{job}" not in str(folder):
        raise InputError(
            f"{where}: checkpoint_dir: each job needs its own, as /checkpoints/{{job}}, got {folder!r}"
        )
    spec = make_spec({**fields, "total_steps": 1}, where)
    for found in _PLACEHOLDER.findall(" ".join((*spec.command, spec.checkpoint_dir))):
        if found not in PLACEHOLDERS:
            raise InputError(
                f"{where}: command: there is no {found}; what is replaced: {', '.join(PLACEHOLDERS)}"
            )
    return spec


def _stand_in(rates: Mapping[str, float]) -> JobSpec:
    step_s = ",".join(f"{name}={1 / rate:.9g}" for name, rate in sorted(rates.items()) if rate > 0)
    return JobSpec(
        command=("python3", "-m", "fairlead.client.stand_in", "--step-s", step_s),
        total_steps=1,
        cwd="/",
        prefork=True,
    )


def _filled(word: str, values: Mapping[str, str]) -> str:
    for placeholder in PLACEHOLDERS:
        word = word.replace(placeholder, values[placeholder])
    return word
