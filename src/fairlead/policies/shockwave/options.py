"""The options of Shockwave's planner, and the files that set them."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from fairlead.errors import ConfigError
from fairlead.model.option_text import parse_options
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines


class ProfileCalibration(StrEnum):
    """The ways in which measured rates correct the profiled times of epochs."""

    OFF = "off"
    RUN_TIME = "run_time"  # by the time in which the job itself ran
    WALL_TIME = "wall_time"  # the release's: time before arrival and waiting counts as well


class EpochTime(StrEnum):
    """The ways to take the time of an epoch within the planning horizon."""

    PRESENT = "present"  # as at the present batch size
    AHEAD = "ahead"  # the mean over the epochs that are expected
    HISTORY = "history"  # the mean over the epochs so far, the release's


class Predictor(StrEnum):
    """The ways to forecast the remaining work of a job."""

    POSTERIOR = "posterior"  # Dirichlet, from what was seen
    ORACLE = "oracle"  # from the schedule itself, which nobody knows in a real cluster


class Share(StrEnum):
    """The part of the cluster that is a job's fair share."""

    BY_JOB = "by_job"  # of its time min(1, G / n): n jobs take turns whatever they need
    BY_DEVICE = "by_device"  # min(1, G / (n s)): an n-th of the devices for a job on s
    BY_DEMAND = "by_demand"  # min(1, G / sum of s)


class Regulariser(StrEnum):
    """Unit in which the most remaining work of a job is subtracted from the objective."""

    RELATIVE = "relative"  # to the time that all work needs at least
    SECONDS = "seconds"  # the release's, whose k spans eight orders of magnitude


class FinishTimeOrigin(StrEnum):
    """From when finish times are counted where they are compared."""

    SUBMISSION = "submission"  # so that it is the finish-time fairness rho
    START = "start"  # of the cluster, the release's: all ratios tend to 1 as it ages


@dataclass(frozen=True, kw_only=True, slots=True)
class ShockwaveOptions:
    """The options; the defaults are what ``shockwave`` means without a file. docs/shockwave.md has what
    each is worth."""

    rounds: int = 40  # F, the planning horizon
    replan_every: int = 8  # rounds, even if nothing has changed
    replan_on_adaptation: bool = True  # plan anew when a job changes its batch size
    k: float = 10.0  # weight of the regulariser
    regulariser: Regulariser = Regulariser.RELATIVE
    makespan_slack: float = 0.9  # part of the least time for all work; no penalty below
    power: float = 8.0  # lambda: a late job's utility counts ratio ** power
    urgent_power: float = 100.0  # instead, if it would be done within a round
    largest_weight: float = 1e6  # bound of these; inf = none
    rho: float = 1.0  # jobs are late above it
    momentum: float = 0.5  # of the mean of the targets against the last one
    bases: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the piecewise linear logarithm
    log_floor: float = 1e-6  # stands for 0 in that logarithm
    whole_epochs: bool = False  # count finished epochs only, and epoch times in whole seconds
    capped: bool = True  # with whole epochs, an unfinished job has at least one left
    epoch_time: EpochTime = EpochTime.PRESENT
    predictor: Predictor = Predictor.POSTERIOR
    prior: float = 1.0  # weight of the prior against what is seen
    calibration: ProfileCalibration = ProfileCalibration.RUN_TIME
    tolerance: float = 0.1  # relative difference from which times are corrected
    share: Share = Share.BY_JOB
    finish_time_origin: FinishTimeOrigin = FinishTimeOrigin.SUBMISSION
    stickiness: float = 3.0  # a running job's weight in the order of rounds is larger by this part


DEFAULT = ShockwaveOptions()
RELEASED = replace(
    DEFAULT,
    rounds=20,
    replan_on_adaptation=False,
    k=1e-3,
    regulariser=Regulariser.SECONDS,
    makespan_slack=0.0,
    power=12.0,
    momentum=0.9,
    largest_weight=inf,
    whole_epochs=True,
    capped=False,
    epoch_time=EpochTime.HISTORY,
    calibration=ProfileCalibration.WALL_TIME,
    finish_time_origin=FinishTimeOrigin.START,
    stickiness=0.0,
)
MAX_ROUNDS_AHEAD = (
    100  # of a planning horizon; the time to order them grows faster than their square
)
PRESETS = {"default": DEFAULT, "released": RELEASED}

_RELEASE = {  # keys of the release's configuration files
    "future_rounds": "rounds",
    "k": "k",
    "lambda": "power",
    "rhomax": "rho",
    "log_approximation_bases": "bases",
}
_UNUSED = {"gpu_ram", "solver_rel_gap", "solver_num_threads", "solver_timeout"}


