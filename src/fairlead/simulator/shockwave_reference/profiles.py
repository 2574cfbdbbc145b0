"""The profiles of adapting jobs as Shockwave's release makes them, to the last bit.

They differ from what happens to a job (``fairlead.model.batch_size_rules``): the number of epochs is rounded
up; under GNS the last epoch falls back to the first batch size once the second threshold is passed; and an
epoch may end within a step.
Source: Shockwave (NSDI'23), the released job profiles.
"""

from dataclasses import replace
from math import ceil, inf

import numpy as np

from fairlead.model.adaptation import Adaptation, Mode, steps_per_epoch
from fairlead.model.arrays import Floats
from fairlead.model.batch_size_rules import Schedule, batch_and_samples, batch_schedule, rates
from fairlead.model.job import Job
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs


def released_schedule(
    family: str,
    scale_factor: int,
    total_steps: float,
    mode: Mode,
    *,
    samples: int | None = None,
    schedule: Schedule = (),
) -> Adaptation:
    """Return ``batch_schedule`` as the release has it: with whole epochs, and the first batch size in the
    last one under GNS."""
    batch, samples = batch_and_samples(family, samples)
    per_epoch = steps_per_epoch(samples, batch)
    whole = float(ceil(total_steps / per_epoch))
    made = batch_schedule(
        family, scale_factor, whole * per_epoch, mode, samples=samples, schedule=schedule
    )
    if mode is not Mode.GNS or len(made.schedule) < 3:
        return made
    last = int(whole) - 1
    kept = tuple(stage for stage in made.schedule if stage[0] < last)
    return replace(made, schedule=(*kept, (last, batch)))


def released_profile(job: Job) -> Adaptation | None:
    """The job's adaptation as the release profiles it; None if it has none."""
    own = job.adaptation
    if own is None:
        return None
    return released_schedule(
        job.family,
        job.scale_factor,
        job.total_steps,
        own.mode,
        samples=own.samples,
        schedule=own.schedule,
    )


def released_epoch_s(adaptation: Adaptation, job_type: JobType, throughputs: Throughputs) -> Floats:
    """(batches, slots) seconds of an epoch alone, inf where it cannot run."""
    rate = rates(adaptation, job_type, throughputs)
    steps = (adaptation.samples / np.array(adaptation.batches, np.float64))[:, None]
    return np.divide(steps, rate, out=np.full_like(rate, inf), where=rate > 0)


def released_exclusive_s(
    adaptation: Adaptation, job_type: JobType, throughputs: Throughputs
) -> Floats:
    """(slots,) the release's ``exclusive_runtime``: seconds that the whole job runs alone on each slot type,
    inf where it cannot run at one of its batch sizes."""
    seconds = released_epoch_s(adaptation, job_type, throughputs)
    # Added up epoch by epoch, as there: the order decides about the last bit.
    lengths = np.diff(np.append(adaptation.starts, ceil(adaptation.epochs)))
    one_by_one = np.repeat(seconds[adaptation.regimes], lengths, axis=0)
    last: Floats = np.cumsum(one_by_one, axis=0)[-1]
    return last


def released_job_exclusive_s(job: Job, throughputs: Throughputs) -> Floats | None:
    """(slots,) running time alone by the profile; None for a job without one."""
    if job.adaptation is None:
        return None
    return released_exclusive_s(job.adaptation, job.job_type, throughputs)
