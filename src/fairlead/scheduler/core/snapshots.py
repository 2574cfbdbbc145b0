"""Snapshots: the scheduler's data as planners see it."""

import numpy as np

from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.core.resizing import elastic_choices
from fairlead.scheduler.core.scheduler_data import SchedulerData


def take_snapshot(s: SchedulerData, time_s: float) -> Snapshot:
    """Return the snapshot for a planner's call, and note in the ledger which regimes it was shown."""
    if s.ledger.regimes.used:
        s.ledger.regimes.announce(s.ledger.jobs.job_type, s.ledger.jobs.total)
    return make_snapshot(s, time_s)


def make_snapshot(s: SchedulerData, time_s: float, regimes: bool = True) -> Snapshot:
    """Return what is known at a time, without paused jobs; nothing changes. regimes: include the batch sizes
    of jobs."""
    ledger = s.ledger
    jobs, groups, total = ledger.jobs, ledger.groups, ledger.jobs.total
    shown = ledger.regimes.shown(jobs.job_type, total, jobs.done) if regimes else None
    snapshot = Snapshot.__new__(Snapshot)
    object.__setattr__(  # a constructor that sets frozen fields one by one takes ten times as long
        snapshot,
        "__dict__",
        {
            "now_s": time_s,
            "round_s": s.options.settings.round_s,
            "jobs": jobs.id,
            "weight": jobs.weight,
            "total_steps": total,
            "steps_left": np.maximum(total - jobs.done, 0.0),
            "age_s": time_s - jobs.arrival_s,
            "ran_s": ledger.runs.ran_s,
            "deadline_s": jobs.deadline_s - time_s,
            "job_class": jobs.job_class,
            "tenant": jobs.tenant,
            "tenants": ledger.tenants,
            "job_type": jobs.rate_row,
            "job_type_rate": ledger.job_type_rate,
            "regimes": shown,
            "isolated_s": ledger.isolated.isolated_s,
            "restart_s": jobs.restart_s,
            "slots": s.slots,
            "accelerator_of_slot": s.running.topology.accelerator_of_slot,
            "capacity": s.capacity,
            "price": s.cluster.price.copy(),
            "group_members": groups.members,
            "scale": groups.scale,
            "rate": groups.rate,
            "colocated_rate": ledger.colocated_rate if s.planning.planner.space_sharing else None,
            "received_s": groups.received_s,
            "deficit_s": groups.deficit_s,
            "allocated_s": ledger.allocated_s,
            "share": groups.share,
            "allocated": groups.allocated,
            "running_on": groups.running_on,
            "previous": s.planning.previous,
            "servers": s.servers,
            "elastic": elastic_choices(s) if s.elastic else None,
            "configuration_devices": None,
            "believed_rate": s.beliefs.table.rate,
            "max_restart_s": s.options.restart_costs.largest_s,
        },
    )
    return snapshot
