"""How well Fairlead's estimator does: rates and completion times with users whose estimates are off.

    python benchmarks/estimator.py [--policy las_aware] [--cluster v100=12,p100=12,k80=12]
        [--interarrival 2400] [--window 200:400] [--seeds 0 1 2]
        [--user-estimates lognormal=0.7,exaggerating=0.3]
    python benchmarks/estimator.py --errors
    python benchmarks/estimator.py --speed
    python benchmarks/estimator.py --fit

The first prints average JCTs under the true rates, under what users say, and under what is learned: from
user estimates and measurements alone (known=0), with half of the families known, without user estimates, and
with all known.
--errors: the median relative error of believed rates after so many rounds on each type. --speed: CPU time of
a round. --fit: the standard deviations of ``fairlead.estimation.prior`` by maximum likelihood, and the error
of kinds that are left out.
"""

import argparse
import time
from dataclasses import fields, replace

import numpy as np
from command_line import parser_of, run, whole
from scipy.optimize import minimize

from fairlead.estimation.fairlead_estimator import FairleadEstimator
from fairlead.estimation.messages import Measurement
from fairlead.estimation.prior import SIGMA, USUAL_SLOPES, Prior
from fairlead.estimation.settings import EstimatorSettings
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.throughput_tables import builtin_throughputs
from fairlead.simulator.user_estimates import UserEstimates

TYPES = ("k80", "p100", "v100")
NOISE = 0.05  # sigma of a measurement


def completion(given: argparse.Namespace) -> None:
    """Average JCT in hours for each source of rates."""
    ways = {
        "true rates": {"estimator": "oracle"},
        "what users say": {"estimator": "users"},
        "fairlead:known=0": {"estimator": "fairlead:known=0"},
        "fairlead:known=0, silent users": {"estimator": "fairlead:known=0", "user_estimates": None},
        "fairlead:known=0.5": {"estimator": "fairlead:known=0.5"},
        "fairlead": {"estimator": "fairlead"},
    }
    base = SimulationInput(
        generate=f"gavel,interarrival={given.interarrival}",
        cluster=given.cluster,
        window=given.window,
        user_estimates=given.user_estimates,
        rate_noise=NOISE,
    )
    best = np.nan
    print(f"{'rates':<32}{'JCT h':>8}{'of true':>9}{'CPU s':>8}   by seed")
    for name, way in ways.items():
        runs = [
            replace(base, seed=seed, **way).prepare(given.policy, "default").execute().metrics  # type: ignore[arg-type]
            for seed in given.seeds
        ]
        jct = np.array([run["avg_jct_s"] for run in runs]) / 3600
        best = jct.mean() if np.isnan(best) else best
        cpu = sum(run["cpu_s"] for run in runs)
        by_seed = " ".join(f"{one:.2f}" for one in jct)
        print(
            f"{name:<32}{jct.mean():8.2f}{jct.mean() / best:9.3f}{cpu:8.1f}   {by_seed}", flush=True
        )


def errors(given: argparse.Namespace) -> None:
    """Median relative error of believed rates, each job of a family of its own."""
    table = _gavel()
    n, rng = len(table.job_types), np.random.default_rng(0)
    print(f"{'known':>6}{'rounds per type':>17}{'median error':>14}{'90 %':>8}")
    for known in (0.0, 0.5, 1.0):
        mine = FairleadEstimator(EstimatorSettings(known=known), table, 36.0, 0)
        users = UserEstimates.of(given.user_estimates, 0)
        jobs = [
            Job(JobId(i), one.name, one.scale_factor, 1e6, tenant=f"user-{i % 20}")
            for i, one in enumerate(table.job_types)
        ]
        mine.submitted(jobs, users.about(table)(jobs))
        for rounds in range(4):
            off = np.abs(np.exp(mine.posterior(np.arange(n))[0]) / table.rate - 1)
            print(f"{known:6.1f}{rounds:17}{np.median(off):14.1%}{np.quantile(off, 0.9):8.1%}")
            for slot in range(len(TYPES)):
                noisy = table.rate[:, slot] * np.exp(rng.normal(0, NOISE, n))
                mine.measured(_report(np.arange(n), np.full(n, slot), noisy))


