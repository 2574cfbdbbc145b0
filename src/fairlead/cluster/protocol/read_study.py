"""Descriptions of searches: from TOML and JSON files, and what is wrong with one."""

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from math import exp, isfinite, log, prod
from pathlib import Path
from typing import Any

import msgspec

from fairlead.client.report import NAME
from fairlead.cluster.protocol.conversion_errors import describe_error, one_of, shown
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import (
    BOUNDS,
    MAX_NAME,
    check_size,
    check_spec,
    make_spec,
    read_content,
)
from fairlead.cluster.protocol.study import (
    Parameter,
    ParameterRange,
    PrunerName,
    PrunerSpec,
    StudySpec,
)
from fairlead.errors import InputError
from fairlead.model.toml_lines import naming_lines

MAX_TRIALS = 10_000
MAX_PARALLEL = 1_000
MAX_PARAMETERS = 100
MAX_CHOICES = 1_000
MAX_LEAST_POINTS = 500  # of curves with more some are dropped, but never below this
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_METRIC = re.compile(NAME)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PRUNER_FIELDS: Mapping[PrunerName, tuple[str, ...]] = {
    "none": (),
    "median": ("min_step", "startup_trials"),
    "asha": ("min_step", "max_step", "reduction"),
    "hyperband": ("min_step", "max_step", "reduction"),
    "curve": ("min_step", "max_step", "min_chance", "min_points", "start", "limit"),
}
_LARGEST = 1e300  # of a bound
_LARGEST_INT = 2**53


def read_study(path: str | Path) -> StudySpec:
    """A search from a ``.toml`` or ``.json`` file, checked; InputError names file, line, field and value. One
    without a name is named after its file."""
    path = Path(path)
    with naming_lines(path):
        content = read_content(path, "a search")
        if isinstance(content, dict):
            content.setdefault("name", path.stem)
        return make_study(content, str(path))


def make_study(content: Any, where: str) -> StudySpec:
    """A search from its fields as a file has them, checked; InputError says ``WHERE: FIELD: what is
    wrong``."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected a table of fields, got {shown(content)}")
    content = dict(content)
    if "job" in content:  # as in a file of its own: a command may be one string
        content["job"] = msgspec.to_builtins(make_spec(content["job"], f"{where}: job"))
    for name, given in _parameters_of(content):
        if "choices" in given:
            given.setdefault("type", "categorical")
        elif "type" not in given:
            raise InputError(
                f"{where}: parameters.{name}.type: is missing; one of float, int and categorical"
            )
    try:
        spec = msgspec.convert(content, StudySpec)
    except msgspec.ValidationError as problem:
        raise InputError(f"{where}: {describe_error(problem, content, StudySpec)}") from None
    check_study(spec, where)
    return spec


def _parameters_of(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The parameters that are tables, each of which is made one of its own; others are refused later."""
    given = content.get("parameters")
    if not isinstance(given, dict):
        return []
    content["parameters"] = {
        name: dict(one) if isinstance(one, dict) else one for name, one in given.items()
    }
    return [(name, one) for name, one in content["parameters"].items() if isinstance(one, dict)]


