"""The adaptation of batch sizes: columns of the table of jobs, and the same in words."""

from collections.abc import Sequence

from fairlead.model.adaptation import Adaptation
from fairlead.model.job import Job

MAX_STAGES = 6  # that are listed one by one; a longer schedule is summed up


def adaptation_columns(jobs: Sequence[Job]) -> dict[str, list[str | None]]:
    """``mode`` and ``batch_sizes`` (as profiles have them) of jobs, None where they do not adapt."""
    known = [job.adaptation for job in jobs]
    return {
        "mode": [None if one is None else str(one.mode) for one in known],
        "batch_sizes": [None if one is None else _written(one) for one in known],
    }


def _written(adaptation: Adaptation) -> str:
    """A schedule as our CSV of jobs has it: ``0:16;31:32``."""
    return ";".join(f"{epoch}:{batch}" for epoch, batch in adaptation.schedule)


def in_words(batch_sizes: str) -> str:
    """A schedule for people: ``16, 32 from 31`` (epoch); a long one is summed up."""
    stages = [stage.split(":") for stage in batch_sizes.split(";")]
    (_, first), *later = stages
    if len(stages) <= MAX_STAGES:
        return ", ".join([first, *(f"{batch} from {epoch}" for epoch, batch in later)])
    sizes = sorted({int(batch) for _, batch in stages})
    return f"{first}, then {len(later)} changes between {' and '.join(map(str, sizes))}"
