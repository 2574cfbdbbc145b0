"""The time that one of Shockwave's plans takes: counts, packing, ranking.

    python benchmarks/window.py [ROUNDS]

ROUNDS of a window: 20, as in the release, if nothing is said; Fairlead plans 40. CPU ms, the best of five
runs once all is loaded, on made-up windows like those of the published traces: most jobs use one device,
some are late and weigh much more than others. The gap is between the objective and its bound, relative to
the part of the objective that is not the penalty's.
"""

import time

import numpy as np
from command_line import parser_of, run, whole

from fairlead.model.arrays import Floats
from fairlead.policies.solve.planning_horizon import (
    PlanningProblem,
    RoundCounts,
    interpolate,
    solve_counts,
)
from fairlead.policies.solve.round_ordering import order_rounds
from fairlead.policies.solve.round_packing import pack_rounds
from fairlead.policies.solve.welfare import remaining_table, utility_table

ROUND_S, PENALTY = 120.0, 1e-3
SCALES, SHARES = (1, 2, 4, 8), (0.70, 0.20, 0.08, 0.02)
BASES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
CASES: tuple[tuple[str, int, list[int]], ...] = (
    ("paper, 128 devices", 361, [128]),
    ("paper, 256 devices", 700, [256]),
    ("large", 5000, [2000]),
    ("three types, small", 120, [8, 16, 24]),
    ("three types", 361, [40, 40, 48]),
    ("three types, large", 5000, [600, 700, 700]),
)
RUNS = 5


def window(
    jobs: int, devices: list[int], rounds: int, seed: int = 0
) -> tuple[PlanningProblem, Floats]:
    """A window of random jobs, and their weights."""
    rng = np.random.default_rng(seed)
    epochs = rng.integers(10, 300, jobs).astype(np.float64)
    done = np.floor(epochs * rng.uniform(0, 0.95, jobs))
    left_s = 720 * np.exp(rng.exponential(0.8, jobs).clip(max=3.2))
    epoch_s = left_s / (epochs - done)
    weight = np.where(rng.random(jobs) < 0.3, np.exp(rng.exponential(2.0, jobs)), 1.0)
    logs = np.log(np.maximum(BASES, 1e-6))
    utility = utility_table(done, epochs, epoch_s, ROUND_S, rounds, BASES, logs)
    slower = [np.ones(jobs)] + [rng.uniform(0.1, 0.9, jobs) for _ in devices[1:]]
    problem = PlanningProblem(
        devices=np.array(devices),
        rounds=rounds,
        scale=rng.choice(SCALES, jobs, p=SHARES),
        utility=weight[:, None] * utility / (jobs * rounds),
        remaining=remaining_table(left_s, done, epochs, epoch_s, ROUND_S, rounds),
        penalty=PENALTY,
        at_least=np.zeros(jobs, np.int64),
        speed=np.column_stack(slower) if len(devices) > 1 else None,
    )
    return problem, weight


def plan(problem: PlanningProblem, weight: Floats) -> tuple[RoundCounts, int, list[float]]:
    """The counts, the job-rounds without a place, and CPU seconds of counts, packing, ranking."""
    marks = [time.process_time()]
    counts = solve_counts(problem)
    marks.append(time.process_time())
    packed, left = pack_rounds(counts.counts, problem.scale, problem.devices, problem.rounds)
    marks.append(time.process_time())
    order_rounds(packed, problem.scale, problem.devices, weight)
    marks.append(time.process_time())
    return counts, int(left.sum()), np.diff(marks).tolist()


def gap_of(problem: PlanningProblem, counts: RoundCounts) -> float:
    """Between objective and bound, relative to the welfare."""
    speed = 1.0 if problem.speed is None else problem.speed
    welfare = float(interpolate(problem.utility, (counts.counts * speed).sum(axis=1)).sum())
    return (counts.bound - counts.objective) / abs(welfare)


def main() -> None:
    """A line per case."""
    parser = parser_of(__doc__)
    parser.add_argument("rounds", metavar="ROUNDS", nargs="?", type=whole(), default=20)
    rounds = parser.parse_args().rounds
    print(
        f"{'':20}{'jobs':>6}{'counts':>9}{'packing':>9}{'ranking':>9}{'all':>9} ms{'gap':>10}",
        end="",
    )
    print(f"{'dropped':>9}{'on several types':>18}")
    for name, jobs, devices in CASES:
        problem, weight = window(jobs, devices, rounds)
        runs = [plan(problem, weight) for _ in range(RUNS)]
        counts, dropped, _ = runs[0]
        best = [1e3 * t for t in min((times for _, _, times in runs), key=sum)]
        several = int(((counts.counts > 0).sum(axis=1) > 1).sum())
        print(
            f"{name:20}{jobs:6}" + "".join(f"{t:9.2f}" for t in [*best, sum(best)]) + "   "
            f"{gap_of(problem, counts):10.1e}{dropped:9}{several:18}"
        )


if __name__ == "__main__":
    run(main)
