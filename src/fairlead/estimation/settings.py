"""Options of Fairlead's estimator."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fairlead.errors import ConfigError
from fairlead.estimation.option_values import fraction
from fairlead.model.throughputs import Throughputs


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """Options of ``fairlead[:options]``."""

    known: float = 1.0  # part of the table's families that is taken as known; drawn by the seed
    explore: float = 0.02  # part of all devices that may be explored with
    unseen: bool = False  # predict rates where the table has none, instead of "cannot run there"

    @staticmethod
    def of(options: Mapping[str, str]) -> "EstimatorSettings":
        """The settings from options as text. ConfigError names what is wrong."""
        parts = {
            name: fraction("fairlead", name, options[name])
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


def known_part(table: Throughputs, part: float, seed: int) -> Throughputs | None:
    """Return the table with only that part of its families, drawn by the seed; None = no family is left."""
    if part >= 1:
        return table
    families = sorted(table.families)
    order = np.random.default_rng((seed, 11)).permutation(len(families))
    chosen = {families[i] for i in order[: round(part * len(families))].tolist()}
    rows = [i for i, one in enumerate(table.job_types) if one.name in chosen]
    if not rows:
        return None
    pair = None if table.colocated_rate is None else table.colocated_rate[np.ix_(rows, rows)]
    classed = None if table.classed is None else table.classed.rows(np.array(rows, np.int64))
    job_types = tuple(table.job_types[i] for i in rows)
    return replace(
        table, job_types=job_types, rate=table.rate[rows], colocated_rate=pair, classed=classed
    )
