"""How long should a job stay where it is? Restart costs against preemption hysteresis.

python examples/restart_costs.py
"""

import fairlead
from fairlead import GroundTruth, RestartCosts


def main() -> None:
    """One set of jobs, every start costs a minute, four values of the hysteresis."""
    cluster = fairlead.parse_cluster("v100=6,p100=6,k80=6")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    generated, _ = fairlead.generate("gavel,jobs=100,interarrival=3600", rates, cluster, 0)
    jobs = list(generated)
    ground_truth = GroundTruth(restart_costs=RestartCosts(default_s=60.0))
    print(
        f"{'hysteresis':>10}{'average JCT':>13}{'restarts':>10}{'lost to them':>14}{'worst rho':>11}"
    )
    for preemption_hysteresis in (0.0, 10.0, 40.0, 100.0):
        got = fairlead.simulate(
            jobs,
            cluster,
            "las_aware",
            throughputs=rates,
            preemption_hysteresis=preemption_hysteresis,
            ground_truth=ground_truth,
        ).metrics
        print(
            f"{preemption_hysteresis:10.0f}{got['avg_jct_s'] / 3600:11.2f} h{got['restarts']:10}"
            f"{got['restart_lost_s'] / 3600:12.1f} h{got['rho']['isolated']['max']:11.2f}"
        )


if __name__ == "__main__":
    main()
