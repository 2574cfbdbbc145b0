"""Notices of a server, as the sender of its webhook asks for them."""

from fairlead.cluster.protocol.api_models import ENDED_STATES
from fairlead.cluster.server.job_notices import PREFIX, JobNotices, past_deadlines
from fairlead.cluster.server.service import Service
from fairlead.cluster.store.rows import JobRow

BATCH = 100  # notices that are read, and deleted, at once
DURABLE_S = 30.0  # that is waited for the driver


class ServiceNotices:
    """Implements ``webhook.NoticeSource``: reads from the store, and changes on the driver's thread."""

    def __init__(self, service: Service, notices: JobNotices) -> None:
        self._service = service
        self._notices = notices

    def waiting(self) -> list[tuple[str, str]]:
        """Keys and texts of the oldest notices; none where an older copy of the state is not to act."""
        halted = self._service.engine.state.halted
        return [] if halted else self._service.store.metas(PREFIX, BATCH)

    def delivered(self, keys: list[str]) -> None:
        """Delete those of these keys; returns when that is durable. Raises StoreError where it cannot be."""
        self._service.engine.call(lambda: self._notices.delivered(keys)).result(DURABLE_S)

    def look(self) -> None:
        """Have those noted of jobs past their deadlines."""
        state = self._service.engine.state
        if not state.halted and past_deadlines(state):
            note = self._notices.note_deadlines
            self._service.engine.call(lambda: note(self._has_ended)).result(DURABLE_S)

    def _has_ended(self, row: JobRow) -> bool:
        """As people are told."""
        return self._service.viewer.displayed_state(row) in ENDED_STATES
