"""What is told of starts, such as the server accepts it: it refuses a report as a whole, and one job would
silence the node."""

import logging
from collections.abc import Iterable

import msgspec

from fairlead.cluster.protocol.messages import AttemptStatus

_REQUIRED = ("job", "attempt", "state")
_DETAILS = ("reason", "failure", "stall", "stacks")
REPORT_BYTES = 3 << 20  # of all starts in a report; the server takes 4 MiB
LEAST_REPORT_BYTES = 1 << 16  # one start that has ended always fits: see MOST_TRACEBACK
_BAD = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_DECODER = msgspec.msgpack.Decoder(AttemptStatus)
_ENCODER = msgspec.msgpack.Encoder()
_log = logging.getLogger(__name__)


class SendableCheck:
    """Call it with what is held of all starts before that is told."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, int]] = set()
        self._told: set[tuple[int, int]] = set()  # starts whose end was part of a report
        self.details = True  # False: tell nothing that is text of the job's own
        self.most = REPORT_BYTES

    def reset(self) -> None:
        """Tell all again: it may be another server."""
        self.details, self.most = True, REPORT_BYTES

    def tell_less(self) -> None:
        """A report was too large for the server."""
        self.most = max(self.most // 2, LEAST_REPORT_BYTES)

    def __call__(self, held: Iterable[AttemptStatus]) -> tuple[AttemptStatus, ...]:
        """All starts, in at most ``most`` bytes: starts that ended are told as stopping until there is room
        for how they ended, which comes as the server forgets others; then stacks are left out. Orders
        stay as they are, and an end that was told once is told until it is forgotten."""
        told = [self._acceptable(one) for one in held]
        sizes = [len(_ENCODER.encode(one)) for one in told]
        if sum(sizes) > self.most:
            told = self._shortened(told, sizes)
        self._told |= {(one.job, one.attempt) for one in told if one.state == "ended"}
        return tuple(told)

    def _shortened(self, whole: list[AttemptStatus], sizes: list[int]) -> list[AttemptStatus]:
        told = [_outline(one) for one in whole]
        outlines = [len(_ENCODER.encode(one)) for one in told]
        left = self.most - sum(outlines)
        for position in sorted(range(len(whole)), key=lambda i: self._rank(whole[i])):
            more = sizes[position] - outlines[position]
            if more <= left:
                told[position] = whole[position]
                left -= more
        return told

    def _rank(self, held: AttemptStatus) -> int:
        """What goes first: ends that were told before, other ends, what runs."""
        if held.state != "ended":
            return 2
        return 0 if (held.job, held.attempt) in self._told else 1

    def _acceptable(self, held: AttemptStatus) -> AttemptStatus:
        """The same without the fields that the server would refuse, with a warning, once for each start."""
        if not self.details:
            held = msgspec.structs.replace(held, **_defaults(_DETAILS))
        why = _why_not(held)
        if not why:
            return held
        good = {name: getattr(held, name) for name in _REQUIRED}
        for name in AttemptStatus.__struct_fields__:
            if name not in good and not _why_not(
                AttemptStatus(**good | {name: getattr(held, name)})
            ):
                good[name] = getattr(held, name)
        key = held.job, held.attempt
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("job %d: not all can be told of start %d: %s", *key, why)
        return AttemptStatus(**good)

    def forget(self, key: tuple[int, int]) -> None:
        """This start, (job, attempt), is told of no more."""
        self._warned.discard(key)
        self._told.discard(key)


def _outline(held: AttemptStatus) -> AttemptStatus:
    """The same without what may be long; of one that has ended, that it does not run on."""
    if held.state != "ended":
        return msgspec.structs.replace(held, **_defaults(_DETAILS))
    return AttemptStatus(
        job=held.job,
        attempt=held.attempt,
        state="stopping",
        step=held.step,
        loaded_step=held.loaded_step,
        lost_steps=held.lost_steps,
        saved_step=held.saved_step,
        finishing=held.finishing,
    )


def _defaults(names: tuple[str, ...]) -> dict[str, object]:
    return {f.name: f.default for f in msgspec.structs.fields(AttemptStatus) if f.name in names}


def _why_not(held: AttemptStatus) -> str:
    """ "" = it can be told."""
    try:
        _DECODER.decode(msgspec.msgpack.encode(held))
    except _BAD as problem:
        return str(problem)
    return ""
