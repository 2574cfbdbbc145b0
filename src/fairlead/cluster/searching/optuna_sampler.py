"""Suggestions by Optuna's samplers. Its study is made anew in memory for each of them."""

import json
import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from fairlead.cluster.protocol.study import Parameter, ParameterRange, StudySpec
from fairlead.cluster.searching.samplers import PastTrial, SamplerTask, Suggestion

_STATES = {
    "running": TrialState.RUNNING,
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "stopped": TrialState.FAIL,
}


def suggest(task: SamplerTask) -> Suggestion:
    """The parameters of the trial behind those of ``task.past``."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, number = task.study, len(task.past)
    space = {name: _distribution(one) for name, one in study.parameters.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is experimental in Optuna
        made = optuna.create_study(sampler=_sampler(study, number), direction=study.direction)
        made.add_trials([_frozen(past, space) for past in task.past])
        trial = made.ask(space)
    notes = made.trials[-1].system_attrs
    return Suggestion(
        {name: _plain(trial.params[name], one) for name, one in study.parameters.items()},
        {name: json.dumps(value) for name, value in notes.items()},
    )


def _sampler(study: StudySpec, number: int) -> BaseSampler:
    seed = zlib.crc32(f"{study.seed} {number}".encode())
    if study.sampler == "cmaes":
        return CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _distribution(one: ParameterRange) -> BaseDistribution:
    low, high = one.low or 0.0, one.high or 0.0
    if one.type == "categorical":
        return CategoricalDistribution(one.choices)
    if one.type == "int":
        step = int(one.step or 1)
        return IntDistribution(int(low), int(high) - (int(high) - int(low)) % step, one.log, step)
    return FloatDistribution(low, high, one.log, one.step)


def _frozen(past: PastTrial, space: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """A trial as Optuna knows it. One that has a state without the value that this needs has failed."""
    state = _STATES[past.state]
    if state == TrialState.COMPLETE and past.value is None:
        state = TrialState.FAIL
    notes: dict[str, Any] = {name: json.loads(value) for name, value in past.notes.items()}
    return create_trial(
        state=state,
        params=dict(past.parameters),
        distributions=dict(space),
        value=past.value if state == TrialState.COMPLETE else None,
        intermediate_values=dict(past.points),
        system_attrs=notes,
    )


def _plain(value: Any, one: ParameterRange) -> Parameter:
    """A value as the study names it: Optuna takes 1 and True for the same choice."""
    if one.type == "categorical":
        same = (choice for choice in one.choices if type(choice) is type(value))
        return next(choice for choice in same if choice == value)
    return int(value) if one.type == "int" else float(value)