def read_options(text: str) -> ShockwaveOptions:
    """Options by the name of a preset, as ``NAME=VALUE,...``, or from a file.

    A ``.toml`` file has any fields of ``ShockwaveOptions``, and ``preset`` for what the others are
    (default). A ``.json`` file is one of the release's: its settings on top of the preset ``released``.
    Raises ConfigError with file, field and value.
    """
    if text in PRESETS:
        return PRESETS[text]
    path = Path(text)
    if (
        "=" in text or text in {field.name for field in fields(ShockwaveOptions)}
    ) and not path.exists():
        return _inline(text)
    try:
        path.stat()
        if path.suffix == ".json":
            found = msgspec.json.decode(path.read_bytes())
        else:
            found = read_toml(path, ConfigError)
    except OSError as problem:
        names = " or ".join(PRESETS)
        reason = f"{problem.strerror} (a file's name, {names} is expected)"
        raise ConfigError(f"{path}: cannot read the configuration: {reason}") from None
    except (ValueError, RecursionError) as problem:  # msgspec's are ValueErrors
        raise ConfigError(f"{path}: not a readable configuration: {problem}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must be an object with the options of shockwave")
    if path.suffix == ".json":
        found = {_RELEASE.get(k, k): v for k, v in found.items() if k not in _UNUSED}
        found.setdefault("preset", "released")
    with naming_lines(path):
        return _checked(path, found)


def write_options(options: ShockwaveOptions) -> str:
    """The text from which ``read_options`` makes the same options."""
    parts = [
        f"{f.name}={'/'.join(map(str, value)) if isinstance(value, tuple) else value}"
        for f in fields(ShockwaveOptions)
        if (value := getattr(options, f.name)) != getattr(DEFAULT, f.name)
    ]
    return ",".join(parts) or "default"


def _inline(text: str) -> ShockwaveOptions:
    words = [f"preset={part}" if part.strip() in PRESETS else part for part in text.split(",")]
    hint = "; numbers of bases stand between slashes" if "bases=" in text else ""
    given = parse_options(words, "shockwave", expected=f"NAME=VALUE{hint}")
    found = {
        name: value.split("/") if name == "bases" else value.lower()
        for name, value in given.items()
    }
    return _checked(Path("shockwave"), found, strict=False)


def _checked(path: Path, found: dict[str, Any], strict: bool = True) -> ShockwaveOptions:
    preset = found.pop("preset", "default")
    if preset not in PRESETS:
        raise ConfigError(f"{path}: preset: must be one of {', '.join(PRESETS)}, got {preset!r}")
    known = ["preset", *(field.name for field in fields(ShockwaveOptions))]
    for name in found:
        if name not in known:
            raise ConfigError(f"{path}: {name!r} is not an option (there are {', '.join(known)})")
    values = {f.name: getattr(PRESETS[preset], f.name) for f in fields(ShockwaveOptions)} | found
    try:
        options = msgspec.convert(values, ShockwaveOptions, strict=strict)
    except msgspec.ValidationError as problem:
        where = str(problem).partition(" - at `$.")[2]
        name = where.partition("[")[0].rstrip("`")
        raise ConfigError(
            f"{path}: {name}: must be {_expected(name)}, got {values.get(name)!r}"
        ) from None
    for name, holds, limits in _limits(options):
        if not holds:
            raise ConfigError(f"{path}: {name}: must be {limits}, got {getattr(options, name)}")
    return options


def _expected(name: str) -> str:
    """The values that an option takes, in words."""
    kind = {field.name: field.type for field in fields(ShockwaveOptions)}.get(name)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    known = {int: "a whole number", float: "a number", bool: "true or false"}
    return known.get(kind, "a list of numbers") if isinstance(kind, type) else "a list of numbers"


def _limits(options: ShockwaveOptions) -> list[tuple[str, bool, str]]:
    """(option, whether its value is allowed, the values that are) of each number."""
    bases = options.bases
    rising = all(a < b for a, b in pairwise(bases))
    finite = "a finite number >= 0"
    first = min((*bases[1:2], 1.0))
    return [
        ("rounds", 1 <= options.rounds <= MAX_ROUNDS_AHEAD, f"from 1 to {MAX_ROUNDS_AHEAD}"),
        ("replan_every", options.replan_every >= 1, ">= 1"),
        ("k", 0 <= options.k < inf, finite),
        ("makespan_slack", 0 <= options.makespan_slack < inf, finite),
        ("power", 0 <= options.power < inf, finite),
        ("urgent_power", 0 <= options.urgent_power < inf, finite),
        ("largest_weight", options.largest_weight >= 1, ">= 1"),
        ("rho", 0 < options.rho < inf, "a finite number > 0"),
        ("momentum", 0 <= options.momentum <= 1, "from 0 to 1"),
        (
            "bases",
            len(bases) >= 2 and bases[0] == 0 and bases[-1] == 1 and rising,
            "rising numbers from 0 to 1",
        ),
        (
            "log_floor",
            0 < options.log_floor < first,
            f"between 0 and {first:g}, the second of bases",
        ),
        ("prior", 0 < options.prior < inf, "a finite number > 0"),
        ("tolerance", 0 <= options.tolerance < inf, finite),
        ("stickiness", 0 <= options.stickiness < inf, finite),
    ]
