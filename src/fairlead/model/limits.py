"""The largest values that input may have: so that a typing mistake is an error and not an endless run.

Every reader, option and function of the Python API that takes such a value compares it with these.
"""

from fairlead.errors import ConfigError

MAX_SEED = 2**32 - 1  # what every random generator in use takes
MAX_JOBS = 2_000_000  # of a trace or a generated stream; a run holds several rows per job
MAX_DEVICES = 1_000_000  # of a cluster; a run holds a row per device
MAX_SECONDS = 1e10  # 317 years; times, durations, lengths of rounds
MAX_NUMBER = 1e15  # of any other quantity: steps, rates, prices
MIN_POSITIVE = 1e-12  # the least that counts as more than zero
MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6  # of a job, an entity or a term of an objective


def check_seed(seed: int) -> int:
    """Return the seed. Raises ConfigError where random generators cannot take it."""
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed: must be a whole number from 0 to {MAX_SEED}, got {seed}")
    return seed


def is_duration(value: float) -> bool:
    """Return whether a number of seconds is from 0 to ``MAX_SECONDS``; False for nan."""
    return 0 <= value <= MAX_SECONDS


def is_weight(value: float) -> bool:
    """Return whether a weight is from ``MIN_WEIGHT`` to ``MAX_WEIGHT``; False for nan."""
    return MIN_WEIGHT <= value <= MAX_WEIGHT
