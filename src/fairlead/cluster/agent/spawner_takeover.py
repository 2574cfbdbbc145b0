"""A spawner takes the place of those before it: nothing that they started is left then."""

import logging
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.adopted import end_adopted
from fairlead.cluster.agent.device_claim import SpawnerStorage
from fairlead.cluster.agent.lock_holders import lock_holders
from fairlead.cluster.agent.machine import AgentFiles, clear
from fairlead.cluster.agent.spawner_messages import Ready
from fairlead.cluster.agent.survivors import boot_id, end_survivors, read_records
from fairlead.cluster.agent.warden import end_stopped_wardens
from fairlead.cluster.shortage import NO_DESCRIPTORS

_RETRY_S = 0.05  # between tries to take the lock
_POLL_S = 1.0  # between polls at who holds it
_MAX_STOPPED_POLLS = 5  # in a row, at which its holder was kept from running by a signal
_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)


def take_over(
    state: Path, record: AgentFiles, storage: SpawnerStorage, adopts: int
) -> tuple[list[int], Ready]:
    """Wait for the last spawner, which is ending its ranks; then end what none has ended, of this agent's
    earlier spawners and of earlier agents of this node on this machine. Returns the locks, and what the agent
    is to be told.

    state, record: of the agent; adopts: its pid, where it adopts what a spawner leaves behind, else 0.
    """
    paths = state / "spawner.lock", record.path / "spawner.lock"
    status = [_when_files_open(partial(_take, path)) for path in paths]
    earlier = [before.path for before in record.predecessors()]
    ready = _when_files_open(partial(_end_earlier, record, storage, adopts))
    end_stopped_wardens(state, [record.path, *earlier])
    return status, ready


def _end_earlier(record: AgentFiles, storage: SpawnerStorage, adopts: int) -> Ready:
    """End what is left of earlier spawners and agents."""
    survivors = sum(
        end_survivors(folder, read_records(folder), record.incarnation)
        for folder in storage.attempt_records
    )
    cleared = []
    for before in record.predecessors():
        ended = clear(before)
        if ended is not None:
            survivors += ended
            cleared.append(before.incarnation)
    survivors += end_adopted(adopts)
    return Ready(survivors=survivors, cleared=tuple(cleared))


def _when_files_open(do: Callable[[], _Result]) -> _Result:
    """Try again for as long as there is no file descriptor left: without one nobody sees what still runs, and
    a spawner that ends is only followed by the next."""
    warned = False
    while True:
        try:
            boot_id()  # to begin with, for what cannot be read later is taken for gone
            return do()
        except OSError as problem:
            if problem.errno not in NO_DESCRIPTORS:
                raise
            if not warned:
                _log.warning("waits for a file descriptor to look for what still runs: %s", problem)
            warned = True
        time.sleep(_RETRY_S)


def _take(path: Path) -> int:
    """Wait for a lock without limit. Its holder ends what it has to, and lets go. One that somebody has
    stopped never would, and is killed."""
    stopped: dict[proc.Process, int] = {}  # polls in a row
    next_poll_s = 0.0
    while (lock := locks.take(path)) is None:
        if (now := time.monotonic()) >= next_poll_s:
            next_poll_s = now + _POLL_S
            found = [one for one in lock_holders([path]) if one.state in proc.STOPPED]
            stopped = {one: stopped.get(one, 0) + 1 for one in found}
            for one in [one for one, polls in stopped.items() if polls > _MAX_STOPPED_POLLS]:
                _log.warning("process %d holds %s and is stopped: it is killed", one.pid, path)
                proc.kill_exactly(one, signal.SIGKILL)
        time.sleep(_RETRY_S)
    return lock
