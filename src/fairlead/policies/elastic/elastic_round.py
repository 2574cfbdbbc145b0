"""What policies of elastic jobs decide by."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.multiple_choice import MultipleChoice

NOTHING = 1e-9  # in place of a goodput of zero, of a job that restarts for as long as it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRound:
    """The jobs of a moment and the configurations that each of them may have.

    goodput: (jobs, configurations) useful steps per second, 0 = may not run so; only ratios within a job
    count where it has not been measured yet. devices, accelerator: (configurations,); capacity:
    (accelerators,) devices. present: (jobs,) configuration now, -1 = none. starts: (jobs,) so far. age_s:
    (jobs,) since the submission. remaining_s: (jobs,) until the end on the slowest configuration, nan = not
    known yet. restart_s: (jobs,) what a change of the configuration costs.
    """

    goodput: Floats
    devices: Ints
    accelerator: Ints
    capacity: Ints
    present: Ints
    starts: Ints
    age_s: Floats
    remaining_s: Floats
    restart_s: Floats

    def relative(self) -> Floats:
        """Return (jobs, configurations) the goodput relative to that of the job's slowest configuration."""
        slowest = np.where(self.goodput > 0, self.goodput, np.inf).min(axis=1, keepdims=True)
        return np.where(self.goodput > 0, self.goodput / slowest, 0.0)

    def fair_share(self) -> Floats:
        """Return (jobs, 1) the goodput with a job's equal part of the devices, of any type; linear between
        numbers of devices."""
        share = max(self.capacity.sum() / len(self.goodput), 1.0)
        found = np.empty((len(self.goodput), 1))
        for i, row in enumerate(self.goodput):
            counts = np.unique(self.devices[row > 0])
            best = np.array([row[self.devices == count].max() for count in counts])
            found[i] = np.interp(share, counts, best)
        return found

    def kept(self, factor: Floats) -> Floats:
        """Return (jobs, configurations) a factor of configurations, 1 for those that jobs have now."""
        factor = np.array(np.broadcast_to(factor, self.goodput.shape))
        has = np.flatnonzero(self.present >= 0)
        factor[has, self.present[has]] = 1.0
        return factor

    def restart_factor(self) -> Floats:
        """Return (jobs, configurations) the part of its life in which a job has trained if it is moved now:
        moves of those that were moved often count less (Pollux, section 4.2.1). Jobs that have not run are
        free."""
        restarts = np.maximum(self.starts - 1, 0)
        trained_s = np.maximum(self.age_s - restarts * self.restart_s, 0.0)
        life_s = self.age_s + self.restart_s
        part = np.where(life_s > 0, trained_s / np.maximum(life_s, NOTHING), 1.0)
        return self.kept(np.where(self.starts > 0, part, 1.0)[:, None])

    def program(self, worth: Floats, none: Floats) -> MultipleChoice:
        """Return the program of an objective. worth: (jobs, configurations); none: (jobs,) of no devices."""
        return MultipleChoice(
            worth=np.where(self.goodput > 0, worth, -np.inf),
            none=none,
            resource=self.accelerator,
            demand=self.devices,
            capacity=self.capacity,
        )
