"""How soon does a search reach its target, by the rule that stops trials? On recorded learning curves.

python examples/search/compare_searches.py [CURVES.csv]
"""

import sys

import numpy as np

import fairlead
from fairlead.policies.search.decide import SearchPlan
from fairlead.policies.search.learning_curve import SearchMetric
from fairlead.policies.search.stopping import RULES
from fairlead.simulator.search.recorded_curves import read_curves
from fairlead.simulator.search.search_backend import SearchStudy
from fairlead.simulator.search.simulate_search import simulate_search

DEVICES, TRIAL_S, TRIALS, ORDERS = 4, 6000.0, 100, 5


def main() -> None:
    """A hundred configurations in five orders, an accuracy of 94 % as the target, four devices."""
    curves = read_curves(*sys.argv[1:])
    job_type = fairlead.JobType.parse("trial", 1)
    rates = fairlead.Throughputs((fairlead.SlotType("gpu"),), (job_type,), np.array([[1.0]]))
    cluster = fairlead.Cluster.of({"gpu": DEVICES}, DEVICES)
    for name, rule in (("none", None), *RULES.items()):
        plan = SearchPlan(
            metric=SearchMetric(target=0.94, start=0.1),
            parallel=2 * DEVICES if rule else DEVICES,
            favoured=DEVICES // 2 if rule else 0,
            rule=rule,
        )
        hours = []
        for seed in range(ORDERS):
            order = np.random.default_rng(seed).permutation(len(curves))
            study = SearchStudy(
                curves=curves.ordered(order),
                plan=plan,
                family="trial",
                steps=TRIAL_S,
                trials=TRIALS,
            )
            made = simulate_search(study, cluster, "gandiva", throughputs=rates, round_s=60.0)
            end_s = made.result.metrics["makespan_s"] if made.reached_s is None else made.reached_s
            hours.append(end_s / 3600)
        print(f"rule {name:7} the search ends after {np.mean(hours):5.1f} h on average")


if __name__ == "__main__":
    main()
