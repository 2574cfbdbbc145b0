"""The agent's record of one attempt of a job. It is told, and tells; it does nothing by itself."""

import signal
from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import msgspec

from fairlead.client.messages import Loaded, Progress, RankEnded
from fairlead.client.rank_environment import EXIT_IO, EXIT_RANK_SYNC
from fairlead.cluster.agent.addresses import GivenAddresses
from fairlead.cluster.agent.attempt_exits import RankExits
from fairlead.cluster.agent.attempt_steps import StepProgress
from fairlead.cluster.agent.attempt_times import DeviceWait, StopOrder, TrainingTimes, between
from fairlead.cluster.agent.lease import NodeLease, ReportedLease
from fairlead.cluster.agent.rank_failures import one_line, sentence, was_killed
from fairlead.cluster.agent.stalls import AttemptStall
from fairlead.cluster.protocol.messages import (
    LEFT_EARLY,
    WOULD_LOSE,
    Assignment,
    AttemptStatus,
    DirectoryTrouble,
    Failure,
)

State = Literal["starting", "running", "stopping", "ended"]
_MAX_REASON = 1000  # characters of a reason
_OF_GRACE = 0.9  # whoever is killed after this part of its grace has not ended in time
_FOREIGN_SIGTERM = "ended at a SIGTERM that did not come from Fairlead"
_MAX_PATH = 4096  # and of a path
STALL_EXIT = 124  # of an attempt that was ended because it made no progress, as of ``timeout``
NOT_FOUND = 127  # exit code of a command that cannot be started, as in shells


