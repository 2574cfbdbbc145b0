"""The adaptation of a job's batch size, as text: ``static``, ``accordion``, ``gns`` or ``0:32;30:64``."""

from dataclasses import replace

from fairlead.errors import ConfigError
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.argument_checks import brief_repr
from fairlead.model.batch_size_rules import (
    SAMPLES_PER_EPOCH,
    Schedule,
    batch_schedule,
)
from fairlead.model.job import Job
from fairlead.simulator.traces.fields import whole
from fairlead.simulator.traces.reader import Checks
from fairlead.simulator.traces.source import Source

RULES = (Mode.STATIC, Mode.ACCORDION, Mode.GNS)  # the modes that need no schedule


def adapting(
    checks: Checks, line: int, name: str, job: Job, text: str, samples: int | None = None
) -> Job:
    """The job with the adaptation that field ``name`` describes; TraceError where it cannot be had.

    A static job keeps its batch size in any case: it has an adaptation, for its epochs, where its model's
    data set or ``samples`` (per epoch) is known.
    """
    mode, schedule = _parsed(checks.source, line, name, text)
    known = samples is not None or job.job_type.family in SAMPLES_PER_EPOCH
    if mode is Mode.STATIC and (not known or job.job_type.batch_size is None):
        return job
    try:
        made = batch_schedule(
            job.family,
            job.scale_factor,
            job.total_steps,
            mode,
            samples=samples,
            schedule=schedule,
        )
    except ConfigError as problem:
        raise checks.source.fault(line, f"{name} {brief_repr(text)}: {problem}") from None
    return replace(job, adaptation=made)


def described(adaptation: Adaptation) -> str:
    """The text for an adaptation; a schedule has the stages that the job reaches."""
    if adaptation.mode is not Mode.SCHEDULE:
        return adaptation.mode.value
    return ";".join(f"{epoch}:{batch}" for epoch, batch in adaptation.schedule)


def _parsed(source: Source, line: int, name: str, text: str) -> tuple[Mode, Schedule]:
    """(mode, schedule); the schedule is empty for the modes that need none."""
    word = text.strip()
    if word in RULES:
        return Mode(word), ()
    if ":" not in word:
        known = ", ".join(RULES)
        raise source.fault(
            line,
            f"{name}: expected {known} or a schedule such as 0:32;30:64 (epoch:batch size), "
            f"got {brief_repr(text)}",
        )
    return Mode.SCHEDULE, tuple(_stage(source, line, name, stage) for stage in word.split(";"))


def _stage(source: Source, line: int, name: str, text: str) -> tuple[int, int]:
    epoch, _, batch = text.partition(":")
    return whole(source, line, name, epoch, least=0), whole(source, line, name, batch, least=1)
