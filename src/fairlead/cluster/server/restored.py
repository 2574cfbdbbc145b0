"""A cluster that begins from a backup, or that lost its newest commits.

It does not know which jobs were submitted, and which starts were ordered, since then; some of these may
still run. So no number of that time is given out again, and nothing is started until none of it can run:
agents are told to stop what this server does not know, and what they do not hear of has no lease any more.
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
from fairlead.cluster.store.restore_note import ATTEMPTS, RESTORED, Restored

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
    """A number of an attempt above all that a job may have had, also when it is restored twice from one
    backup. now_s: wall clock."""
    return max(attempt + ATTEMPTS, int(now_s) - _ATTEMPT_ORIGIN_S)


def next_job(last: int, taken: int) -> int:
    """The next id for jobs. last: the newest that is known; taken: the newest that left a trace elsewhere."""
    most = max(last + JOBS, taken)
    return (most // JOBS + 1) * JOBS


def newest_trace(*folders: Path) -> int:
    """The largest job id that a folder of checkpoints or output is named after; -1 = none."""
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
        """These attempts no longer exist on a node."""


def reserve(state: ClusterState, ends: AttemptOrphaner) -> None:
    """Number jobs on from where a restored cluster must, and begin anew if it has just been restored. Called
    when all else is recovered."""
    note = state.store.meta(RESTORED)
    if note is not None:
        _begin_anew(state, ends, msgspec.json.decode(note, type=Restored))
        return
    state.next_job = max(state.next_job, int(state.store.meta(RESERVED) or 0))
    hold_reason = state.store.meta(HOLD_REASON)
    if hold_reason is not None:  # the server was started again before it was over
        _hold(state, hold_reason)


def release(state: ClusterState) -> None:
    """Note that the time in which nothing is started is over. Called twice a second."""
    if state.fleet.hold.until and not state.fleet.is_on_hold:
        state.fleet.hold_all(Hold())
        state.write(lambda t: t.delete_meta(HOLD_REASON))


def _begin_anew(state: ClusterState, ends: AttemptOrphaner, note: Restored) -> None:
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
    wait_s = _hold(state, note.what)
    _log.warning(
        "%s; its last commit is %d; the next job is %s, and nothing is started for %.0f s, "
        "until nothing of the time since then can run any more",
        note.what,
        note.commit,
        reserved,
        wait_s,
    )


def _hold(state: ClusterState, why: str) -> float:
    """Give no node a job until every lease of the time since is over, and every grace; returns seconds."""
    options = state.options
    grace_s = max(
        [MIN_GRACE_S, *(row.spec.longest_grace_s for row in state.registry.jobs.values())]
    )
    wait_s = options.lease_s * (1 + options.rate_bound) + grace_s
    state.fleet.hold_all(Hold(state.fleet.monotonic() + wait_s, why))
    state.lost_nodes.update(state.fleet.nodes)
    return wait_s


def learn_jobs(state: ClusterState, message: Register) -> None:
    """After a restore: jobs that an agent holds have ids that are not given out again."""
    newest = max((status.job for status in message.holds), default=-1)
    if state.fleet.is_on_hold and state.next_job <= newest < MAX_JOB_ID:
        state.next_job = next_job(state.next_job - 1, newest)
        reserved = str(state.next_job)
        state.write(lambda t: t.set_meta(RESERVED, reserved))
