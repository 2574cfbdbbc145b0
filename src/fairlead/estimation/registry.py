"""The estimators of rates, by the names of their specs. Each is imported when it is asked for."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from fairlead.errors import ConfigError
from fairlead.estimation.protocol import Estimator
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.option_text import parse_options
from fairlead.model.throughputs import Throughputs

_Make: TypeAlias = Callable[[Mapping[str, str], Throughputs, Cluster, int], Estimator]


def _gavel(
    options: Mapping[str, str], table: Throughputs, cluster: Cluster, seed: int
) -> Estimator:
    from fairlead.estimation.gavel_estimator import GavelEstimator

    return GavelEstimator.of(options, table, cluster, seed)


def _fairlead(
    options: Mapping[str, str], table: Throughputs, cluster: Cluster, seed: int
) -> Estimator:
    from fairlead.estimation.fairlead_estimator import FairleadEstimator

    return FairleadEstimator.of(options, table, cluster, seed)


def _users(
    options: Mapping[str, str], table: Throughputs, _cluster: Cluster, _seed: int
) -> Estimator:
    from fairlead.estimation.user_bias import TrustingEstimator

    if options:
        raise ConfigError("estimator users takes no options")
    return TrustingEstimator(table)


ESTIMATORS: dict[str, _Make] = {"gavel": _gavel, "fairlead": _fairlead, "users": _users}


def make_estimator(
    spec: str, throughputs: Throughputs, cluster: Cluster, seed: int
) -> Estimator | None:
    """Return the estimator of a spec such as "gavel:references=16,profiling=0.2"; None for "oracle": the core
    then believes the table. throughputs: on the cluster's slot types. ConfigError for what is not known."""
    name, options = parse(spec)
    if name == "oracle":
        if options:
            raise ConfigError(f"estimator {spec!r}: oracle takes no options")
        return None
    return ESTIMATORS[name](options, throughputs, cluster, seed)


def check_spec(spec: str) -> None:
    """Raise ConfigError, which names what is wrong, for a spec that ``make_estimator`` would refuse."""
    slot = (SlotType("any"),)
    table = Throughputs(slot, (JobType("any"),), np.ones((1, 1)))
    make_estimator(spec, table, Cluster((Node("any", "any", 1),)), 0)


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Name and options of a spec; an option without a value has "". ConfigError names what is wrong."""
    name, _, rest = spec.partition(":")
    if name not in ESTIMATORS and name != "oracle":
        names = ", ".join(["oracle", *sorted(ESTIMATORS)])
        raise ConfigError(f"estimator {spec!r} is not known (choose from {names})")
    return name, parse_options(filter(None, rest.split(",")), f"estimator {spec!r}", flags=True)
