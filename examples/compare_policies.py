"""Describe a cluster and its jobs in Python, and compare policies on them.

python examples/compare_policies.py
"""

import numpy as np

import fairlead
from fairlead import Arrival, Cluster, Job, JobId, JobType

KINDS = (
    ("BERT-large SQuAD (batch size 16)", 1),
    ("BERT-large SQuAD (batch size 16)", 4),
    ("MPT-1B (batch size 32 x 2048 tokens)", 8),
    ("GPT-2 large FP32 (batch size 1)", 1),
)


def main() -> None:
    """Sixty jobs of one to eight devices on three kinds of server."""
    cluster = Cluster.of({"a100-80": 16, "h100": 8, "l4": 8}, devices_per_server=8)
    rates = fairlead.read_throughputs("builtin")
    jobs = arrivals(60, rates.columns(cluster.slots), np.random.default_rng(1))
    print(f"{'policy':12}{'average JCT':>12}{'worst rho':>11}{'restarts':>10}")
    for policy in ("fifo_aware", "isolated", "las", "las_aware"):
        got = fairlead.simulate(jobs, cluster, policy, throughputs=rates).metrics
        worst = got["rho"]["isolated"]["max"]
        print(f"{policy:12}{got['avg_jct_s'] / 3600:10.2f} h{worst:11.2f}{got['restarts']:10}")


def arrivals(n: int, rates: fairlead.Throughputs, rng: np.random.Generator) -> list[Arrival]:
    """Jobs of a few hours on their fastest accelerator type, ten minutes apart on average."""
    time_s = np.cumsum(rng.exponential(600.0, n))
    hours = rng.lognormal(0.5, 1.0, n)
    jobs = []
    for i in range(n):
        family, devices = KINDS[rng.integers(len(KINDS))]
        row = rates.row(JobType.parse(family, devices))
        assert row is not None
        steps = float(hours[i] * 3600 * rates.fastest[row])
        jobs.append(Arrival(float(time_s[i]), Job(JobId(i), family, devices, steps)))
    return jobs


if __name__ == "__main__":
    main()
