"""The parameters of the next trial of a search, from those before it.

A suggestion depends on the study, the number of the trial and the trials before it, and on nothing else: it
is the same after a restart.
"""

import math
import random
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import islice, product
from typing import NamedTuple

import msgspec

from fairlead.cluster.protocol.read_study import grid_values
from fairlead.cluster.protocol.study import Parameter, ParameterRange, StudySpec, TrialState
from fairlead.errors import InputError

# Of samplers that are not our own
PACKAGES: Mapping[str, tuple[str, ...]] = {"tpe": ("optuna",), "cmaes": ("optuna", "cmaes")}
OWN = ("random", "grid")  # samplers that need nothing else


class PastTrial(msgspec.Struct, frozen=True):
    """A trial that has been suggested before."""

    parameters: dict[str, Parameter]
    state: TrialState
    value: float | None
    points: dict[int, float] = {}  # values by step, of one that was pruned
    notes: dict[str, str] = {}  # of the sampler, as it made them


class Suggestion(msgspec.Struct, frozen=True):
    """The parameters of a trial. notes: that the sampler needs later, as JSON."""

    parameters: dict[str, Parameter]
    notes: dict[str, str] = {}


class SamplerTask(NamedTuple):
    """The facts that a suggestion is made of."""

    study: StudySpec
    past: Sequence[PastTrial]  # all trials before it, in order of number


def check_sampler(study: StudySpec) -> None:
    """Raises InputError where a sampler is asked for whose package is not installed here."""
    for package in PACKAGES.get(study.sampler, ()):
        if find_spec(package) is None:
            raise InputError(
                f"sampler: {study.sampler!r} needs the package {package}, which the server's Python lacks: "
                "pip install 'fairlead[search]' there, or use 'random' or 'grid'"
            )


def n_trials(study: StudySpec) -> int:
    """Return how many trials there are at most: a grid has no more than its points."""
    if study.sampler != "grid":
        return study.trials
    points = math.prod(len(grid_values(one)) for one in study.parameters.values())
    return min(study.trials, points)


def suggest(task: SamplerTask) -> Suggestion:
    """The parameters of the trial behind those of ``task.past``. Optuna is imported where it is asked for."""
    study, number = task.study, len(task.past)
    if study.sampler == "grid":
        return Suggestion(_grid_point(study, number))
    if study.sampler == "random":
        source = random.Random(f"{study.seed} {number}")
        return Suggestion(
            {name: _random_value(one, source) for name, one in study.parameters.items()}
        )
    from fairlead.cluster.searching import optuna_sampler  # takes a second

    return optuna_sampler.suggest(task)


def _grid_point(study: StudySpec, number: int) -> dict[str, Parameter]:
    points = product(*(grid_values(one) for one in study.parameters.values()))
    values = next(islice(points, number, None))
    return dict(zip(study.parameters, values, strict=True))


def _random_value(one: ParameterRange, source: random.Random) -> Parameter:
    if one.type == "categorical":
        return source.choice(one.choices)
    low, high = one.low or 0.0, one.high or 0.0
    if one.type == "int":
        if one.log:
            drawn = math.exp(source.uniform(math.log(low - 0.5), math.log(high + 0.5)))
            return min(max(round(drawn), int(low)), int(high))
        return source.randrange(int(low), int(high) + 1, int(one.step or 1))
    if one.step is not None:
        return low + one.step * source.randrange(int((high - low) / one.step + 1e-9) + 1)
    if one.log:
        return min(max(math.exp(source.uniform(math.log(low), math.log(high))), low), high)
    return source.uniform(low, high)
