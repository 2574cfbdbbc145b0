"""The simulator as an environment for learning: a heuristic, and a policy that learns one weight.

python examples/environment.py
"""

import numpy as np
from numpy.typing import NDArray

import fairlead
from fairlead import Environment, Snapshot


def act(seen: Snapshot, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole shares in order of a score: weight x (log remaining time, log age), fastest free type first."""
    rate, free = seen.solo_rate, seen.capacity.copy()
    remaining_s = seen.steps_left / rate.max(axis=1)
    score = np.column_stack([np.log1p(remaining_s), np.log1p(seen.age_s)]) @ weight
    share = np.zeros_like(rate)
    for job in np.argsort(score, kind="stable"):
        fits = free[seen.accelerator_of_slot] >= seen.job_scale[job]
        slot = int((fits * rate[job]).argmax())
        if fits[slot] and rate[job, slot] > 0:
            share[job, slot] = 1.0
            free[seen.accelerator_of_slot[slot]] -= seen.job_scale[job]
    return share


def episode(env: Environment, weight: NDArray[np.float64]) -> float:
    """The sum of rewards: minus the job-hours in the system."""
    seen, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        seen, reward, terminated, truncated, _ = env.step(act(seen, weight))
        total, over = total + reward, terminated or truncated
    return total


def learn(env: Environment, start: NDArray[np.float64], tries: int) -> NDArray[np.float64]:
    """Random search: keep what is better (an evolution strategy of one parent)."""
    rng = np.random.default_rng(0)
    best, value = start, episode(env, start)
    for _ in range(tries):
        other = best + rng.normal(0.0, 0.7, best.shape)
        got = episode(env, other)
        if got > value:
            best, value = other, got
    return best


def main() -> None:
    """Thirty jobs on six devices: oldest first, what random search makes of it, shortest first."""
    cluster = fairlead.parse_cluster("v100=2,p100=2,k80=2")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    jobs = list(fairlead.generate("gavel,jobs=30,interarrival=3000", rates, cluster, 0)[0])
    env = Environment(jobs, cluster, throughputs=rates)
    oldest, shortest = np.array([0.0, -1.0]), np.array([1.0, 0.0])
    for name, weight in (
        ("oldest first", oldest),
        ("learned", learn(env, oldest, 8)),
        ("shortest first", shortest),
    ):
        print(f"{name:15} {-episode(env, weight) / len(jobs):7.2f} h average JCT")


if __name__ == "__main__":
    main()
