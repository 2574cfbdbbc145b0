"""What the controller of searches may do with jobs, and what it finds out about them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.server.search_audit import SearchAudit
from fairlead.cluster.store.rows import JobRow, TrialRow


class SearchDoors(NamedTuple):
    """The acts that the controller may do with jobs, as people do them. ``cancel`` and ``set_weight`` are for
    the driver's thread, the others for any."""

    cancel: Callable[[JobRow], None]
    set_weight: Callable[[JobRow, float], None]
    displayed_state: Callable[[JobRow], JobState]
    change: Callable[[Callable[[], Any]], Any]  # on the driver's thread; returns once it is durable
    audit: SearchAudit  # for the controller's thread


class WrittenTrials(NamedTuple):
    """The trials that were written."""

    trials: list[TrialRow]
    cancelled: list[TrialRow]  # whose jobs were cancelled with that


class JobLook(NamedTuple):
    """The state of a job, as it is shown."""

    state: JobState
    reason: str
