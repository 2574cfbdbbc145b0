"""The sanitising of agents' messages: every agent holds a valid token, not all tell the truth.
Text becomes one line, so that it forges none in a log; numbers stay in relation to each other."""

from typing import TypeVar

import msgspec

from fairlead.cluster.protocol.messages import AttemptStatus, NodeReport, Register

MAX_RATE = 1e6  # steps/s: no training step takes less than a microsecond
CLOCK_SLACK_S = (
    3600.0  # beyond the time since an attempt was ordered: clocks, servers that were away
)
_TEXTS = ("address", "reason", "obstacle", "stall")
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
_Message = TypeVar("_Message")


def sanitise(message: _Message) -> _Message:
    """A report or registration with texts of one line each, and steps that fit each other; any other message
    as it is."""
    if not isinstance(message, NodeReport | Register):
        return message
    changes: dict[str, object] = {"holds": tuple(map(_sanitise_status, message.holds))}
    if isinstance(message, NodeReport):
        changes["problems"] = tuple(map(one_line, message.problems))
        changes["check_problem"] = one_line(message.check_problem)
    return msgspec.structs.replace(message, **changes)


def within(status: AttemptStatus, since_s: float) -> AttemptStatus:
    """Return the status with every time cut to what is possible for an attempt ordered that many seconds
    ago."""
    most = max(since_s, 0.0) + CLOCK_SLACK_S
    implausible = {name: most for name in _TIMES if getattr(status, name) > most}
    return msgspec.structs.replace(status, **implausible) if implausible else status


def one_line(text: str) -> str:
    """Return a text without control characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _sanitise_status(status: AttemptStatus) -> AttemptStatus:
    new: dict[str, object] = {
        name: one_line(text) for name in _TEXTS if not (text := getattr(status, name)).isprintable()
    }
    if status.batch and not status.total_steps:
        new["batch"] = 0
    if status.step < status.loaded_step:
        new["step"] = status.loaded_step
    return msgspec.structs.replace(status, **new) if new else status
