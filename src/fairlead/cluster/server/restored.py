"""A cluster that begins from a backup, or that lost its newest commits.

It does not know which jobs were submitted, and which starts were ordered, since then; some of these may
still run. So no number of that time is given out again, and nothing is started until none of it can run:
agents are told to stop what this server does not know, and what they do not hear of has no lease any more.
"""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlead.cluster.protocol.messages import Register

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop

RESTORED = "restored"  # key of the note in the table meta, until a server has acted on it
HELD_NODE = "held"  # and of this one, until nothing of the time since can run any more
RESERVED = "reserved_jobs"  # ids below this number are not given out
JOBS = (
    100_000  # the next id is the next multiple of this, beyond as many that may have been given out
)
MOST_JOBS = 1 << 40  # ids from here on are nobody's: a job may have made a folder of such a name
GRACE_S = 30.0  # at least, of jobs that are not known; the default of a job
EPOCHS = 10_000  # starts that a job may have had since
_EPOCH_ORIGIN_S = (
    1_704_067_200  # of 2024-01-01: the seconds since then are above every epoch so far
)
WHY = "the cluster was restored from a backup"
_log = logging.getLogger(__name__)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """When that was, and the last commit that is known."""

    time_s: float  # wall clock
    commit: int
    backup_s: float = 0.0  # when that commit was made, wall clock; 0 = not told

    def why(self, started: bool) -> str:
        """Why a job waits, as a sentence without a full stop. started: it has run before."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.backup_s))
        of = f" of {at}" if self.backup_s else ""
        goes_on = "; the job starts again from its newest checkpoint" if started else ""
        return f"{WHY}{of}{goes_on}"


def next_epoch(epoch: int, now_s: float) -> int:
    """An epoch above all that a job may have had, also when it is restored twice from one backup.
    now_s: wall clock."""
    return max(epoch + EPOCHS, int(now_s) - _EPOCH_ORIGIN_S)


def next_job(last: int, taken: int) -> int:
    """The next id for jobs. last: the newest that is known; taken: the newest that left a trace elsewhere."""
    most = max(last + JOBS, taken)
    return (most // JOBS + 1) * JOBS


def newest_trace(*folders: Path) -> int:
    """The largest job id that a folder of checkpoints or output is named after; -1 = none."""
    newest = -1
    for folder in folders:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        ids = [int(name) for name in names if name.isascii() and name.isdecimal()]
        newest = max([newest, *(number for number in ids if number < MOST_JOBS)])
    return newest


def reserve(engine: "ServerLoop") -> None:
    """Number jobs on from where a restored cluster must, and begin anew if it has just been restored. Called
    when all else is recovered."""
    note = engine.store.meta(RESTORED)
    if note is not None:
        _begin_anew(engine, msgspec.json.decode(note, type=Restored))
        return
    engine.next_job = max(engine.next_job, int(engine.store.meta(RESERVED) or 0))
    if engine.store.meta(HELD_NODE) is not None:  # the server was started again before it was over
        _hold(engine)


def release(engine: "ServerLoop") -> None:
    """Note that the time in which nothing is started is over. Called twice a second."""
    if engine.fleet.hold_until and not engine.fleet.is_held:
        engine.fleet.hold(0.0, "")
        engine.write(lambda t: t.delete_meta(HELD_NODE))


def _begin_anew(engine: "ServerLoop", note: Restored) -> None:
    folders = [engine.store.directory / "logs"]
    if engine.options.checkpoints:
        folders.append(Path(engine.options.checkpoints))
    engine.next_job = next_job(engine.next_job - 1, newest_trace(*folders))
    for start in [s for starts in engine.book.live.values() for s in starts]:
        for node in start.nodes:
            engine.backend.abandon(node, [start], WHY)
    now_s = time.time()
    for row in engine.book.jobs.values():
        row.epoch = next_epoch(row.epoch, now_s)
        if row.open and row.state != "paused":  # and for what became of no node
            row.reason, row.reason_node = note.why(row.starts > 0), ""
        engine.book.dirty_jobs.add(row.id)
    reserved = str(engine.next_job)
    engine.write(lambda t: t.set_meta(RESERVED, reserved))
    engine.write(lambda t: t.delete_meta(RESTORED))
    engine.write(lambda t: t.set_meta(HELD_NODE, WHY))
    wait_s = _hold(engine)
    _log.warning(
        "%s that ends at commit %d: the next job is %s, and nothing is started for %.0f s, "
        "until nothing of the time since then can run any more",
        WHY,
        note.commit,
        reserved,
        wait_s,
    )


def _hold(engine: "ServerLoop") -> float:
    """Give no node a job until every lease of the time since is over, and every grace; returns seconds."""
    options = engine.options
    grace_s = max([GRACE_S, *(row.spec.longest_grace_s for row in engine.book.jobs.values())])
    wait_s = options.lease_s * (1 + options.rate_bound) + grace_s
    engine.fleet.hold(engine.fleet.monotonic() + wait_s, WHY)
    engine.backend.lost_nodes.update(engine.fleet.nodes)
    return wait_s


def learn_jobs(engine: "ServerLoop", message: Register) -> None:
    """After a restore: jobs that an agent holds have ids that are not given out again."""
    newest = max((held.job for held in message.holds), default=-1)
    if engine.fleet.is_held and engine.next_job <= newest < MOST_JOBS:
        engine.next_job = next_job(engine.next_job - 1, newest)
        reserved = str(engine.next_job)
        engine.write(lambda t: t.set_meta(RESERVED, reserved))
