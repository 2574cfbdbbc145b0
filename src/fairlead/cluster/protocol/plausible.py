"""The sanitising of agents' messages: every agent holds a valid token, not all tell the truth.
Text becomes one line, so that it forges none in a log and takes no terminal over; tracebacks keep their
lines. Numbers stay in relation to each other."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from fairlead.cluster.protocol.api_models import AGENTS_USER
from fairlead.cluster.protocol.messages import AttemptStatus, Failure, NodeReport, Register

MAX_RATE = 1e6  # steps/s: no training step takes less than a microsecond
CLOCK_SLACK_S = (
    3600.0  # beyond the time since an attempt was ordered: clocks, servers that were away
)
_TEXTS = (
    "address",
    "reason",
    "obstacle",
    "stall",
    "directory_problem",
    "save_place",
    "unsaved",
)
_REGISTERED = {
    "version": 64,
    "host": 255,
    "machine": 255,
    "runs_as": 64,
}  # -> the longest, characters
_FAILURE = ("type", "message", "file", "function", "path")
_TIMES = (
    "wait_s",
    "start_s",
    "load_s",
    "ran_s",
    "step_age_s",
    "trained_s",
    "save_s",
    "saving_s",
    "stop_s",
    "ended_age_s",
)
_STEPS = ("step", "loaded_step", "saved_step")  # none is beyond the last one
_Message = TypeVar("_Message")


def sanitise(message: _Message) -> _Message:
    """A report or registration with texts of one line each, and steps that fit each other; any other message
    as it is."""
    if not isinstance(message, NodeReport | Register):
        return message
    changes: dict[str, object] = {"holds": tuple(map(_sanitise_status, message.holds))}
    if isinstance(message, Register):
        changes |= {name: described(name, getattr(message, name)) for name in _REGISTERED}
    if isinstance(message, NodeReport):
        changes["problems"] = tuple(map(one_line, message.problems))
        changes["check_problem"] = one_line(message.check_problem)
    return msgspec.structs.replace(message, **changes)


def within(status: AttemptStatus, since_s: float, total_steps: float) -> AttemptStatus:
    """Return the status with every time cut to what is possible for an attempt ordered that many seconds ago,
    and every number of steps to what is possible for a job of so many, or of as many as the job itself has
    changed them to."""
    most_s = max(since_s, 0.0) + CLOCK_SLACK_S
    most = status.total_steps if status.batch else int(total_steps)
    implausible: dict[str, float] = {
        name: most_s for name in _TIMES if getattr(status, name) > most_s
    }
    implausible |= {name: most for name in _STEPS if getattr(status, name) > most}
    if status.lost_steps > most * status.attempt:
        implausible["lost_steps"] = most * status.attempt
    return msgspec.structs.replace(status, **implausible) if implausible else status


def one_line(text: str) -> str:
    """Return a text without control characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def described(name: str, text: str) -> str:
    """Return what an agent says of its node, in the field of a registration of this name, as it can be shown:
    one line, as long as it may be; names without spaces, at which a narrow table would break them."""
    most, line = _REGISTERED[name], one_line(text)
    if name == "host":
        line = _one_word(line)
    elif name == "runs_as":
        words = AGENTS_USER if line.startswith(AGENTS_USER) else ""
        line = words + _one_word(line.removeprefix(words))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _one_word(line: str) -> str:
    return "?".join(line.split(" "))


def several_lines(text: str) -> str:
    """Return a text without control characters but for the ends of its lines."""
    if text.isprintable():
        return text
    return "\n".join(map(one_line, text.split("\n")))


def _as_lines(message: object, names: Iterable[str]) -> dict[str, object]:
    """Field -> its text as one line, of those of these fields that are none."""
    texts = ((name, getattr(message, name)) for name in names)
    return {name: one_line(text) for name, text in texts if not text.isprintable()}


def _sanitise_failure(failure: Failure) -> Failure:
    new = _as_lines(failure, _FAILURE)
    new["traceback"] = several_lines(failure.traceback)
    return msgspec.structs.replace(failure, **new)


def _sanitise_status(status: AttemptStatus) -> AttemptStatus:
    new = _as_lines(status, _TEXTS)
    if status.stacks:
        new["stacks"] = several_lines(status.stacks)
    if status.failure is not None:
        new["failure"] = _sanitise_failure(status.failure)
    if status.batch and not status.total_steps:
        new["batch"] = 0
    if status.step < status.loaded_step:
        new["step"] = status.loaded_step
    return msgspec.structs.replace(status, **new) if new else status
