"""Shares of elastic jobs: a policy's program with a column for each slot type and number of devices.

A configuration takes the place of a slot type, so a policy's program is as it was: a job divides its time
among configurations, and on one of d devices it uses d of them. What one uses depends on the configuration
alone, so every job's scale is 1 and the devices are those of the column (``Snapshot.slot_devices``).
"""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, SharesByNumber
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NumberChoices:
    """The numbers of devices that jobs may have, one row for each of a job's; a job that is not elastic has
    one."""

    job: Ints  # (choices,) position in ``Snapshot.jobs``, ascending
    devices: Ints  # (choices,) ascending within a job
    job_type: Ints  # (choices,) row of the throughput table
    rate: Floats  # (choices, slots) steps/s; 0 = cannot run there

    @staticmethod
    def of(snapshot: Snapshot) -> "NumberChoices":
        """Those of a snapshot's jobs. No number is offered on a type with fewer devices."""
        every = np.arange(len(snapshot.jobs))
        elastic = snapshot.elastic
        if elastic is None:
            return NumberChoices(
                every,
                snapshot.job_scale,
                snapshot.job_type,
                np.ascontiguousarray(snapshot.solo_rate),
            )
        rigid = np.setdiff1d(every, elastic.job)
        job = np.concatenate([elastic.job, rigid])
        devices = np.concatenate([elastic.devices, snapshot.job_scale[rigid]])
        job_type = np.concatenate([elastic.job_type, snapshot.job_type[rigid]])
        rate = np.concatenate([snapshot.job_type_rate[elastic.job_type], snapshot.solo_rate[rigid]])
        rate[devices[:, None] > snapshot.capacity[snapshot.accelerator_of_slot]] = 0.0
        order = np.lexsort((devices, job))
        return NumberChoices(job[order], devices[order], job_type[order], rate[order])


@dataclass(frozen=True, slots=True)
class ConfigurationProblem:
    """A snapshot whose slot types are the configurations, and what these are."""

    snapshot: Snapshot
    slot: Ints  # (configurations,) slot type of the scheduler's snapshot
    devices: Ints  # (configurations,)

    @staticmethod
    def of(given: Snapshot, choices: NumberChoices, share: Floats) -> "ConfigurationProblem":
        """The problem of a snapshot without pairs. share: (choices, slots) in force."""
        numbers, column = np.unique(choices.devices, return_inverse=True)
        jobs, slots = len(given.jobs), len(given.slots)
        devices = np.repeat(numbers, slots)
        slot = np.tile(np.arange(slots), len(numbers))
        rate, in_force = np.zeros((2, jobs, len(numbers), slots))
        rate[choices.job, column] = choices.rate
        in_force[choices.job, column] = share
        rate, in_force = rate.reshape(jobs, -1), in_force.reshape(jobs, -1)
        job_type, job_class = _alike(given, choices, column, len(numbers))
        present = np.searchsorted(numbers, given.job_scale) * slots + given.running_on
        none = np.zeros(rate.shape)
        snapshot = replace(
            given,
            job_class=job_class,
            job_type=job_type,
            job_type_rate=rate[np.unique(job_type, return_index=True)[1]],
            believed_rate=None,
            slots=tuple(given.slots[s] for s in slot.tolist()),
            accelerator_of_slot=given.accelerator_of_slot[slot],
            configuration_devices=devices.astype(np.float64),
            elastic=None,
            group_members=np.arange(jobs)[:, None],
            scale=np.ones(jobs, np.int64),
            rate=rate[:, :, None],
            received_s=none,
            deficit_s=none,
            allocated_s=np.zeros(len(slot)),
            share=in_force,
            running_on=np.where(given.running_on >= 0, present, -1),
        )
        return ConfigurationProblem(snapshot, slot, devices)

    def allocation(self, made: Allocation, slots: int) -> Allocation:
        """The scheduler's allocation of one that shares out configurations. slots: how many slot types."""
        share = np.zeros((len(made.share), slots))
        for configuration, slot in enumerate(self.slot.tolist()):
            share[:, slot] += made.share[:, configuration]
        used = np.flatnonzero(made.share.any(axis=0))
        by_number = SharesByNumber(
            slot=self.slot[used],
            devices=self.devices[used],
            share=np.ascontiguousarray(made.share[:, used]),
        )
        groups = np.ascontiguousarray(made.job_groups[:, :1])
        return Allocation(groups, np.minimum(share, 1.0), made.report, by_number)


def _alike(
    given: Snapshot, choices: NumberChoices, column: Ints, numbers: int
) -> tuple[Ints, Ints]:
    """(jobs,) the same for jobs with the same rates in all configurations, and for those of the same weight
    among these."""
    rows = np.full((len(given.jobs), numbers), -1, np.int64)
    rows[choices.job, column] = choices.job_type
    job_type = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    weight = np.unique(given.weight, return_inverse=True)[1].reshape(-1)
    pairs = job_type * (int(weight.max(initial=0)) + 1) + weight
    return job_type, np.unique(pairs, return_inverse=True)[1].reshape(-1)
