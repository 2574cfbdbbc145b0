"""Safe start of a cluster that was restored from a backup, or that lost its newest commits.

The server does not know which jobs were submitted and which attempts ordered since then; some may still run.
So it gives out no id again that may have been used, and starts nothing until none of these can run: agents
are told to stop attempts that it does not know, and the leases of those out of reach expire.
"""

import logging
import time
from pathlib import Path
from typing import Protocol

import msgspec

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import Register
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import Hold
from fairlead.cluster.store.restore_note import ATTEMPTS, RESTORED, RestoreNote

HOLD_REASON = (
    "held"  # key of a note in the table meta, until nothing of the time since can run any more
)
RESERVED = "reserved_jobs"  # ids below this number are not given out
JOBS = (
    100_000  # the next id is the next multiple of this, beyond as many that may have been given out
)
MAX_JOB_ID = 1 << 40  # ids from here on are nobody's: a job may have made a folder of such a name
MIN_GRACE_S = 30.0  # at least, of jobs that are not known; the default of a job
_ATTEMPT_ORIGIN_S = (
    1_704_067_200  # 2024-01-01: the seconds since then are above every number so far
)
_log = logging.getLogger(__name__)


def next_attempt(attempt: int, now_s: float) -> int:
    """Return an attempt number above all that a job may have had, even if one backup is restored twice.
    now_s: wall clock."""
    return max(attempt + ATTEMPTS, int(now_s) - _ATTEMPT_ORIGIN_S)


def next_job(last: int, taken: int) -> int:
    """Return the next job id. last: the newest that is known; taken: the newest that left a trace
    elsewhere."""
    most = max(last + JOBS, taken)
    return (most // JOBS + 1) * JOBS


def newest_trace(*folders: Path) -> int:
    """Return the largest job id that a folder of checkpoints or output is named after; -1 if there is
    none."""
    newest = -1
    for folder in folders:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        numbers = [name.partition("-")[0] for name in names]
        ids = [int(number) for number in numbers if number.isascii() and number.isdecimal()]
        newest = max([newest, *(number for number in ids if number < MAX_JOB_ID)])
    return newest


class AttemptOrphaner(Protocol):
    """Ends attempts whose processes are gone; ``attempt_ends`` has it."""

    def orphan(self, node: str, attempts: list[Attempt], reason: str) -> None:
        """End these attempts, which no longer exist on a node."""


def continue_numbering(state: ClusterState, ends: AttemptOrphaner, lease_s: float) -> None:
    """Continue job ids above those that may be in use, and hold the cluster if it has just been restored.
    Called when all else is recovered. lease_s: how long leases from before may still live."""
    note = state.store.meta(RESTORED)
    if note is not None:
        _begin_anew(state, ends, msgspec.json.decode(note, type=RestoreNote), lease_s)
        return
    state.next_job = max(state.next_job, int(state.store.meta(RESERVED) or 0))
    hold_reason = state.store.meta(HOLD_REASON)
    if hold_reason is not None:  # the server was started again before it was over
        _hold(state, hold_reason, lease_s)


def end_hold_if_due(state: ClusterState) -> None:
    """End the time in which nothing is started, once it is over. Called twice a second."""
    if state.fleet.hold.until and not state.fleet.is_on_hold:
        state.fleet.hold_all(Hold())
        state.write(lambda t: t.delete_meta(HOLD_REASON))


def _begin_anew(
    state: ClusterState, ends: AttemptOrphaner, note: RestoreNote, lease_s: float
) -> None:
    directories = {state.checkpoints, *(row.checkpoints for row in state.registry.jobs.values())}
    folders = [state.store.directory / "logs", *map(Path, sorted(directories - {""}))]
    state.next_job = next_job(state.next_job - 1, newest_trace(*folders))
    for attempt in [s for attempts in state.registry.live.values() for s in attempts]:
        attempt.loss = AttemptEnd.RESTORED, f"stopped: {note.what}"
        attempt.known_until_s = state.clock.restored_s  # whether it ran on after that nobody knows
        for node in attempt.nodes:
            ends.orphan(node, [attempt], note.what)
    now_s = time.time()
    for row in state.registry.jobs.values():
        row.attempt = next_attempt(row.attempt, now_s)
        if row.open and row.state != "paused":  # and for what became of no node
            row.reason, row.reason_node = note.why(row.starts > 0), ""
        state.registry.dirty_jobs.add(row.id)
    reserved = str(state.next_job)
    state.write(lambda t: t.set_meta(RESERVED, reserved))
    state.write(lambda t: t.delete_meta(RESTORED))
    state.write(lambda t: t.set_meta(HOLD_REASON, note.what))
    wait_s = _hold(state, note.what, lease_s)
    _log.warning(
        "%s; its last commit is %d; the next job is %s, and nothing is started for %.0f s, "
        "until nothing of the time since then can run any more",
        note.what,
        note.commit,
        reserved,
        wait_s,
    )


def _hold(state: ClusterState, why: str, lease_s: float) -> float:
    """Hold all nodes until every lease and grace period from before has expired. Returns that time in s."""
    grace_s = max(
        [MIN_GRACE_S, *(row.spec.longest_grace_s for row in state.registry.jobs.values())]
    )
    wait_s = lease_s + grace_s
    state.fleet.hold_all(Hold(state.fleet.monotonic() + wait_s, why))
    state.lost_nodes.update(state.fleet.nodes)
    return wait_s


def skip_held_job_ids(state: ClusterState, message: Register) -> None:
    """After a restore, continue job ids above those of the jobs that an agent holds."""
    newest = max((status.job for status in message.holds), default=-1)
    if state.fleet.is_on_hold and state.next_job <= newest < MAX_JOB_ID:
        state.next_job = next_job(state.next_job - 1, newest)
        reserved = str(state.next_job)
        state.write(lambda t: t.set_meta(RESERVED, reserved))
