"""Statuses of attempts, cut to what the server accepts.
It refuses a report as a whole, and one job would silence the node."""

import logging
from collections.abc import Collection, Iterable

import msgspec

from fairlead.cluster.protocol.messages import AttemptKey, AttemptStatus

_REQUIRED = ("job", "attempt", "state")
_DETAILS = ("reason", "failure", "stall", "stacks")
REPORT_BYTES = 3 << 20  # of all attempts in a report; the server takes 4 MiB
MIN_REPORT_BYTES = 1 << 16  # one attempt that has ended always fits: see MAX_TRACEBACK
_UNENCODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_DECODER = msgspec.msgpack.Decoder(AttemptStatus)
_ENCODER = msgspec.msgpack.Encoder()
_log = logging.getLogger(__name__)


class SendableCheck:
    """Call it with what is held of all attempts before that is told."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, int]] = set()
        self._reported_ends: set[tuple[int, int]] = set()  # attempts whose end was part of a report
        self.details = True  # False: tell nothing that is text of the job's own
        self.most = REPORT_BYTES

    def reset(self) -> None:
        """Tell all again: it may be another server."""
        self.details, self.most = True, REPORT_BYTES

    def halve_limit(self) -> None:
        """A report was too large for the server."""
        self.most = max(self.most // 2, MIN_REPORT_BYTES)

    def __call__(
        self, statuses: Iterable[AttemptStatus], held_back: Collection[AttemptKey] = ()
    ) -> tuple[AttemptStatus, ...]:
        """All starts, in at most ``most`` bytes: starts that ended are told as stopping until there is room
        for how they ended, which comes as the server forgets others; then stacks are left out. Orders
        stay as they are, and an end that was told once is told until it is forgotten.

        held_back: starts of which the server shall not hear yet that they have ended."""
        reported = [self._acceptable(one) for one in statuses]
        held_back = set(held_back) - self._reported_ends
        reported = [
            _outline(one) if (one.job, one.attempt) in held_back else one for one in reported
        ]
        sizes = [len(_ENCODER.encode(one)) for one in reported]
        if sum(sizes) > self.most:
            reported = self._shortened(reported, sizes)
        self._reported_ends |= {(one.job, one.attempt) for one in reported if one.state == "ended"}
        return tuple(reported)

    def _shortened(self, whole: list[AttemptStatus], sizes: list[int]) -> list[AttemptStatus]:
        reported = [_outline(one) for one in whole]
        outlines = [len(_ENCODER.encode(one)) for one in reported]
        left = self.most - sum(outlines)
        for position in sorted(range(len(whole)), key=lambda i: self._rank(whole[i])):
            more = sizes[position] - outlines[position]
            if more <= left:
                reported[position] = whole[position]
                left -= more
        return reported

    def _rank(self, status: AttemptStatus) -> int:
        """Return the place of a status in a report: 0 = an end told before, 1 = another end, 2 = it runs."""
        if status.state != "ended":
            return 2
        return 0 if (status.job, status.attempt) in self._reported_ends else 1

    def _acceptable(self, status: AttemptStatus) -> AttemptStatus:
        """Return the status without the fields that the server would refuse, and warn once for each
        attempt."""
        if not self.details:
            status = msgspec.structs.replace(status, **_defaults(_DETAILS))
        why = _why_not(status)
        if not why:
            return status
        good = {name: getattr(status, name) for name in _REQUIRED}
        for name in AttemptStatus.__struct_fields__:
            if name not in good and not _why_not(
                AttemptStatus(**good | {name: getattr(status, name)})
            ):
                good[name] = getattr(status, name)
        key = status.job, status.attempt
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("job %d: not all can be told of start %d: %s", *key, why)
        return AttemptStatus(**good)

    def forget(self, key: tuple[int, int]) -> None:
        """This attempt, (job, attempt), is told of no more."""
        self._warned.discard(key)
        self._reported_ends.discard(key)


def _outline(status: AttemptStatus) -> AttemptStatus:
    """Return the status without fields that may be long; an ended attempt is still reported as ended."""
    if status.state != "ended":
        return msgspec.structs.replace(status, **_defaults(_DETAILS))
    return AttemptStatus(
        job=status.job,
        attempt=status.attempt,
        order_id=status.order_id,
        state="stopping",
        step=status.step,
        loaded_step=status.loaded_step,
        lost_steps=status.lost_steps,
        saved_step=status.saved_step,
        finishing=status.finishing,
    )


def _defaults(names: tuple[str, ...]) -> dict[str, object]:
    return {f.name: f.default for f in msgspec.structs.fields(AttemptStatus) if f.name in names}


def _why_not(status: AttemptStatus) -> str:
    """ "" = it can be told."""
    try:
        _DECODER.decode(msgspec.msgpack.encode(status))
    except _UNENCODABLE as problem:
        return str(problem)
    return ""
