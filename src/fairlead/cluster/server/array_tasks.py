"""The tasks of arrays: jobs that are submitted as one, each with an index of its own. And what the ranks of a
task, or of a trial of a search, know of it by their environment."""

import secrets
from collections.abc import Iterator

from msgspec.structs import replace

from fairlead.cluster.protocol.arrays import parse_array
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_study import parameter_variables
from fairlead.cluster.store.rows import JobRow


def count_tasks(spec: JobSpec) -> int:
    """Return how many jobs it describes."""
    return len(parse_array(spec.array).indices) if spec.array else 1


def folder_of(job: int) -> str:
    """A name that no other job has for the folder of its checkpoints."""
    return f"{job}-{secrets.token_hex(4)}"


def tasks_of(first: JobRow) -> Iterator[JobRow]:
    """The jobs of an array, whose ids follow each other. first: what they share, with the id of the first
    one, which is that of the array too."""
    indices = parse_array(first.spec.array).indices
    for position, index in enumerate(indices):
        yield replace(
            first,
            id=first.id + position,
            name=f"{first.name}[{index}]" if first.name else "",
            folder=folder_of(first.id + position),
            array=first.id,
            array_index=index,
            array_count=len(indices),
        )


def task_variables(row: JobRow) -> dict[str, str]:
    """The variables by which the ranks of a task know which one it is."""
    if row.array < 0:
        return {}
    return {
        "FAIRLEAD_ARRAY_ID": str(row.array),
        "FAIRLEAD_ARRAY_INDEX": str(row.array_index),
        "FAIRLEAD_ARRAY_COUNT": str(row.array_count),
    }


def trial_variables(row: JobRow) -> dict[str, str]:
    """The variables by which the ranks of a trial of a search know its parameters."""
    if row.search < 0:
        return {}
    return {
        "FAIRLEAD_SEARCH": str(row.search),
        "FAIRLEAD_TRIAL": str(row.trial),
    } | parameter_variables(row.parameters)
