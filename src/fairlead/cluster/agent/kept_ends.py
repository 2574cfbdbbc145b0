"""Ends of attempts on disk, from when they are known until the server has booked them: an agent that is
killed meanwhile still knows of them when it is started again, and the job does not run a second time."""

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.untrusted_files import read_regular, write_anew
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.protocol.validation_messages import UNREADABLE

_MAX_BYTES = 1 << 22  # of a file
_log = logging.getLogger(__name__)


class KeptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt."""

    status: AttemptStatus
    at_s: float  # when that was right, seconds since 1970

    def status_now(self) -> AttemptStatus:
        """The status with the age that its end has now."""
        age_s, passed_s = self.status.ended_age_s, max(time.time() - self.at_s, 0.0)
        return msgspec.structs.replace(
            self.status, ended_age_s=age_s + passed_s if age_s >= 0.0 else age_s
        )


class KeptEnds:
    """A file per attempt in a folder of the agent's state."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "ends"

    def keep(self, status: AttemptStatus) -> None:
        """Write down how an attempt ended. Where that is impossible (a full disk) only this process knows."""
        path = self._path((status.job, status.attempt))
        partial = path.with_suffix(".partial")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            kept = KeptEnd(status=status, at_s=time.time())
            write_anew(partial, msgspec.json.encode(kept))
            partial.replace(path)
        except OSError as problem:
            _log.warning("%s: the end of an attempt could not be kept: %s", path, problem.strerror)
            _remove(partial)

    def read(self) -> Iterator[KeptEnd]:
        """Yield what an earlier run of the agent has kept; what is damaged is removed, with a warning."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                kept = msgspec.json.decode(read_regular(path, _MAX_BYTES), type=KeptEnd)
            except (OSError, *UNREADABLE) as problem:
                _log.warning("%s: is damaged (%s); its attempt counts as lost", path, problem)
                _remove(path)
            else:
                yield kept

    def forget(self, key: Key) -> None:
        """The server has booked the end of an attempt."""
        _remove(self._path(key))

    def _path(self, key: Key) -> Path:
        return self._folder / f"{key[0]}-{key[1]}.json"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
