"""What Fairlead's estimator is set up with, and its books of jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fairlead.errors import ConfigError
from fairlead.estimation.estimator import part
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.growable_table import GrowableTable
from fairlead.model.throughputs import Throughputs


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """Options of ``fairlead[:options]``."""

    known: float = 1.0  # part of the table's families that is taken as known; drawn by the seed
    explore: float = 0.02  # part of all devices
    unseen: bool = False  # predict rates where the table has none, instead of "cannot run there"

    @staticmethod
    def of(options: Mapping[str, str]) -> "EstimatorSettings":
        """From the text; ConfigError names what is wrong."""
        parts = {
            name: part("fairlead", name, options[name])
            for name in ("known", "explore")
            if name in options
        }
        for name, value in options.items():
            if name not in ("known", "explore", "unseen"):
                known = "known, explore, unseen"
                raise ConfigError(
                    f"estimator fairlead: {name!r} is not an option (there are {known})"
                )
            if name == "unseen" and value:
                raise ConfigError(f"estimator fairlead: unseen takes no value, got {value!r}")
        return EstimatorSettings(**parts, unseen="unseen" in options)


class EstimatedJobs(GrowableTable):
    """(jobs,) one row per job in the system."""

    columns: ClassVar[dict[str, Any]] = {
        "id": np.int64,
        "kind": np.int64,  # row of the tree
        "user": np.int64,
        "scale": np.int64,
        "weight": (np.float64, "slots"),  # rounds measured, those that were exact
        "mean": (np.float64, "slots"),  # log rate measured
        "claim": (np.float64, "slots"),  # log rate claimed, NaN = nothing said
        "held": (np.bool_, "slots"),  # was the claim held against a measurement?
        "doubted": np.bool_,  # is the claim grossly off?
        "cannot": (np.bool_, "slots"),
        "info": (np.float64, "square"),  # what it tells of its kind
        "shift": (np.float64, "slots"),
        "guess": (np.float64, "slots"),  # log rate believed, when it was last worked out
        "sigma": (np.float64, "slots"),  # of it
        "stale": np.bool_,  # has anything been said or measured of it since?
        "named": np.int64,  # by which belief it goes; -1 = none yet
        "said": (np.float64, "slots"),  # rates of a belief of its own, as they were said last
        "dare": np.int64,  # slot that is to be explored, -1 = none
        "dared": np.int64,  # rounds since
    }
    id: Ints
    kind: Ints
    user: Ints
    scale: Ints
    weight: Floats
    mean: Floats
    claim: Floats
    held: Bools
    doubted: Bools
    cannot: Bools
    info: Floats
    shift: Floats
    guess: Floats
    sigma: Floats
    stale: Bools
    named: Ints
    said: Floats
    dare: Ints
    dared: Ints


def new_jobs(slots: int) -> EstimatedJobs:
    """None yet; slots: how many slot types."""
    return EstimatedJobs(slots=(slots,), square=(slots, slots))


def known_part(table: Throughputs, part: float, seed: int) -> Throughputs | None:
    """The families of the table that are taken as known."""
    if part >= 1:
        return table
    families = sorted(table.families)
    order = np.random.default_rng((seed, 11)).permutation(len(families))
    chosen = {families[i] for i in order[: round(part * len(families))].tolist()}
    rows = [i for i, one in enumerate(table.job_types) if one.name in chosen]
    if not rows:
        return None
    pair = None if table.colocated_rate is None else table.colocated_rate[np.ix_(rows, rows)]
    kinds = tuple(table.job_types[i] for i in rows)
    return replace(table, job_types=kinds, rate=table.rate[rows], colocated_rate=pair)
