"""First in, first out, with a second job beside one that runs where the two gain enough."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.fifo import first_come

MIN_PAIR_RATE = 1.5  # sum of the normalised rates of a pair, above which it runs together


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSharingFifo:
    """x_ij = 1 as in fifo_aware; then the head of the line joins the job i that maximises R_i > 1.5.

    R_i = sum over the two of (rate beside the other / rate alone) on the type that i has; i runs alone
    and has as many devices. The pair takes i's place, and the next in line follows; the first that gains
    too little beside anybody holds up those behind it. Source: FIFO_Packing of Gavel's release.
    """

    name: str = "fifo_packed"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        slot, head = first_come(snapshot)
        runs = np.flatnonzero(slot >= 0)
        used = np.bincount(snapshot.accelerator_of_slot[slot[runs]], snapshot.job_scale[runs])
        idle = float(snapshot.capacity.sum() - used.sum())
        pairs = _pack(snapshot, slot, self.first_to_pack(head, idle))
        unpaired = np.setdiff1d(runs, pairs)
        share = np.zeros((len(slot), len(snapshot.slots)))
        share[unpaired, slot[unpaired]] = 1.0
        pair_share = np.zeros((len(pairs), len(snapshot.slots)))
        pair_share[np.arange(len(pairs)), slot[pairs[:, 0]]] = 1.0
        report = SolveReport("closed-form")
        return check_allocation(allocation(snapshot, share, report, pairs, pair_share), snapshot)

    def first_to_pack(self, head: int, idle: float) -> int:  # noqa: ARG002
        """Return the row of the first job that is packed. head: row of the first that has no devices; idle:
        devices that are left."""
        return head


def _pack(snapshot: Snapshot, slot: Ints, head: int) -> Ints:
    """(pairs, 2) jobs that run together, the one that has the devices first. slot: (jobs,) of those that
    run, -1 = none; head: where the line begins."""
    pairs: list[tuple[int, int]] = []
    unpaired = slot >= 0
    for job in range(head, len(slot)):
        among = np.flatnonzero(unpaired & (snapshot.job_scale == snapshot.job_scale[job]))
        together = _normalised_rate_of_pairs(snapshot, among, slot[among], job)
        if together.max(initial=0.0) <= MIN_PAIR_RATE:
            break
        host = int(among[together.argmax()])
        unpaired[host] = False
        pairs.append((host, job))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _normalised_rate_of_pairs(snapshot: Snapshot, hosts: Ints, slot: Ints, guest: int) -> Floats:
    """(hosts,) sum of normalised rates of each host and the guest on the host's slot."""
    colocated_rate, job_type, rate = snapshot.colocated_rate, snapshot.job_type, snapshot.solo_rate
    if colocated_rate is None:
        return np.zeros(len(hosts))
    host = colocated_rate[job_type[hosts], job_type[guest], slot] / rate[hosts, slot]
    guest_rate = colocated_rate[job_type[guest], job_type[hosts], slot]
    return np.asarray(
        host
        + np.divide(
            guest_rate, rate[guest, slot], out=np.zeros_like(guest_rate), where=guest_rate > 0
        )
    )