def check_study(spec: StudySpec, where: str = "study") -> None:
    """Raise InputError, with ``where``, field and value, for what no server could search."""
    if not _METRIC.fullmatch(spec.metric):
        _refuse(where, "metric", "must be the name of a metric that the job reports", spec.metric)
    if len(spec.name) > MAX_NAME or not spec.name.isprintable():
        _refuse(where, "name", f"must be printable, of at most {MAX_NAME} characters", spec.name)
    _check_between(where, "trials", spec.trials, 1, MAX_TRIALS)
    _check_between(where, "parallel", spec.parallel, 1, MAX_PARALLEL)
    _check_between(where, "seed", spec.seed, 0, _LARGEST_INT)
    _check_between(where, "weight", spec.weight, *BOUNDS["weight"])
    _check_between(where, "favour", spec.favour, 0, MAX_PARALLEL)
    _check_between(where, "favour_factor", spec.favour_factor, 1, 1_000)
    if spec.target is not None and not isfinite(spec.target):
        _refuse(where, "target", "must be a finite number", spec.target)
    if not 1 <= len(spec.parameters) <= MAX_PARAMETERS:
        raise InputError(
            f"{where}: parameters: must be from 1 to {MAX_PARAMETERS}, got {len(spec.parameters)}"
        )
    _check_names(where, spec.parameters)
    for name, one in spec.parameters.items():
        _check_range(where, f"parameters.{name}", one, grid=spec.sampler == "grid")
    if spec.sampler == "grid":
        points = prod(len(grid_values(one)) for one in spec.parameters.values())
        if points > MAX_TRIALS:
            raise InputError(
                f"{where}: parameters: a grid may have at most {MAX_TRIALS:,} points, got {points:,}"
            )
    if spec.sampler == "cmaes" and all(
        one.type == "categorical" for one in spec.parameters.values()
    ):
        raise InputError(
            f"{where}: sampler: 'cmaes' needs a parameter of type float or int; the study has none"
        )
    _check_pruner(where, spec.pruner)
    if spec.pruner.type == "curve":
        _check_curve(where, spec)
    _check_job(where, spec)


def _check_names(where: str, parameters: Mapping[str, ParameterRange]) -> None:
    """Two names that differ by case alone would be one variable."""
    names: dict[str, str] = {}
    for name in parameters:
        if not _PARAMETER.fullmatch(name):
            raise InputError(
                f"{where}: parameters: a name has up to 64 letters, digits and _, and does not begin with a "
                f"digit, got {shown(name)}"
            )
        other = names.setdefault(name.upper(), name)
        if other != name:
            raise InputError(f"{where}: parameters: {other} and {name} differ in their case alone")


def _check_range(where: str, field: str, one: ParameterRange, *, grid: bool) -> None:
    if one.type == "categorical":
        _check_choices(where, field, one)
        return
    if one.choices:
        what = f"are of parameters of type 'categorical', this is of type {one.type!r}"
        _refuse(where, f"{field}.choices", what, list(one.choices))
    for name in ("low", "high"):
        value = getattr(one, name)
        if value is None:
            raise InputError(f"{where}: {field}.{name}: is missing")
        limit = _LARGEST_INT if one.type == "int" else _LARGEST
        if not -limit <= value <= limit:
            _refuse(where, f"{field}.{name}", f"must be from {-limit:g} to {limit:g}", value)
        if one.type == "int" and value != int(value):
            _refuse(where, f"{field}.{name}", "must be a whole number", value)
    low, high = one.low or 0.0, one.high or 0.0
    if low >= high:
        _refuse(where, f"{field}.high", f"must be above low ({low:g})", high)
    if one.log and low <= 0:
        _refuse(where, f"{field}.low", "must be above 0 where log = true", low)
    if one.step is not None:
        if one.log:
            _refuse(where, f"{field}.step", "cannot be combined with log = true", one.step)
        if not 0 < one.step <= high - low:
            _refuse(where, f"{field}.step", f"must be above 0 and at most {high - low:g}", one.step)
        if one.type == "int" and one.step != int(one.step):
            _refuse(where, f"{field}.step", "must be a whole number", one.step)
        if one.type == "float" and (high - low) / one.step > _LARGEST_INT:
            least = (high - low) / _LARGEST_INT
            _refuse(where, f"{field}.step", f"must be at least {least:g}, or not given", one.step)
    if one.points is not None:
        if not grid:
            _refuse(where, f"{field}.points", "are of searches with sampler = 'grid'", one.points)
        if one.step is not None:
            _refuse(where, f"{field}.points", "cannot be combined with step", one.points)
        _check_between(where, f"{field}.points", one.points, 2, MAX_CHOICES)
    elif grid and one.type == "float" and one.step is None:
        raise InputError(f"{where}: {field}.points: is missing; a grid needs points, or a step")
    if grid and (high - low) / (one.step or 1.0) > MAX_TRIALS and one.points is None:
        raise InputError(
            f"{where}: {field}: a grid of more than {MAX_TRIALS:,} points, from low = {low:g} to high = "
            f"{high:g} by steps of {one.step or 1.0:g}; give points"
        )


