"""The worth of rounds to a job: tables for the planning problem.

Zheng et al., "Shockwave", NSDI 2023, section 6: the welfare of a job is the logarithm of the part of its
epochs that is done at the end of the planning horizon, read off a few points and straight in between.
"""

import numpy as np

from fairlead.model.arrays import Floats

MAX_WEIGHT = 1e300  # weights are powers, and may leave the range of floating point
LATE_EXPONENT = 100.0  # of jobs that are late and would be done in less than a round


def utility_table(
    done: Floats,
    epochs: Floats,
    epoch_s: Floats,
    round_s: float,
    rounds: int,
    bases: Floats,
    logs: Floats,
) -> Floats:
    """(jobs, rounds + 1): the welfare after 0 .. rounds rounds, without weights.

    done, epochs: (jobs,) epochs, whole or not, that a job has done and has in all; epoch_s: (jobs,) s per
    epoch; bases: (points,) parts of the epochs, rising; logs: (points,) the welfare there.
    """
    run_time_s = _run_time_s(done, epochs, epoch_s, round_s, rounds)
    part = np.minimum((done[:, None] + run_time_s / epoch_s[:, None]) / epochs[:, None], 1.0)
    welfare: Floats = np.interp(part, bases, logs)
    return welfare


def remaining_table(
    left_s: Floats, done: Floats, epochs: Floats, epoch_s: Floats, round_s: float, rounds: int
) -> Floats:
    """(jobs, rounds + 1): seconds left after 0 .. rounds rounds, of ``left_s`` (jobs,) now."""
    run_time_s = _run_time_s(done, epochs, epoch_s, round_s, rounds)
    return np.maximum(left_s[:, None] - run_time_s, 0.0)


def relaxed_weights(
    now_s: float,
    left_s: Floats,
    share: float,
    target_s: Floats,
    round_s: float,
    most: float,
    exponent: float,
) -> Floats:
    """(jobs,): 1 for a job that is on time, and a power of the ratio of expected to fair finish time for
    others.

    left_s, target_s: (jobs,) s left when alone, and the finish time that would be fair; share: of time that
    a job may expect to run; most: the ratio of expected and fair finish time that counts as on time.
    """
    ratio = (now_s + left_s / share) / target_s
    power = np.where(left_s < round_s, LATE_EXPONENT, exponent)
    with np.errstate(over="ignore"):
        return np.where(ratio <= most, 1.0, np.minimum(ratio**power, MAX_WEIGHT))


def _run_time_s(
    done: Floats, epochs: Floats, epoch_s: Floats, round_s: float, rounds: int
) -> Floats:
    """(jobs, rounds + 1): seconds run; a job stops at its last epoch."""
    whole = np.maximum(epochs - done, 0.0) * epoch_s
    run_time_s: Floats = np.minimum(np.arange(rounds + 1) * round_s, whole[:, None])
    return run_time_s
