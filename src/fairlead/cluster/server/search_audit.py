"""Entries of the audit log for what searches do: they submit and cancel jobs for whoever has begun them."""

import time
from collections.abc import Sequence
from pathlib import Path

from fairlead.cluster.protocol.audit import AuditEntry, audit_time
from fairlead.cluster.store.audit_log import NEVER_ROTATE, AuditLog
from fairlead.cluster.store.rows import SearchRow, TrialRow


class SearchAudit:
    """Writes entries from one thread. What cannot be written is kept, and written before whatever comes
    next."""

    def __init__(self, directory: Path) -> None:
        """directory: of the cluster's state."""
        self._log = AuditLog(directory, NEVER_ROTATE)
        self._unwritten: list[AuditEntry] = []

    def note(self, search: SearchRow, action: str, trials: Sequence[TrialRow]) -> None:
        """Write that a search has done something with the jobs of these trials. Raises StoreError where that
        cannot be written."""
        now = audit_time(time.time())
        self._unwritten += [
            AuditEntry(
                time=now,
                user=search.user,
                tenant=search.tenant,
                actor=f"search {search.id}",
                source="local",
                action=action,
                object=f"job {trial.job}: trial {trial.number}, {trial.state}",
                outcome="accepted",
            )
            for trial in trials
        ]
        self.write_rest()

    def write_rest(self) -> None:
        """Write what could not be written before. Raises StoreError."""
        if self._unwritten:
            self._log.append(self._unwritten)
            self._unwritten = []
