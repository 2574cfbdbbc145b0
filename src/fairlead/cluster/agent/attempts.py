"""What the agent knows of one start of a job. No input or output here: it is told, and tells."""

import signal
from typing import Literal

from fairlead.client.messages import (
    Adapt,
    Loaded,
    Progress,
    RankEnded,
)
from fairlead.cluster.agent.lease import NodeLease, ToldLease
from fairlead.cluster.agent.proc import oom_kills
from fairlead.cluster.agent.rank_failures import first_to_fail, sentence
from fairlead.cluster.agent.stalls import StallWatch
from fairlead.cluster.protocol.messages import (
    EXPIRED,
    LEAVES,
    ORPHANED,
    Assignment,
    AttemptStatus,
    Failure,
    SpawnerDeath,
)

State = Literal["starting", "running", "stopping", "ended"]
_REASON = 1000  # characters of a reason
STALL_EXIT = 124  # of a start that was ended because it made no progress, as of ``timeout``
NOT_FOUND = 127  # exit code of a command that cannot be started, as in shells


class NodeAttempt:
    """One start. Times (``now``) are monotonic seconds; ``held`` is what the server is told."""

    def __init__(self, assignment: Assignment, token: str, lease: NodeLease, now: float) -> None:
        self.assignment = assignment
        self.token = token
        self.lease = lease
        self.told_lease = ToldLease(lease.length_s)  # to rank 0
        self.state: State = "starting"
        self.master = (
            ""  # host:port:gang_port:secret of rank 0 for the ranks here, where it is known
        )
        self.address = ""  # the same for ranks elsewhere, where rank 0 is here
        self.oom_kills = oom_kills()  # of the node, as it began
        self.launched = False  # has the spawner been told?
        self.reason = ""
        self.obstacle = ""  # what of the node keeps it from starting
        self.directory_problem = ""  # what is wrong with where it saves
        self.stopping_for = ""
        self.exits: dict[int, int] = {}  # rank -> exit code
        self.exit_code: int | None = None
        self.failures: list[Failure] = []  # of ranks, in the order in which they were heard of
        self._step = -1
        self._step_at = now
        self._saved_step = -1
        self._loaded: Loaded | None = None
        self._told_from = -1  # steps that an unmanaged job told of first
        self.progress_port = 0  # on which it answers how far it is, 0 = the agent chose none
        self._batch = 0
        self._total_steps = 0
        self._said_complete = False
        self._save_s = -1.0
        self._ordered = now
        self._free: float | None = None
        self._waiting: float | None = None  # since when it cannot start
        self._hello: float | None = None
        self._began: float | None = None  # training
        self._paused: float | None = None  # training ended, or an unmanaged job was told to stop
        self._stop: float | None = None
        self._gone: float | None = None
        self.watch: StallWatch | None = None  # of rank 0's node: do its steps come along?
        self.stall = ""  # it makes no progress: the sentence
        self.stacks = ""
        self.spawner_death: SpawnerDeath | None = None  # that it ends with

    @property
    def key(self) -> tuple[int, int]:
        """(job, epoch)."""
        return self.assignment.job, self.assignment.epoch

    @property
    def ended(self) -> bool:
        """Nothing of it is left."""
        return self.state == "ended"

    @property
    def speaks(self) -> bool:
        """Will its rank 0 speak to this agent?"""
        return self.assignment.has_rank_0 and not self.assignment.unmanaged

    @property
    def may_tell(self) -> bool:
        """Is it one that may say in a file, or at a URL, how far it is?"""
        return self.assignment.has_rank_0 and self.assignment.unmanaged

    @property
    def tells_progress(self) -> bool:
        """Has it done so?"""
        return self._told_from >= 0

    @property
    def finishing(self) -> bool:
        """Are its steps done, and does its script do what comes after them?"""
        return (self._said_complete or self.assignment.finishing) and not self.ended

    @property
    def grace_s(self) -> float:
        """Between the order to stop and SIGKILL."""
        own = self.assignment.finish_grace_s
        return own if self.finishing and own >= 0 else self.assignment.grace_s

    @property
    def said_hello(self) -> bool:
        """Has rank 0 spoken?"""
        return self._hello is not None

    # --- what happens ----------------------------------------------------------------------------
    def waits(self, reason: str, now: float, *, obstacle: bool = False) -> None:
        """It cannot start yet. obstacle: something of the node is in its way, not who had its devices."""
        self.reason = reason
        if bool(self.obstacle) != obstacle:
            self._waiting = None
        self.obstacle = reason if obstacle else ""
        self._waiting = now if self._waiting is None else self._waiting

    def waits_s(self, now: float) -> float:
        """Seconds since it was found that it cannot start; 0 = it can, or has."""
        waits = self._waiting is not None and self._free is None
        return now - self._waiting if waits and self._waiting is not None else 0.0

    @property
    def may_run(self) -> bool:
        """Has it, or may it have, processes?"""
        waits = self._waiting is not None and self._free is None
        return self.launched and not waits and not self.ended

    def started(self, free: float) -> None:
        """The ranks run; the devices were free at ``free``."""
        self._free, self.obstacle = free, ""
        if self.speaks:
            self.watch = StallWatch(free)
        self.reason = self.stopping_for
        if not self.speaks:
            self._train(free)

    def hello(self, now: float) -> None:
        """Rank 0 speaks."""
        if self._hello is None:
            self._hello = now

    def loaded(self, message: Loaded, now: float) -> None:
        """Training goes on."""
        self._loaded, self._said_complete = message, False
        self._step, self._step_at = max(self._step, message.step), now
        self._saved_step = max(self._saved_step, message.step)
        if self.watch is not None:
            self.watch.loaded(message.step, now)
        self._train(now)

    def progress(self, message: Progress | RankEnded, now: float) -> None:
        """Steps are done: never more than the job has, and never fewer than before, but where it has changed
        its batch size (``adapt``)."""
        step, self._step_at = max(self._step, self._possible(message.step)), now
        self._step, self._saved_step = step, self._possible(message.saved_step)
        if self.watch is not None and self._loaded is not None and isinstance(message, Progress):
            self.watch.told(step, now, saving=message.saving)
        if message.saved_step > 0:
            self._save_s = message.save_s
        if isinstance(message, RankEnded):
            self._said_complete = message.completed
            self._pause(now)

    def told(self, step: int, saved_step: int, now: float) -> None:
        """An unmanaged job says how many steps are done, and how many its own checkpoints keep, -1 = that
        is not said. The first time it says from where it goes on."""
        if not self.tells_progress:
            self._told_from = step
            self._began = now if self._paused is None else self._began
        if step != self._step or self._step_at < (self._began or 0.0):
            self._step, self._step_at = step, now
        self._saved_step = saved_step

    def adapt(self, message: Adapt) -> None:
        """Another batch size, and with it another count of steps."""
        self._batch, self._total_steps = message.batch, message.total_steps
        self._step = self._possible(message.step)

    def _possible(self, steps: int) -> int:
        """No more steps than the job has, where that is known."""
        total = self._total_steps or self.assignment.total_steps
        return min(steps, total) if total > 0 else steps

    def stop(self, reason: str, now: float) -> None:
        """It was told to stop; the first reason counts."""
        if self._stop is None and not self.ended:
            self._stop, self.stopping_for, self.state = now, reason, "stopping"
            if self.exit_code in (None, 0):
                self.reason = reason
            if self.assignment.unmanaged:
                self._pause(now)

    def ended_for(self, rank: int, why: str, now: float) -> None:
        """It is killed for what it did. why: a sentence."""
        code = -int(signal.SIGKILL)
        self.exit_code, self.state = code, "stopping"
        self.failures.append(Failure(kind="signal", rank=rank, exit_code=code, message=why))
        self.reason = self._why()
        self._pause(now)

    def failed(self, rank: int, reason: str, now: float) -> None:
        """A rank could not be started."""
        cause = reason.removeprefix(f"rank {rank}: ")
        self.reason = cause if self.assignment.world_size == 1 else reason
        self.exits[rank] = self.exit_code = NOT_FOUND
        self.failures.append(
            Failure(kind="not_started", rank=rank, exit_code=NOT_FOUND, message=cause)
        )
        self.state = "stopping"
        self._pause(now)

    def exited(self, rank: int, code: int, failure: Failure | None, now: float) -> bool:
        """A rank has ended. Returns whether the other ranks are to be ended for it: not where all steps are
        done, for each may have something to do after them."""
        self.exits[rank] = code
        unmanaged = self.assignment.unmanaged
        if not self.speaks or rank == 0:
            self._pause(now)
        if code == 0 or self._was_asked(code):
            if code and not unmanaged:  # no failure, but not the end of a job either
                self.exit_code = code
            return self.speaks and rank == 0 and not self._said_complete
        if self.exit_code in (None, 0):
            self.exit_code = code
            self.state = "stopping"
        if failure is not None and not (self.failures and code == -signal.SIGKILL):
            self.failures.append(failure)  # later ones are killed for it
        if self.failures:
            self.reason = self._why()
        return not unmanaged or code != 0

    def stalled(self, now: float) -> None:
        """It hangs, and is ended for it."""
        self.failures.append(
            Failure(
                kind="stalled",
                exit_code=STALL_EXIT,
                message=self.stall,
                step=self._step,
                traceback=self.stacks,
            )
        )
        self.exit_code, self.reason, self.state = STALL_EXIT, self.stall, "stopping"
        self._pause(now)

    def gone(self, now: float) -> None:
        """The last process has ended."""
        if self.exit_code is None and len(self.exits) == len(self.assignment.ranks):
            self.exit_code = 0
        self._pause(now)
        self._gone, self.state = now, "ended"

    # --- what is told ----------------------------------------------------------------------------
    def held(self, now: float) -> AttemptStatus:
        """All of it."""
        loaded = self._loaded
        return AttemptStatus(
            job=self.assignment.job,
            epoch=self.assignment.epoch,
            state=self.state,
            step=self._step,
            loaded_step=self._told_from if loaded is None else loaded.step,
            lost_steps=-1 if loaded is None else loaded.lost_steps,
            saved_step=self._saved_step,
            batch=self._batch,
            total_steps=self._total_steps,
            address=self.address,
            exit_code=self.exit_code if self.ended else None,
            completed=self._completed(),
            finishing=self._said_complete,
            reason=self.reason[:_REASON],
            obstacle=self.obstacle[:_REASON] if self.state == "starting" else "",
            directory_problem=self.directory_problem[:_REASON] if not self.ended else "",
            wait_s=_between(self._ordered, self._free),
            start_s=_between(self._free, self._hello),
            load_s=-1.0 if loaded is None else loaded.load_s,
            step_age_s=self._step_age_s(now),
            ran_s=0.0 if self._began is None else (self._paused or now) - self._began,
            save_s=self._save_s,
            stop_s=_between(self._stop, self._gone),
            failure=self._failure() if self.ended else None,
            stall=self.stall[:_REASON] if self._in_question else "",
            stacks=self.stacks if self._in_question else "",
            spawner_death=self.spawner_death,
        )

    def _step_age_s(self, now: float) -> float:
        if self._loaded is None and not self.tells_progress:
            return -1.0
        if self.tells_progress and self._paused is not None:
            now = self._paused  # as ``ran_s``: their difference is what its steps have taken
        return max(0.0, now - self._step_at)

    @property
    def _in_question(self) -> bool:
        """May it still come along?"""
        return self.state in ("starting", "running")

    @property
    def watched(self) -> bool:
        """Are its steps awaited? Not once all are done, and not while it stops."""
        return self._in_question and not self._said_complete

    def _failure(self) -> Failure | None:
        return None if self.exit_code in (None, 0) else first_to_fail(self.failures)

    def _completed(self) -> bool:
        if not self.ended or self.exit_code != 0 or not self.assignment.has_rank_0:
            return False
        return self._stop is None if self.assignment.unmanaged else self._said_complete

    def _train(self, now: float) -> None:
        if self._began is None:
            self._began = now
        if self.state == "starting":
            self.state = "running"

    def _pause(self, now: float) -> None:
        if self._began is not None and self._paused is None:
            self._paused = now

    def _was_asked(self, code: int) -> bool:
        """Was it told to stop, and may such a job end like this? One that trains with an iterator saves
        and exits with 0; after its loop it may be killed; where rank 0 is elsewhere, that node judges. What
        its agent stops on its own account is not to blame for its end, whatever that is."""
        if self._stop is None:
            return False
        own_account = self.stopping_for in (EXPIRED, LEAVES, ORPHANED)
        return own_account or self._loaded is None or code == 0 or self.finishing

    def _why(self) -> str:
        failure = first_to_fail(self.failures)
        assert failure is not None
        if failure.exit_code == -signal.SIGKILL and self._stop is not None:
            waited = f"{self.grace_s:g} s"
            return (
                f"killed: did not end within {waited} of being told to stop ({self.stopping_for})"
            )
        return sentence(failure, self.assignment.world_size)


def _between(begin: float | None, end: float | None) -> float:
    return -1.0 if begin is None or end is None else max(0.0, end - begin)