def _check_choices(where: str, field: str, one: ParameterRange) -> None:
    for name in ("low", "high", "step", "points", "log"):
        value = getattr(one, name)
        if value is not None and value is not False:
            _refuse(where, f"{field}.{name}", "is of parameters of type float or int", value)
    if not 1 <= len(one.choices) <= MAX_CHOICES:
        raise InputError(
            f"{where}: {field}.choices: must be from 1 to {MAX_CHOICES:,}, got {len(one.choices):,}"
        )
    counts = Counter((type(choice), choice) for choice in one.choices)
    if len(counts) < len(one.choices):
        (_, twice), _ = counts.most_common(1)[0]
        _refuse(where, f"{field}.choices", "must differ from each other", twice)
    for choice in one.choices:
        if isinstance(choice, float) and not isfinite(choice):
            _refuse(where, f"{field}.choices", "must be finite", choice)
        if isinstance(choice, str) and (len(choice) > MAX_NAME or not choice.isprintable()):
            _refuse(
                where,
                f"{field}.choices",
                f"must be printable, of at most {MAX_NAME} characters",
                choice,
            )


def _check_pruner(where: str, pruner: PrunerSpec) -> None:
    default = PrunerSpec()
    for name in pruner.__struct_fields__:
        value = getattr(pruner, name)
        users = [user for user, names in _PRUNER_FIELDS.items() if name in names]
        if name != "type" and pruner.type not in users and value != getattr(default, name):
            what = f"is of the pruner {one_of(tuple(users))}, this is {pruner.type!r}"
            _refuse(where, f"pruner.{name}", what, value)
    _check_between(where, "pruner.min_step", pruner.min_step, 0, _LARGEST_INT)
    _check_between(where, "pruner.reduction", pruner.reduction, 2, 100)
    _check_between(where, "pruner.startup_trials", pruner.startup_trials, 1, MAX_TRIALS)
    if pruner.type in ("asha", "hyperband"):
        _check_between(where, "pruner.min_step", pruner.min_step, 1, _LARGEST_INT)
    if pruner.type in ("hyperband", "curve") and pruner.max_step is None:
        raise InputError(f"{where}: pruner.max_step: is missing; {pruner.type} needs it")
    if pruner.max_step is not None:
        _check_between(where, "pruner.max_step", pruner.max_step, pruner.min_step, _LARGEST_INT)


def _check_curve(where: str, spec: StudySpec) -> None:
    """Check what a fit of learning curves needs: a target between a bad and a perfect value."""
    pruner, target = spec.pruner, spec.target
    if target is None:
        raise InputError(
            f"{where}: pruner.type: 'curve' needs a target, the value of {spec.metric} that trials are to "
            "reach; the study has none"
        )
    _check_between(where, "pruner.min_chance", pruner.min_chance, 0, 1)
    _check_between(where, "pruner.min_points", pruner.min_points, 1, MAX_LEAST_POINTS)
    _check_between(where, "pruner.max_step", pruner.max_step or 0, 1, _LARGEST_INT)
    if pruner.start is None and spec.direction == "minimize":
        raise InputError(
            f"{where}: pruner.start: is missing; curve needs the {spec.metric} of a model that has learned "
            "nothing where direction = 'minimize'"
        )
    start, limit = spec.metric_span
    for name, value in (("start", start), ("limit", limit), ("target", target)):
        field = name if name == "target" else f"pruner.{name}"
        _check_between(where, field, value, -_LARGEST, _LARGEST)
    if not spec.sign * start > spec.sign * target >= spec.sign * limit:
        what = (
            f"must be better than pruner.start ({start:g}), and not than pruner.limit ({limit:g})"
        )
        _refuse(where, "target", what, target)


