"""Commands of the core, which are its only output."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import msgspec

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.plan import PlannerState
from fairlead.model.snapshot import Snapshot


class JobEnd(IntEnum):
    """The reason why a job left."""

    COMPLETED = 1
    DROPPED = 2  # failed too often
    KILLED = 3  # ended early by its owner or by its own crash
    CANCELLED = 4  # withdrawn by its owner


@dataclass(frozen=True, slots=True)
class Solve:
    """Ask the planner for an answer; answered by ``Solved``."""

    time_s: float
    snapshot: Snapshot
    state: PlannerState = None  # the planner's own


class StartRound(msgspec.Struct, frozen=True, kw_only=True, rename={"offsets": "first"}):
    """The job groups that run from now on, and their devices. Running job groups that are not named here
    stop.

    A Struct because journals call the offsets ``first``.
    """

    time_s: float
    round: int
    length_s: float  # the leases end after this many seconds at the latest
    job_groups: Ints  # (groups, width) job ids, -1 after the last member
    slot: Ints  # (groups,) column of the scheduler's slot types
    devices: Ints  # (all devices of all groups,) device ids, job group by job group
    offsets: Ints  # (groups + 1,) job group u holds devices[offsets[u]:offsets[u + 1]]
    kept: Bools  # (groups,) runs on from the round before on the same devices
    active: int  # jobs in the system


@dataclass(frozen=True, slots=True)
class EndRound:
    """End the round in force now, so that it can be planned again; answered by ``RoundEnded``."""

    time_s: float
    round: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """No job group runs, and some may from ``wake_s`` on. Answered by ``Stalled``, unless another event comes
    before."""

    time_s: float
    wake_s: float  # > time_s


@dataclass(frozen=True, slots=True)
class EndJobs:
    """Jobs that have left."""

    time_s: float
    jobs: Ints  # (jobs,) ids
    end: Ints  # (jobs,) of ``JobEnd``
    end_s: Floats  # (jobs,) when


Command: TypeAlias = Solve | StartRound | EndRound | WakeAt | EndJobs
