"""The tokens of an agent: the one that enrols its node, and the node's own, which it is given then."""

import contextlib
import logging
import re
from pathlib import Path

from fairlead.cluster.agent.untrusted_files import read_regular, write_anew

_TOKEN = re.compile(rb"[!-~]{1,256}")
_MAX_BYTES = 512  # bytes of the file
_log = logging.getLogger(__name__)


class NodeToken:
    """The node's own token outlives its agent, in a file of the state directory."""

    def __init__(self, state: Path, enrolment: str) -> None:
        """enrolment: the token of the user ``agent``; "" = none, for a node that is enrolled."""
        self._path = state / "node.token"
        self._enrolment = enrolment
        self._own = _read(self._path)

    @property
    def current(self) -> str:
        """The one to call the server with."""
        return self._own or self._enrolment

    def keep(self, own: str) -> None:
        """The server has given the node a token of its own."""
        self._own = own
        try:
            self._write()
        except OSError as problem:  # it is good for this run
            _log.warning("%s: cannot be written: %s", self._path, problem.strerror)

    def keep_again(self) -> None:
        """Write the file anew where somebody has removed it. To be called now and then."""
        if self._own and not self._path.exists():
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        whole = self._path.with_suffix(".new")
        write_anew(whole, self._own.encode())
        whole.replace(self._path)

    def disown(self) -> bool:
        """The server does not know the node's own token: one on another state, or it is revoked. Returns
        whether there is another to try. The file stays, for a server that knows it."""
        had, self._own = bool(self._own), ""
        return had and bool(self._enrolment)


def _read(path: Path) -> str:
    try:
        found = read_regular(path, _MAX_BYTES) if path.exists() else b""
    except OSError as problem:
        _log.warning("%s: cannot be read: %s", path, problem.strerror)
        return ""
    return found.strip().decode() if _TOKEN.fullmatch(found.strip()) else ""
