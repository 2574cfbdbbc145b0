"""The one input of every policy and planner."""

from dataclasses import dataclass, fields, replace

import numpy as np

from fairlead.model.adaptation import Adaptation
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import SlotType


@dataclass(frozen=True, slots=True)
class Regimes:
    """The batch sizes of jobs that adapt. A job that announced nothing has one regime and one epoch."""

    batch: Ints  # (jobs, batches) samples per step, 0 = none
    kind: Ints  # (jobs, batches) row of the throughput table, -1 = none
    steps_per_epoch: Floats  # (jobs, batches)
    seen: Floats  # (jobs, batches) epochs trained at each so far
    now: Ints  # (jobs,) column in force
    epochs: Floats  # (jobs,) of the whole job
    announced: tuple[
        Adaptation | None, ...
    ]  # (jobs,) with the schedule, which only an oracle may use


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the scheduler knows at one moment, as aligned arrays.

    Jobs stand in order of submission (ids ascending). A unit is a row of ``member``: positions of its
    jobs in ``jobs``, -1 behind the last. Without packing there is one unit per job, in the same order.
    With packing the units are the jobs and those pairs that are in force; a policy may allocate to any
    pair of jobs of equal scale factor, at the rates of ``colocated_rate``.
    The arrays are views of the scheduler's own: read them, never write or keep them.
    """

    now_s: float
    round_s: float  # the most that a round lasts
    jobs: Ints  # (jobs,) ids
    weight: Floats  # (jobs,)
    total_steps: Floats  # (jobs,)
    steps_left: Floats  # (jobs,)
    age_s: Floats  # (jobs,) since submission
    ran_s: Floats  # (jobs,) run time so far
    deadline_s: Floats  # (jobs,) seconds from now to the deadline, inf = none
    job_class: Ints  # (jobs,) jobs of one class have the same kind and weight
    tenant: Ints  # (jobs,) whose the job is: position in tenants
    tenants: tuple[str, ...]
    kind: Ints  # (jobs,) row of the throughput table: jobs of one kind have the same rates
    kind_rate: Floats  # (kinds, slots) steps/s of every row of that table
    regimes: Regimes | None  # None: no job adapts
    isolated_s: Floats  # (jobs,) time that its steps would have taken with its part of the cluster
    restart_s: Floats  # (jobs,) seconds that a start on new devices costs
    slots: tuple[SlotType, ...]
    accelerator_of_slot: Ints  # (slots,) the accelerator type that a slot type draws on
    capacity: Floats  # (types,) devices that work
    price: Floats  # (types,) $ per device-hour
    member: Ints  # (units, width) positions in jobs, -1 = none
    scale: Ints  # (units,) devices
    rate: Floats  # (units, slots, width) steps/s of each member; 0 = cannot run there
    colocated_rate: (
        Floats | None
    )  # (kinds, kinds, slots) steps/s of the first kind beside the second
    received_s: Floats  # (units, slots) run time since the accounts were last settled
    deficit_s: Floats  # (units, slots) time owed from before that
    allocated_s: Floats  # (slots,) sum of received_s over units, those that have left included
    share: Floats  # (units, slots) the allocation in force, 0 where a unit is not in it
    allocated: Bools  # (units,) was the unit part of the allocation in force
    running_on: Ints  # (units,) slot of the round that has just ended, -1 = did not run
    previous: Allocation | None  # the answer in force, for warm starts

    def copied(self) -> "Snapshot":
        """The same with arrays of its own, to be kept while the scheduler goes on."""
        arrays = {
            field.name: getattr(self, field.name).copy()
            for field in fields(self)
            if isinstance(getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)

    @property
    def packed(self) -> bool:
        """Are there units of more than one job?"""
        return bool(self.member.shape[1] > 1)

    @property
    def solo_rate(self) -> Floats:
        """(jobs, slots) steps/s of each job alone."""
        if not self.packed:
            return self.rate[:, :, 0]
        return self.rate[self.member[:, 1] < 0, :, 0]

    @property
    def job_scale(self) -> Ints:
        """(jobs,) devices that each job uses."""
        return self.scale if not self.packed else self.scale[self.member[:, 1] < 0]
