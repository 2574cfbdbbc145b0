"""What is told of a start, such as the server accepts it: it refuses a report as a whole, and one job would
silence the node."""

import logging

import msgspec

from fairlead.cluster.protocol.messages import AttemptStatus

_REQUIRED = ("job", "epoch", "state")
_DETAILS = ("reason", "failure", "stall", "stacks")
_BAD = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_DECODER = msgspec.msgpack.Decoder(AttemptStatus)
_log = logging.getLogger(__name__)


class SendableCheck:
    """Call it with what is held of a start before that is told."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, int]] = set()
        self.details = True  # False: tell nothing that is text of the job's own

    def __call__(self, held: AttemptStatus) -> AttemptStatus:
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
        key = held.job, held.epoch
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("job %d: not all can be told of start %d: %s", *key, why)
        return AttemptStatus(**good)

    def forget(self, key: tuple[int, int]) -> None:
        """This start, (job, epoch), is told of no more."""
        self._warned.discard(key)


def _defaults(names: tuple[str, ...]) -> dict[str, object]:
    return {f.name: f.default for f in msgspec.structs.fields(AttemptStatus) if f.name in names}


def _why_not(held: AttemptStatus) -> str:
    """ "" = it can be told."""
    try:
        _DECODER.decode(msgspec.msgpack.encode(held))
    except _BAD as problem:
        return str(problem)
    return ""
