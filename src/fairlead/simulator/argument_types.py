"""Arguments of the library's calls have the types that these take; ConfigError names one that has not."""

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model import argument_checks
from fairlead.model.argument_checks import (
    BOOLEAN,
    NUMBER,
    PATH,
    WHOLE_NUMBER,
    Check,
    instance_of,
    is_number,
    is_whole,
)
from fairlead.model.cluster import Cluster
from fairlead.model.job import RestartCosts
from fairlead.model.near_names import did_you_mean
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.round_length import AUTO
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.options import SimulationOptions
from fairlead.simulator.traces.trace import Trace
from fairlead.simulator.user_estimates import UserEstimates


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(is_whole, value))


def _is_policy(value: Any) -> bool:
    """Return whether it may be one; what it lacks is looked at when it is known to be none of Python's
    own."""
    is_builtin = vars(builtins).get(type(value).__name__) is type(
        value
    )  # a class of exec() is of that module too
    return isinstance(value, str) or not (isinstance(value, type) or value is None or is_builtin)


def _is_trace(value: Any) -> bool:
    if isinstance(value, bytes | bytearray | Mapping):
        return False
    return isinstance(value, Trace | str | Path | Iterable)


def _takes_no_arguments(value: Any) -> bool:
    if not callable(value):
        return False
    try:
        signature(value).bind()
    except ValueError:  # of C, whose arguments nobody can tell
        return True
    except TypeError:
        return False
    return True


_SECONDS = (is_number, "a number of seconds")

# What an argument must be, and how that is said.
ARGUMENTS: dict[str, Check] = {
    "trace": (_is_trace, "a path, what read_trace gave, or arrivals"),
    "cluster": (instance_of(Cluster, str), "a Cluster or text such as 'v100=8,k80=24'"),
    "policy": (_is_policy, "a name or a policy (not its class)"),
    "out": PATH,
    "expect_rounds": PATH,
    "resume": BOOLEAN,
    "stop": (_takes_no_arguments, "a function without arguments"),
    "watch": (callable, "a function"),
    "observers": (
        lambda value: isinstance(value, Iterable),
        "a list of observers or of their names",
    ),
    "throughputs": (instance_of(Throughputs, str, Path), "a table of rates or its path"),
    "profile": (instance_of(str, MechanismSettings), "a name or MechanismSettings"),
    "round_s": (lambda value: value == AUTO or is_number(value), "a number of seconds, or 'auto'"),
    "seed": WHOLE_NUMBER,
    "preemption_hysteresis": NUMBER,
    "measured_jobs": (_is_pair, "two whole numbers"),
    "stop_at_s": _SECONDS,
    "ground_truth": (instance_of(GroundTruth), "a GroundTruth"),
    "solve_s": _SECONDS,
    "assumed_costs": (instance_of(RestartCosts), "RestartCosts"),
    "estimator": (instance_of(str), "text such as 'oracle'"),
    "user_estimates": (instance_of(UserEstimates), "UserEstimates"),
    "ideal": BOOLEAN,
    "solve_interval_s": _SECONDS,
}
_OPTIONAL_ARGUMENTS = {
    *("out", "expect_rounds", "stop", "watch", "round_s", "preemption_hysteresis", "measured_jobs"),
    *("stop_at_s", "ground_truth", "assumed_costs", "user_estimates", "solve_interval_s"),
}


def check_arguments(function: str, given: Mapping[str, Any]) -> None:
    """ConfigError names the first argument that is of no type that it can have, and its value."""
    some = {k: v for k, v in given.items() if not (v is None and k in _OPTIONAL_ARGUMENTS)}
    argument_checks.check_arguments(function, some, ARGUMENTS)


def make_options(function: str, given: Mapping[str, Any]) -> SimulationOptions:
    """The options; ConfigError names one that there is not, or whose value is of another type."""
    known = [field.name for field in fields(SimulationOptions)]
    for name in given:
        if name not in known:
            choice = did_you_mean(name, known) or f" (there are {', '.join(known)})"
            raise ConfigError(f"{function}(): {name!r} is not an option{choice}")
    check_arguments(function, given)
    return SimulationOptions(**{name: to_builtin(value) for name, value in given.items()})


def to_builtin(value: Any) -> Any:
    """A scalar of NumPy as Python's own, which random generators and encoders want; also in a pair."""
    if isinstance(value, list | tuple):
        return tuple(map(to_builtin, value))
    return value.item() if isinstance(value, np.generic) else value
