"""Reloads of a server's configuration: by a request, or by SIGHUP."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.api_models import ReloadAnswer
from fairlead.cluster.server.runtime_options import Reread, RuntimeOptions
from fairlead.cluster.store.audit_log import NEVER_ROTATE, AuditLog, local_entry
from fairlead.errors import FairleadError

_log = logging.getLogger(__name__)


class RuntimeReload:
    """Keeps the options that hold now. Any thread may reload; one at a time does."""

    def __init__(
        self,
        directory: Path,
        options: RuntimeOptions,
        reread: Reread | None,
        take_over: Callable[[RuntimeOptions], None],
    ) -> None:
        """directory: of the cluster's state; reread: reads the configuration file again, None = there is
        none; take_over: has options hold."""
        self._directory = directory
        self._options = options
        self._reread = reread
        self._take_over = take_over
        self._applied = False
        self._lock = threading.Lock()

    def apply(self) -> None:
        """The options hold, once the server has found its state."""
        with self._lock:
            self._applied = True
            self._take_over(self._options)

    def reload(self) -> ReloadAnswer:
        """Take over what the file says now. Raises InputError where something is wrong with it."""
        if self._reread is None:
            raise ConflictError(
                "this server was started without --config: there is no file to read"
            )
        with self._lock:
            read = self._reread()
            changed = self._options.changed_fields(read.runtime)
            self._options = read.runtime
            if self._applied:
                self._take_over(read.runtime)
        return ReloadAnswer(changed=changed, needs_restart=list(read.needs_restart))

    def heed_hangup(self, loop: asyncio.AbstractEventLoop) -> None:
        """SIGHUP has the configuration reloaded from now on."""

        def receive(*_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(loop.run_in_executor, None, self._reload_by_signal)

        signal.signal(signal.SIGHUP, receive)

    def _reload_by_signal(self) -> None:
        """Reload the configuration. The log has what comes of it even where little is logged."""
        try:
            answer = self.reload()
            AuditLog(self._directory, NEVER_ROTATE).append([local_entry("reload")])
        except FairleadError as problem:
            _log.error("SIGHUP: the configuration stays as it was: %s", problem)
        except Exception:
            _log.exception("SIGHUP: the configuration could not be read again")
        else:
            _log.error(
                "SIGHUP: changed: %s; needs a restart: %s",
                ", ".join(answer.changed) or "nothing",
                ", ".join(answer.needs_restart) or "nothing",
            )
