"""The problem of sharing devices of each type among classes of alike jobs, with their sizes and rates."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.snapshot import Snapshot
from fairlead.policies.solve.job_classes import JobClasses, group


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareProblem:
    """Jobs by class, what they can do, and what there is to share."""

    classes: JobClasses
    scale: Floats  # (classes,) devices of a job
    rate: Floats  # (classes, slots) steps/s of a job alone; 0 = cannot run there
    accelerator_of_slot: Ints  # (slots,)
    slot_devices: Floats  # (slots,) devices of a job there for each one of its scale
    capacity: Floats  # (types,) devices
    job_type: Ints  # (classes,) row of colocated_rate
    colocated_rate: (
        Floats | None
    )  # (job types, job types, slots) steps/s of the first with the second; None = no pairs

    @staticmethod
    def of(
        snapshot: Snapshot,
        key: Ints | None = None,
        *,
        space_sharing: bool = False,
        rate: Floats | None = None,
    ) -> "ShareProblem":
        """The problem of a snapshot. key: (jobs,) jobs with the same key are interchangeable,
        None = ``job_class``; space_sharing: whether jobs may run in pairs; rate: (jobs, slots) in place of
        the snapshot's, 0 where it cannot run. Types without devices cannot be run on."""
        classes = group(snapshot.job_class if key is None else key)
        solo_rate = (snapshot.solo_rate if rate is None else rate)[classes.representative]
        return ShareProblem(
            classes=classes,
            scale=snapshot.job_scale[classes.representative].astype(np.float64),
            rate=np.where((snapshot.capacity > 0)[snapshot.accelerator_of_slot], solo_rate, 0.0),
            accelerator_of_slot=snapshot.accelerator_of_slot,
            slot_devices=snapshot.slot_devices,
            capacity=snapshot.capacity,
            job_type=snapshot.job_type[classes.representative],
            colocated_rate=snapshot.colocated_rate if space_sharing else None,
        )

    def per_device(self, cost: Floats) -> Floats:
        """(classes, slots) what a job pays there. cost: (slots,) of a device."""
        return self.scale[:, None] * (cost * self.slot_devices)

    def slot_cost(self, price: Floats) -> Floats:
        """(slots,) price of as many devices as a job with a scale of 1 has there. price: (types,) of a
        device."""
        return price[self.accelerator_of_slot] * self.slot_devices

    @property
    def best(self) -> Floats:
        """(classes,) fastest rate alone, 1 where a job can run nowhere."""
        best = self.rate.max(axis=1, initial=0.0)
        return np.where(best > 0, best, 1.0)

    @property
    def can_run(self) -> Bools:
        """(classes,) whether any slot type has a rate."""
        return np.asarray((self.rate > 0).any(axis=1))