def _check_job(where: str, spec: StudySpec) -> None:
    job = spec.job
    for name in ("array", "checkpoint_dir", "after"):
        if given := getattr(job, name):
            what = "cannot be given in a search"
            if name == "checkpoint_dir":
                what += ", each trial has one of its own"
            value = list(given) if isinstance(given, tuple) else given
            _refuse(where, f"job: {name}", what, value)
    check_spec(job, f"{where}: job")
    longest = {name: longest_value(one) for name, one in spec.parameters.items()}
    check_trial(longest_trial(spec), longest, f"{where}: job")


def check_trial(job: JobSpec, parameters: Mapping[str, Parameter], where: str = "job") -> None:
    """Raise InputError unless the job of a trial is within the limits of a job's size, with its parameters
    in the place of their names and in its variables."""
    variables = job.env | parameter_variables(parameters)
    texts = (*job.command, *job.container, *(text for pair in variables.items() for text in pair))
    check_size(where, "command, container and env of a trial, with its longest parameters,", texts)


def _check_between(where: str, field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # so NaN is refused too
        _refuse(where, field, f"must be from {least:.15g} to {most:.16g}", value)


def _refuse(where: str, field: str, what: str, value: object) -> None:
    raise InputError(f"{where}: {field}: {what}, got {shown(value)}")


def longest_value(one: ParameterRange) -> Parameter:
    """A value whose text is at least as long as that of each value that a parameter may have."""
    if one.choices:
        return max(one.choices, key=lambda choice: len(text_of(choice).encode()))
    if one.type == "int":
        return max(int(one.low or 0), int(one.high or 0), key=lambda bound: len(str(bound)))
    return -sys.float_info.min  # of 24 characters


def longest_trial(study: StudySpec) -> JobSpec:
    """Return the job of a trial whose parameters have their longest texts."""
    longest = {name: longest_value(one) for name, one in study.parameters.items()}
    return trial_spec(study, 0, longest)


def grid_values(one: ParameterRange) -> list[Parameter]:
    """All values of a parameter in a grid, ascending."""
    if one.type == "categorical":
        return list(one.choices)
    low, high = one.low or 0.0, one.high or 0.0
    if one.points is None:
        step = one.step or 1.0
        count = int((high - low) / step * (1 + 1e-12) + 1e-9) + 1
        found = [low + i * step for i in range(count)]
    else:
        parts = [i / (one.points - 1) for i in range(one.points)]
        if one.log:
            found = [_between_logs(low, high, part) for part in parts]
        else:
            found = [low + (high - low) * part for part in parts]
        found[-1] = high
    if one.type == "int":
        return list(dict.fromkeys(round(value) for value in found))
    return list(found)


def _between_logs(low: float, high: float, part: float) -> float:
    """Return the value at a part of the way from low to high, on a logarithmic scale."""
    ratio: float = high / low
    if isfinite(ratio):
        value: float = low * ratio**part
        return min(value, high)
    return min(max(exp(log(low) + part * (log(high) - log(low))), low), high)


def trial_spec(
    study: StudySpec, number: int, parameters: Mapping[str, Parameter], weight: float = 1.0
) -> JobSpec:
    """The job of a trial: ``{NAME}`` in its command is the value of a parameter; other braces stay."""

    def filled(word: str) -> str:
        return _PLACEHOLDER.sub(
            lambda found: text_of(parameters[found[1]]) if found[1] in parameters else found[0],
            word,
        )

    name = study.job.name or study.name
    return msgspec.structs.replace(
        study.job,
        command=tuple(map(filled, study.job.command)),
        name=f"{name}#{number}"[-MAX_NAME:] if name else f"#{number}",
        weight=weight,
    )


def text_of(value: Parameter) -> str:
    """A value as a word of a command or a variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def parameter_variables(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """The variables by which the ranks of a trial know its parameters."""
    return {"FAIRLEAD_PARAMETERS": json.dumps(parameters)} | {
        f"FAIRLEAD_PARAM_{name.upper()}": text_of(one) for name, one in parameters.items()
    }