class NodeAttempt:
    """One attempt. Times (``now``) are monotonic seconds; ``status`` is what the server is told."""

    def __init__(self, assignment: Assignment, token: str, lease: NodeLease, now: float) -> None:
        self.assignment = assignment
        self.token = token
        self.lease = lease
        self.reported_lease = ReportedLease(lease.length_s)  # to rank 0
        self.addresses = GivenAddresses()
        self.launched = False  # has the spawner been told?
        self.state: State = "starting"
        self.reason = ""
        self.directory_problem = ""  # what is wrong with where it saves, as this node sees it
        self.wait = DeviceWait(now)
        self.times = TrainingTimes()
        self.steps = StepProgress(assignment.total_steps, now)
        self.stall = AttemptStall()
        self.stop_order = StopOrder()
        self.exits = RankExits()

    @property
    def key(self) -> tuple[int, int]:
        """(job, attempt)."""
        return self.assignment.job, self.assignment.attempt

    @property
    def files_key(self) -> tuple[int, int]:
        """(job, attempt) by which the files of its ranks are named: a program that goes on as it was stopped
        has those that it had."""
        job, number = self.key
        return job, self.addresses.files_of or number

    def is_of(self, assignment: Assignment) -> bool:
        """Return whether it was begun by this order, and not by another one of the same number."""
        return self.assignment.order_id == assignment.order_id

    @property
    def ended(self) -> bool:
        """Nothing of it is left."""
        return self.state == "ended"

    @property
    def hears_rank_0(self) -> bool:
        """Return whether its rank 0 speaks to this agent."""
        return self.assignment.has_rank_0 and not self.assignment.unmanaged

    @property
    def may_report_progress(self) -> bool:
        """Return whether it may report its progress in a file or at a URL."""
        return self.assignment.has_rank_0 and self.assignment.unmanaged

    @property
    def finishing(self) -> bool:
        """Return whether its steps are done while its script still runs."""
        return (self.steps.all_done or self.assignment.finishing) and not self.ended

    @property
    def grace_s(self) -> float:
        """Between the order to stop and SIGKILL."""
        own_grace_s = self.assignment.finish_grace_s
        return own_grace_s if self.finishing and own_grace_s >= 0 else self.assignment.grace_s

    @property
    def has_ended_in_time(self) -> bool:
        """Return whether all its ranks here ended while it had its lease, whenever this agent hears of
        that."""
        return self.exits.ended_by(self.lease.until, len(self.assignment.ranks))

    @property
    def may_run(self) -> bool:
        """Return whether it has processes, or may have some."""
        return self.launched and not self.wait.is_waiting and not self.ended

    @property
    def watched(self) -> bool:
        """Return whether steps of the attempt are expected: not once all are done, and not while it stops or
        stands by."""
        return self._in_question and not self.steps.all_done and not self.assignment.standby

    def should_end_soon(self, now: float) -> bool:
        """Return whether it was told to stop, and it is time to look why it has not ended."""
        stopping = self.state == "stopping" and not self.exits.has_failed
        managed = self.launched and not self.assignment.unmanaged
        return stopping and managed and self.stop_order.due(self.grace_s, now)

    @property
    def _is_stalled(self) -> bool:
        """Return whether it is told that it comes no further, and where its ranks stand."""
        looked_at = self.stop_order.inspected or self.stall.is_fatal
        return self._in_question or (self.state == "stopping" and looked_at)

    @property
    def _in_question(self) -> bool:
        """Return whether it may still connect."""
        return self.state in ("starting", "running")

    # --- what happens ----------------------------------------------------------------------------
    def waits(self, reason: str, now: float, *, obstacle: bool = False) -> None:
        """It cannot start yet. obstacle: something of the node is in its way, not who had its devices."""
        self.reason = reason
        self.wait.record_obstacle(reason if obstacle else "", now)

    def started(self, free: float) -> None:
        """The ranks run; the devices were free at ``free``."""
        self.wait.end(free)
        if self.hears_rank_0:
            self.stall.watch_from(free)
        self.reason = self.stop_order.reason
        if not self.hears_rank_0:
            self._train(free)

    def admitted(self, now: float) -> None:
        """It stood by, and may load from now on: what it did before has cost its job no time."""
        self.wait.admitted(now)
        self.times.admitted(now)
        if self.wait.free is not None and self.hears_rank_0:
            self.stall.watch_from(now)

    def resume_program(self, progress_port: int, files_of: int) -> None:
        """Note that its program is to go on as it was stopped, with what it was given as that attempt. Until
        it does it has done nothing."""
        self.addresses = replace(self.addresses, progress_port=progress_port, files_of=files_of)
        self.times.put_off()

    def note_ended_before(self, living: Collection[int], now: float) -> None:
        """Note that it goes on with these ranks: the others here had come to their end before."""
        for rank in self.assignment.ranks:
            if rank.rank not in living:
                self.exits.note(rank.rank, 0, now)

    def ended_before(self, number: int, now: float) -> None:
        """Note that all its ranks here came to their end as this attempt of the job: it has nothing to do."""
        self.addresses = replace(self.addresses, files_of=number)
        self.note_ended_before((), now)
        self.record_exit(now)

    @property
    def is_through(self) -> bool:
        """Return whether the ranks here of a gang of programs, which are stopped as they are, have all come
        to their end: it has nothing more to do here, also once it has stood still elsewhere."""
        gang = len(self.assignment.ranks) < self.assignment.world_size
        well = self.ended and self.exits.code == 0 and not self.exits.terminated
        return self.assignment.suspend and gang and well

    def goes_on(self, at_s: float) -> None:
        """Its program goes on since then (monotonic), with what it has on its devices."""
        self.times.record_hello(at_s)
        if self.state == "running" and not self.steps.has_reported:
            self.times.begin(at_s)

    def loaded(self, message: Loaded, now: float) -> None:
        """Training goes on."""
        if self.steps.loaded is None:
            self.times.loading_began(now - message.load_s)
        self.steps.load(message, now)
        self.stall.loaded(message.step, now)
        self._train(now)

    def progress(self, message: Progress | RankEnded, now: float) -> None:
        """Rank 0 says how many steps are done, and whether it will do more."""
        self.steps.advance(message, now)
        self.times.progressed(now, saves=isinstance(message, Progress) and message.saving)
        if isinstance(message, RankEnded):
            self.times.pause(now)
            if message.reason == "SIGTERM" and not self.stop_order.given:
                self.reason = _FOREIGN_SIGTERM
        elif self.steps.loaded is not None:
            self.stall.progressed(self.steps.step, now, saving=message.saving)

    def counted(self, step: int, at_s: float) -> None:
        """Note how many steps rank 0, which ended then (monotonic), had counted: it tells of them at
        intervals."""
        if self.steps.count(step):
            self.times.progressed(at_s, saves=False)

    def progressed(self, step: int, saved_step: int, now: float) -> None:
        """An unmanaged job says how far it is: see ``StepProgress.record_report``."""
        if not self.steps.has_reported:
            self.times.begin_anew(now)
        self.steps.record_report(step, saved_step, now, began=self.times.began)

    def stop(self, reason: str, now: float) -> None:
        """Note that it was told to stop; the first reason counts."""
        if not self.stop_order.given and not self.ended:
            self.stop_order.give(reason, now, self.times.saving_s(now))
            self.state = "stopping"
            if not self.exits.has_failed:
                self.reason = reason
            if self.assignment.unmanaged and not self.steps.has_reported:  # else its steps tell
                self.times.pause(now)

    def ended_for(self, rank: int, why: str, now: float) -> None:
        """Note that it is killed for what it did. why: a sentence."""
        code = -int(signal.SIGKILL)
        self.exits.set_failure(Failure(kind="signal", rank=rank, exit_code=code, message=why))
        self.state = "stopping"
        self.reason = self._why()
        self.times.pause(now)

    def failed(
        self,
        rank: int,
        reason: str,
        now: float,
        *,
        directory: DirectoryTrouble = "",
        path: str = "",
        of_checkpoints: bool = False,
    ) -> None:
        """A rank could not be started. directory: what is the matter with its checkpoint directory; path: of
        which directory on the way there; of_checkpoints: its checkpoints are not in it."""
        cause = reason.removeprefix(f"rank {rank}: ")
        self.reason = cause if self.assignment.world_size == 1 else reason
        self.exits.note(rank, NOT_FOUND, now)
        self.exits.set_failure(
            Failure(
                kind="not_started",
                rank=rank,
                exit_code=NOT_FOUND,
                message=cause,
                directory=directory,
                path=path,
                of_checkpoints=of_checkpoints,
            )
        )
        self.state = "stopping"
        self.times.pause(now)

    def exited(
        self, rank: int, code: int, failure: Failure | None, now: float, *, began: bool = True
    ) -> bool:
        """A rank has ended. Returns whether the other ranks are to be ended for it: not where all steps are
        done, for each may have something to do after them. began: it came to its loop, or may have."""
        unmanaged = self.assignment.unmanaged
        early = not (unmanaged or self.finishing or self.stop_order.given)
        self.exits.note(rank, code, now, early=early)
        if self.stop_order.given and self.stop_order.elapsed_s(now) >= _OF_GRACE * self.grace_s:
            self.stop_order.late_ranks.add(rank)
        runs_on = unmanaged and code == 0 and not self.exits.are_all(len(self.assignment.ranks))
        if not runs_on and (not self.hears_rank_0 or rank == 0):
            self.times.pause(now)
        if code == EXIT_IO and failure is not None and not unmanaged:
            self.exits.unsaved = sentence(failure, self.assignment.world_size)
        if code == 0 or self._was_asked(code, failure):
            if code:  # no failure, but not the end of a job either, whatever ranks elsewhere did
                self.exits.code = code
            if early and self._is_missed(rank, began=began):
                return self._note_missed(rank)
            return self.hears_rank_0 and rank == 0 and not self.steps.all_done
        if failure is not None and self.stop_order.given and was_killed(failure):
            failure = msgspec.structs.replace(failure, secondary=True)
        if self.exits.fail(code, failure):
            self.state = "stopping"
        if self.exits.first_failure is not None:
            self.reason = self._why()
        return not unmanaged or code != 0

    def _is_missed(self, rank: int, *, began: bool) -> bool:
        """Return whether the other ranks wait for one that has ended with 0: they do not begin without it."""
        gang = self.assignment.world_size > 1 and self.steps.loaded is None
        return gang and not self.exits.has_failed and (rank == 0 or not began)

    def _note_missed(self, rank: int) -> bool:
        """The others wait for this rank. Returns whether they are to be ended for it: where rank 0 is on
        another node, the server decides, which knows whether that has begun to train."""
        if not self.hears_rank_0:
            self.exits.left = rank
            return False
        self.exits.set_failure(Failure(kind="exit", rank=rank, exit_code=0, message=LEFT_EARLY))
        self.exits.code = EXIT_RANK_SYNC
        self.reason, self.state = self._why(), "stopping"
        return True

    def note_termination(self, code: int, *, terminated: bool) -> None:
        """Note that a rank ends with this code. terminated: after a SIGTERM. A script may end with 0 for
        that, in the middle of what it does after its loop. The ranks of an unmanaged job get one once rank 0
        has come to its end."""
        told = self.stop_order.given or not self.assignment.unmanaged
        self.exits.terminated |= terminated and told and code == 0

    def stalled(self, now: float) -> None:
        """Note that it hangs, and is ended for it."""
        self.exits.set_failure(
            Failure(
                kind="stalled",
                exit_code=STALL_EXIT,
                message=self.stall.sentence,
                step=self.steps.step,
                traceback=self.stall.stacks,
            )
        )
        self.stall.is_fatal = True
        self.reason, self.state = self.stall.sentence, "stopping"
        self.times.pause(now)

    def release(self, now: float) -> None:
        """Note that it has left its devices: what it does from now on is to save."""
        self.stop_order.release(now)
        self.times.release(now)

    def record_exit(self, now: float) -> None:
        """The last process has ended."""
        self.exits.finish(len(self.assignment.ranks))
        self.times.pause(now)
        self.stop_order.record_exit(now)
        self.times.saved(now)
        self.state = "ended"

    # --- what is told ----------------------------------------------------------------------------
    def status(self, now: float) -> AttemptStatus:
        """All of it."""
        steps, elsewhere = self.steps, self.addresses.elsewhere
        return AttemptStatus(
            job=self.assignment.job,
            attempt=self.assignment.attempt,
            order_id=self.assignment.order_id,
            state=self.state,
            step=steps.step,
            loaded_step=steps.loaded_step,
            stands_by=self.assignment.standby and self.times.is_prepared,
            lost_steps=steps.lost_steps,
            from_job=-1 if steps.loaded is None else steps.loaded.from_job,
            from_attempt=0 if steps.loaded is None else steps.loaded.from_attempt,
            saved_step=steps.saved_step,
            batch=steps.batch,
            total_steps=steps.total_steps,
            address="" if elsewhere is None else str(elsewhere),
            exit_code=self.exits.code if self.ended else None,
            completed=self._completed(),
            terminated=self.exits.terminated,
            finishing=steps.all_done,
            reason=self.reason[:_MAX_REASON],
            obstacle=self.wait.obstacle[:_MAX_REASON] if self.state == "starting" else "",
            directory_problem=self._where_it_saves()[:_MAX_REASON] if not self.ended else "",
            save_place=self.steps.save_place[:_MAX_PATH],
            wait_s=self.wait.took_s,
            start_s=between(self.wait.free, self.times.hello),
            load_s=steps.load_s,
            step_age_s=steps.age_s(now, self.times.paused),
            ran_s=self.times.ran_s(now),
            trained_s=self._trained_s(now),
            save_s=steps.save_s,
            saving_s=self.times.saving_s(now),
            stop_s=self.stop_order.took_s(self.times.saving_s(now)),
            ended_age_s=self.stop_order.gone_for_s(now),
            released=self.stop_order.released_s is not None,
            resumed=bool(self.addresses.files_of),
            failure=self._failure() if self.ended else None,
            left=self.exits.left,
            left_loops=self.exits.left_loops if self.ended else (),
            unsaved=self.exits.unsaved[:_MAX_REASON] if self.ended else "",
            stall=self.stall.sentence[:_MAX_REASON] if self._is_stalled else "",
            stacks=self.stall.stacks if self._is_stalled else "",
            spawner_death=self.stop_order.spawner_death,
        )

    def _where_it_saves(self) -> str:
        """Return the problem with where the attempt saves its checkpoints; "" = none known."""
        why = self.steps.save_problem
        if self.directory_problem or not why:
            return self.directory_problem
        lost = f"{WOULD_LOSE} the work since step {max(self.steps.saved_step, 0)}"
        return f"no checkpoint can be saved ({one_line(why)}){lost}"

    def _trained_s(self, now: float) -> float:
        """Seconds that its steps have taken, saves excluded; -1 = not known."""
        if self.hears_rank_0:
            return self.times.trained_s
        age_s = self.steps.age_s(now, self.times.paused)
        return max(self.times.ran_s(now) - age_s, 0.0) if age_s >= 0 else -1.0

    def _failure(self) -> Failure | None:
        failure = self.exits.first_failure if self.exits.has_failed else None
        if failure is not None and self._killed_late(failure) and self.stall.place:
            return msgspec.structs.replace(failure, traceback=self.stall.stacks)
        return failure

    def _killed_late(self, failure: Failure) -> bool:
        """Return whether it did not end when it was told to: others may have killed it before."""
        return was_killed(failure) and failure.rank in self.stop_order.late_ranks

    def _completed(self) -> bool:
        if not self.ended or self.exits.code != 0 or not self.assignment.has_rank_0:
            return False
        if self.exits.terminated:
            return False
        return not self.stop_order.given if self.assignment.unmanaged else self.steps.all_done

    def _train(self, now: float) -> None:
        self.times.begin(now)
        if self.state == "starting":
            self.state = "running"

    def _was_asked(self, code: int, failure: Failure | None) -> bool:
        """Return whether it was told to stop, and may end like this. One that trains with an iterator saves
        and exits with 0; one without, or before its first step, or with rank 0 elsewhere, ends as it likes
        unless it has to be killed, or raises an exception with rank 0 elsewhere; after its loop any may be
        killed. What its agent stops on its own account is not to blame for its end."""
        if not self.stop_order.given:
            return False
        if failure is not None and failure.directory and not self.stop_order.by_agent:
            return False  # it left by itself: of a gang, others may have been heard of before it
        elsewhere = not (self.assignment.has_rank_0 or self.assignment.unmanaged)
        if elsewhere and failure is not None and failure.kind == "exception":
            return self.stop_order.by_agent or self.finishing
        saves_nothing = self.steps.loaded is None and code != -signal.SIGKILL
        return self.stop_order.by_agent or saves_nothing or code == 0 or self.finishing

    def _why(self) -> str:
        failure = self.exits.first_failure
        assert failure is not None
        if self._killed_late(failure):
            waited = f"{self.grace_s:g} s"
            text = f"being told to stop ({self.stop_order.reason})"
            place = f"; {self.stall.place}" if self.stall.place else ""
            return f"killed: did not end within {waited} of {text}{place}"
        return sentence(failure, self.assignment.world_size)
