"""Compare a policy of your own with Fairlead's, with several seeds: intervals and paired differences.

python examples/compare_with_seeds.py
"""

import numpy as np

import fairlead


class ShortestFirst:
    """Whole devices to the jobs with the least work left, each on the type where it is fastest."""

    name = "shortest_first"
    heterogeneity_aware = True
    space_sharing = False
    work_conserving = True

    def allocate(self, snapshot: fairlead.Snapshot) -> fairlead.Allocation:
        """Give devices out, the shortest job first."""
        rate = snapshot.solo_rate
        left_s = snapshot.steps_left / np.maximum(rate.max(axis=1), 1e-9)
        free = snapshot.capacity.astype(np.float64)
        share = np.zeros_like(rate)
        for row in np.argsort(left_s, kind="stable"):
            for slot in np.argsort(-rate[row], kind="stable"):
                accelerator = snapshot.accelerator_of_slot[slot]
                if rate[row, slot] > 0 and free[accelerator] >= snapshot.job_scale[row]:
                    share[row, slot] = 1.0
                    free[accelerator] -= snapshot.job_scale[row]
                    break
        return fairlead.allocation(snapshot, share, fairlead.SolveReport("closed-form"))


def main() -> None:
    """Three policies, five seeds of forty jobs each."""
    cluster = fairlead.parse_cluster("v100=4,p100=4,k80=4")
    rates = fairlead.read_throughputs("builtin")
    here = rates.columns(cluster.slots)

    def jobs(seed: int) -> list[fairlead.Arrival]:
        return list(fairlead.generate("gavel,jobs=40,interarrival=2000", here, cluster, seed)[0])

    compared = fairlead.compare(
        ["las", "las_aware", ShortestFirst], jobs, cluster, throughputs=rates
    )
    for row in compared.table("avg_jct_s").iter_rows(named=True):
        mean, low, high = (row[name] / 3600 for name in ("mean", "low", "high"))
        print(f"{row['policy']:15} {mean:6.2f} h ({low:.2f} to {high:.2f})", end="")
        if row["difference"] is None:
            print()
            continue
        names = ("difference", "difference_low", "difference_high")
        off, low, high = (row[name] / 3600 for name in names)
        print(f"  {off:+.2f} h against las ({low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
