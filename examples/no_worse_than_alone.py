"""A policy of your own with cvxpy: the most progress that leaves nobody worse off (docs/policies.md).

python examples/no_worse_than_alone.py        (needs cvxpy, which is in the extra ``dev``)
"""

import cvxpy as cp
import numpy as np

from fairlead import Allocation, Snapshot, SolveReport, allocation, inverse_rate, isolated_rate


class NoWorseThanAlone:
    """max_x sum_i t_i / I_i   s.t.  t_i >= I_i, its rate with an n-th of the cluster;  time;  devices."""

    name = "no_worse_than_alone"
    heterogeneity_aware, space_sharing, work_conserving = True, False, True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        rate, alone = snapshot.solo_rate, isolated_rate(snapshot, weighted=False)
        of_type = np.eye(len(snapshot.capacity))[snapshot.accelerator_of_slot]  # (slots, types)
        x = cp.Variable(rate.shape, nonneg=True)
        progress = cp.sum(cp.multiply(rate, x), axis=1)
        devices = snapshot.job_scale @ x @ of_type <= snapshot.capacity
        limits = [cp.sum(x, axis=1) <= 1, devices, progress >= 0.9999 * alone]
        value = cp.Problem(cp.Maximize(inverse_rate(alone) @ progress), limits).solve()
        report = SolveReport("optimal", objective=float(value))
        return allocation(snapshot, np.clip(x.value, 0, 1), report)


def make(_: object) -> NoWorseThanAlone:
    """Return the policy. An entry point names this function; the argument is a ``fairlead.PolicyRequest``."""
    return NoWorseThanAlone()


def main() -> None:
    """Thirty jobs on six devices."""
    import fairlead

    cluster = fairlead.parse_cluster("v100=2,p100=2,k80=2")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    jobs = list(fairlead.generate("gavel,jobs=30,interarrival=6000", rates, cluster, 0)[0])
    for policy in (NoWorseThanAlone(), "las_aware"):
        got = fairlead.simulate(jobs, cluster, policy, throughputs=rates).metrics
        worst, hours = got["rho"]["isolated"]["max"], got["avg_jct_s"] / 3600
        print(f"worst rho {worst:.2f}, average JCT {hours:.2f} h")


if __name__ == "__main__":
    main()
