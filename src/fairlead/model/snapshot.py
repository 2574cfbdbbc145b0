"""The one input of every policy and planner."""

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from fairlead.model.adaptation import Adaptation
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, SlotType

# The arrays that have a row for each job group.
_BY_GROUP = (
    "group_members",
    "scale",
    "rate",
    "received_s",
    "deficit_s",
    "share",
    "allocated",
    "running_on",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regimes:
    """The batch sizes of jobs that adapt. A job that announced nothing has one regime and one epoch."""

    batch: Ints  # (jobs, batches) samples per step, 0 = none
    job_type: Ints  # (jobs, batches) row of the throughput table, -1 = none
    steps_per_epoch: Floats  # (jobs, batches)
    epochs_trained: Floats  # (jobs, batches) epochs trained at each so far
    current: Ints  # (jobs,) column in force
    epochs: Floats  # (jobs,) of the whole job
    announced: tuple[
        Adaptation | None, ...
    ]  # (jobs,) with the schedule, which only an oracle may use


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The nodes of a cluster, in its order, for planners that choose among them."""

    names: tuple[str, ...]
    accelerator: Ints  # (nodes,) index of the accelerator type
    size: Ints  # (nodes,) devices
    working: Ints  # (nodes,) devices that may be given to jobs: all of a node, or none

    @staticmethod
    def of(cluster: Cluster, usable: Bools) -> "Servers":
        """Return the nodes of a cluster. usable: (devices,) whether a device may be given to jobs."""
        column = {name: index for index, name in enumerate(cluster.accelerators)}
        return Servers(
            names=tuple(node.name for node in cluster.nodes),
            accelerator=np.array([column[node.accelerator] for node in cluster.nodes], np.int64),
            size=np.array([node.devices for node in cluster.nodes], np.int64),
            working=np.bincount(cluster.device_node[usable], minlength=len(cluster.nodes)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The numbers of devices that elastic jobs may have, one row for each of a job's; that of now is among
    them."""

    job: Ints  # (choices,) position in ``Snapshot.jobs``, ascending
    devices: Ints  # (choices,) ascending within a job
    job_type: Ints  # (choices,) row of the throughput table with the rates on so many devices


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The scheduler's knowledge at one moment, as aligned arrays.

    Jobs are in order of submission (ids ascending). A job group is a row of ``group_members``: the positions
    of its jobs in ``jobs``, followed by -1. Without space sharing there is one job group per job, in the same
    order. With space sharing the job groups are the jobs and the pairs that are in force; a policy may
    allocate to any pair of jobs of equal scale factor, at the rates of ``colocated_rate``.
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
    job_class: Ints  # (jobs,) jobs of one class have the same job type and weight
    tenant: Ints  # (jobs,) whose the job is: position in tenants
    tenants: tuple[str, ...]
    job_type: Ints  # (jobs,) row of the throughput table: jobs of one job type have the same rates
    job_type_rate: Floats  # (job_types, slots) steps/s of every row of that table
    regimes: Regimes | None  # None: no job adapts
    isolated_s: Floats  # (jobs,) time that its steps would have taken with its part of the cluster
    restart_s: Floats  # (jobs,) seconds that a start on new devices costs
    slots: tuple[SlotType, ...]
    accelerator_of_slot: Ints  # (slots,) the accelerator type that a slot type draws on
    capacity: Floats  # (types,) devices that work
    price: Floats  # (types,) $ per device-hour
    group_members: Ints  # (groups, width) positions in jobs, -1 = none
    scale: Ints  # (groups,) devices
    rate: Floats  # (groups, slots, width) steps/s of each member; 0 = cannot run there
    colocated_rate: (
        Floats | None
    )  # (job_types, job_types, slots) steps/s of the first job type beside the second; ``PairRates``, which
    # are indexed in the same way, where stating one for each pair would be too much
    received_s: Floats  # (groups, slots) run time since the accounts were last settled
    deficit_s: Floats  # (groups, slots) time owed from before that
    allocated_s: Floats  # (slots,) sum of received_s over job groups, those that have left included
    share: Floats  # (groups, slots) the allocation in force, 0 where a job group is not in it
    allocated: Bools  # (groups,) was the job group part of the allocation in force
    running_on: Ints  # (groups,) slot of the round that has just ended, -1 = did not run
    previous: Allocation | None  # the answer in force, for warm starts
    servers: Servers | None = None  # None: nobody knows, as in a problem from a file
    elastic: Elastic | None = None  # None: every job keeps its number of devices
    configuration_devices: Floats | None = (
        None  # (slots,) devices of a job on each slot type, where slot types are the configurations of
    )
    # elastic jobs and every scale is 1; None: as many as its scale says
    believed_rate: Floats | None = (
        None  # (job_types, slots) as job_type_rate, but not 0 on slot types that
    )
    # another dominates: what a job does where its devices are scattered; None: as job_type_rate
    max_restart_s: float = math.inf  # seconds that a start costs at most where no work is lost

    @property
    def unkept_s(self) -> Floats:
        """(jobs,) seconds of work that each job loses if it is stopped now: what ``restart_s`` has above a
        start."""
        return np.maximum(self.restart_s - self.max_restart_s, 0.0)

    def copied(self) -> "Snapshot":
        """Return a copy with arrays of its own, which stays valid while the scheduler goes on."""
        arrays = {
            field.name: getattr(self, field.name).copy()
            for field in fields(self)
            if isinstance(getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)

    def without_pairs(self) -> "Snapshot":
        """Return the snapshot with single jobs only, and without co-located rates."""
        if self.space_sharing:
            alone = self.group_members[:, 1] < 0
            changes = {name: getattr(self, name)[alone] for name in _BY_GROUP}
            changes |= {
                "group_members": changes["group_members"][:, :1],
                "rate": changes["rate"][:, :, :1],
            }
            return replace(self, colocated_rate=None, **changes)
        return replace(self, colocated_rate=None)

    @property
    def space_sharing(self) -> bool:
        """Return whether there are job groups of more than one job."""
        return bool(self.group_members.shape[1] > 1)

    @property
    def solo_rate(self) -> Floats:
        """(jobs, slots) steps/s of each job alone."""
        if not self.space_sharing:
            return self.rate[:, :, 0]
        return self.rate[self.group_members[:, 1] < 0, :, 0]

    @property
    def slot_devices(self) -> Floats:
        """(slots,) devices of a job there for each one of its scale: 1, but for configurations."""
        if self.configuration_devices is None:
            return np.ones(len(self.slots))
        return self.configuration_devices

    @property
    def job_scale(self) -> Ints:
        """(jobs,) devices that each job uses."""
        return self.scale if not self.space_sharing else self.scale[self.group_members[:, 1] < 0]
