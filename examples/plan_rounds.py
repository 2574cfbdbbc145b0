"""A planner of your own: it decides each round itself, without long-run shares.

python examples/plan_rounds.py
"""

from dataclasses import dataclass

import numpy as np

import fairlead
from fairlead import RoundPlan, RoundsOnlyPlanner, Snapshot


@dataclass(frozen=True)
class LeastLeftFirst(RoundsOnlyPlanner):
    """Jobs by the time that they still need on their fastest type, each on the fastest type with room."""

    name: str = "least_left_first"

    def plan(self, snapshot: Snapshot, state: None) -> tuple[RoundPlan, None]:
        """The next round."""
        rate, free = snapshot.solo_rate, snapshot.capacity.copy()
        left_s = snapshot.steps_left / rate.max(axis=1)
        job_group, slot = [], []
        for job in np.argsort(left_s, kind="stable").tolist():
            fits = free[snapshot.accelerator_of_slot] >= snapshot.job_scale[job]
            best = int(np.where(fits, rate[job], 0.0).argmax())
            if fits[best] and rate[job, best] > 0:
                free[snapshot.accelerator_of_slot[best]] -= snapshot.job_scale[job]
                job_group.append(job)  # without pairs, a job group is a job
                slot.append(best)
        return RoundPlan(np.array(job_group, np.int64), np.array(slot, np.int64)), state


def main() -> None:
    """Thirty jobs on six devices, in order of arrival and by what is left of them."""
    cluster = fairlead.parse_cluster("v100=2,p100=2,k80=2")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    jobs = list(fairlead.generate("gavel,jobs=30,interarrival=3000", rates, cluster, 0)[0])
    for planner in ("fifo_aware", LeastLeftFirst()):
        got = fairlead.simulate(jobs, cluster, planner, throughputs=rates).metrics
        named = planner if isinstance(planner, str) else planner.name
        print(f"{named:16} average JCT {got['avg_jct_s'] / 3600:5.1f} h")


if __name__ == "__main__":
    main()
