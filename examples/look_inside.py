"""Look inside a run: the tables of a ``Result`` are polars data frames.

python examples/look_inside.py
"""

import polars as pl

import fairlead
from fairlead import GroundTruth


def main() -> None:
    """Nodes fail and are repaired; who had to wait, and where did which job run?"""
    cluster = fairlead.Cluster.of({"v100": 8, "p100": 8, "k80": 8}, devices_per_server=4)
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    generated, _ = fairlead.generate(
        "gavel,jobs=100,interarrival=3000,multi-gpu", rates, cluster, 2
    )
    ground_truth = GroundTruth(mtbf_s=100 * 3600.0, mttr_s=4 * 3600.0, seed=2)
    result = fairlead.simulate(
        list(generated), cluster, "las_aware", throughputs=rates, ground_truth=ground_truth
    )

    jobs = result.jobs.select("job", "family", "scale_factor", "jct_s", "rho_isolated")
    print("The five jobs furthest behind an equal share of the cluster:")
    print(jobs.sort("rho_isolated", descending=True).head(5))

    hours = pl.col("devices").list.len() * (pl.col("end_s") - pl.col("start_s")) / 3600
    print("Device-hours by accelerator type:")
    print(
        result.placement_intervals.group_by("accelerator")
        .agg(hours.sum().round(1).alias("hours"))
        .sort("hours")
    )

    short = result.rounds.filter(pl.col("seconds") < result.config["round_s"])
    print(f"{len(short)} of {len(result.rounds)} rounds ended early: a node was lost or came back,")
    print("or all jobs of the round were done.")


if __name__ == "__main__":
    main()
