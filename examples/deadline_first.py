"""A policy of your own with NumPy: earliest deadline first (docs/policies.md).

python examples/deadline_first.py
"""

import numpy as np

from fairlead import Allocation, Snapshot, SolveReport, allocation, check_allocation


class DeadlineFirst:
    """x_ij = 1 for the fastest type j with s_i devices left, jobs by deadline."""

    name, heterogeneity_aware, space_sharing, work_conserving = "deadline_first", True, False, True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        free, share = snapshot.capacity.copy(), np.zeros_like(snapshot.solo_rate)
        for i in np.argsort(snapshot.deadline_s, kind="stable"):
            fits = free[snapshot.accelerator_of_slot] >= snapshot.job_scale[i]
            j = (fits * snapshot.solo_rate[i]).argmax()
            if fits[j] and snapshot.solo_rate[i, j] > 0:
                share[i, j] = 1.0
                free[snapshot.accelerator_of_slot[j]] -= snapshot.job_scale[i]
        return check_allocation(allocation(snapshot, share, SolveReport("greedy")), snapshot)


def make(_: object) -> DeadlineFirst:
    """Return the policy. An entry point names this function; the argument is a ``fairlead.PolicyRequest``."""
    return DeadlineFirst()


def main() -> None:
    """Eighty jobs with deadlines of 1.2, 2 or 10 times their running time: who is late?"""
    import fairlead

    cluster = fairlead.parse_cluster("v100=3,p100=3,k80=3")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    spec = "gavel,jobs=80,interarrival=9000,deadlines"
    jobs = list(fairlead.generate(spec, rates, cluster, 0)[0])
    for policy in (DeadlineFirst(), "las_aware"):
        got = fairlead.simulate(jobs, cluster, policy, throughputs=rates).metrics
        hours = got["avg_jct_s"] / 3600
        print(f"{got['slo_violations']} of {got['slo_jobs']} late, average JCT {hours:.2f} h")


if __name__ == "__main__":
    main()