def speed() -> None:
    """CPU ms of a round, measurements and beliefs, the best of five."""
    slots = tuple(SlotType(name) for name in ("a100-80", "h100", *TYPES))
    rng = np.random.default_rng(0)
    print(f"{'jobs':>7}{'running':>9}{'types':>7}{'CPU ms':>8}")
    for n, running in ((1000, 300), (10_000, 2500), (10_000, 10_000)):
        rate = np.exp(rng.normal(0, 1, (100, 5)))
        table = Throughputs(slots, tuple(JobType(f"k{i}") for i in range(100)), rate)
        mine = FairleadEstimator(EstimatorSettings(known=0.0), table, float(running), 0)
        kind = rng.integers(100, size=n)
        jobs = [Job(JobId(i), f"k{k}", 1, 1e6, tenant=f"u{i % 50}") for i, k in enumerate(kind)]
        mine.submitted(jobs, rate[kind] * np.exp(rng.normal(0, 0.7, (n, 5))))
        mine.beliefs()
        took = []
        for _ in range(5):
            ids, slot = rng.permutation(n)[:running], rng.integers(5, size=running)
            noisy = rate[kind[ids], slot] * np.exp(rng.normal(0, NOISE, running))
            began = time.process_time()
            mine.measured(_report(ids, slot, noisy))
            mine.beliefs()
            took.append(time.process_time() - began)
        print(f"{n:7}{running:9}{5:7}{1000 * min(took):8.1f}")


def fit() -> None:
    """Maximum likelihood, with a weak prior on the logarithms towards 1."""
    table = builtin_throughputs()
    names = [f.name for f in fields(SIGMA) if f.name not in ("grand", "slope", "table")]
    rows, columns = np.nonzero(table.rate > 0)
    log_rate = np.log(table.rate[rows, columns])

    def loss(logs: Floats) -> float:
        spread = replace(SIGMA, **dict(zip(names, np.exp(logs).tolist(), strict=True)))
        prior = Prior(table, table.slots, spread)
        white, factor = prior.residuals()
        return float(white @ white / 2 + np.log(np.diag(factor)).sum() + 0.05 * (logs**2).sum())

    start = np.log([getattr(SIGMA, name) for name in names])
    found = minimize(loss, start, method="L-BFGS-B", options={"maxiter": 25})
    print(f"{len(log_rate)} rates, {len(table.job_types)} kinds; usual slopes {USUAL_SLOPES}")
    for name, value in zip(names, np.exp(found.x), strict=True):
        print(f"{name:<14}{value:7.3f}   in use {getattr(SIGMA, name):.3f}")
    white, factor = Prior(table, table.slots).residuals()
    sure = np.linalg.inv(factor @ factor.T)
    pull = np.linalg.solve(factor.T, white)
    blocks = [np.flatnonzero(rows == kind) for kind in np.unique(rows)]
    off = [np.linalg.solve(sure[np.ix_(block, block)], pull[block]) for block in blocks]
    print(
        f"a kind that is left out: median error {np.expm1(np.median(np.abs(np.hstack(off)))):.1%}"
    )


def _gavel() -> Throughputs:
    """Kinds that run on all three of Gavel's types."""
    table = builtin_throughputs().columns(tuple(SlotType(name) for name in TYPES))
    keep = np.flatnonzero((table.rate > 0).all(axis=1))
    return Throughputs(table.slots, tuple(table.job_types[i] for i in keep), table.rate[keep])


def _report(jobs: Ints, slot: Ints, rate: Floats) -> Measurement:
    seconds = np.full(len(jobs), 360.0)
    alone, worked = np.full(len(jobs), -1), np.zeros(len(jobs), np.bool_)
    return Measurement(
        time_s=0.0,
        jobs=jobs,
        slot=slot,
        steps=rate * seconds,
        seconds=seconds,
        partner=alone,
        failed=worked,
    )


def main() -> None:
    """See the module."""
    parser = parser_of(__doc__)
    parser.add_argument("--policy", default="las_aware")
    parser.add_argument("--cluster", default="v100=12,p100=12,k80=12")
    parser.add_argument("--interarrival", default="2400")
    parser.add_argument("--window", default="200:400")
    parser.add_argument("--seeds", type=whole(0), nargs="+", default=[0, 1, 2])
    parser.add_argument("--user-estimates", default="lognormal=0.7,exaggerating=0.3")
    for what in ("errors", "speed", "fit"):
        parser.add_argument(f"--{what}", action="store_true")
    given = parser.parse_args()
    if given.errors:
        errors(given)
    elif given.speed:
        speed()
    elif given.fit:
        fit()
    else:
        completion(given)


if __name__ == "__main__":
    run(main)
