"""The two sides of a job's ranks: rank 0 decides (``RankZero``), the others follow it (``OtherRank``)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from fairlead.client.agent_link import AgentLink
from fairlead.client.checkpoint import Checkpoint, Checkpoints, Manifest, read_manifest
from fairlead.client.job_size import UNREACHABLE_STEP
from fairlead.client.messages import EXPIRED, Adapt, Loaded, RankEnded
from fairlead.client.rank_environment import (
    EXIT_IO,
    EXIT_MAY_NOT_RUN,
    EXIT_RANK_SYNC,
    RankEnvironment,
    leave,
    print_to_log,
)
from fairlead.client.rank_sync import (
    Begin,
    CheckStepPace,
    Decision,
    OtherRankSync,
    RankStatus,
    RankSync,
    RankZeroSync,
    Saved,
    SingleRankSync,
)
from fairlead.client.save_problem import SaveProblem, save_problem
from fairlead.client.save_schedule import SaveSchedule
from fairlead.client.script_state import ScriptState, write_loader_state
from fairlead.client.step_count import StepCount
from fairlead.client.storage import own_access
from fairlead.client.uneven_ranks import WaitNotice, are_uneven, difference, training_step

LOCK_S = 30.0  # how long another process may still hold the checkpoints
POLL_S = 0.02  # between two looks at the agent's socket; one costs some 50 us when caches are cold
CLOCK_POLL_S = 0.1  # between two looks at the clock without an agent
_UNSEEN = " cannot be seen now"  # of a checkpoint
RETRY_S = 30.0  # at most, after a checkpoint that could not be saved


class RankRole(Protocol):
    """The role of a rank, as ``Lease`` uses it.
    Rank 0 speaks to the agent and decides for all ranks; the others do as it decides."""

    def open(self) -> Checkpoint | None:
        """Connect. Returns the checkpoint to load; None = begin at step 0."""

    def loaded(self, step: int, load_s: float, change: tuple[int, int] | None) -> None:
        """Training goes on from this step, after ``load_s`` seconds of loading. change: (batch size, total
        steps) where they are not those that the job began with."""

    def change(self, step: int, batch_size: int, total_steps: int) -> None:
        """From the next step on the job has another batch size, and with it another total of steps."""

    def count(self, step: int) -> None:
        """So many steps of the job are done."""

    def decide(self, status: RankStatus) -> Decision:
        """Return what all ranks do at this step. status: of this rank."""

    def save(self, partial: str, manifest: Manifest) -> bool:
        """Make a checkpoint of what this rank has saved to ``partial``. Returns whether it holds."""

    def proceed(self, decision: Decision, step: int) -> tuple[float, int]:
        """Report the progress. Returns when to ask again: monotonic time (inf: not by time), and step."""

    def end(self, step: int, completed: bool, reason: str) -> None:
        """The loop is over. reason: why, where the job is not completed."""

    def leave(self, step: int, why: str) -> None:
        """The script has left its loop at this step, and does no more. why: "" = by itself."""

    def park(self, step: int, reason: str) -> None:
        """The loop pauses, with its state saved. reason: why."""

    def resume(self, environment: RankEnvironment, step: int) -> None:
        """Go on as another attempt. Leaves the process where somebody has saved other steps meanwhile."""

    def request_checkpoint(self) -> None:
        """Save at the next step on which the ranks agree."""

    def save_finishing(self, manifest: Manifest, terminated: bool) -> str:
        """Save after the loop. Returns why the process has to stop now, "" = it may go on."""

    def save_after_loop(self, manifest: Manifest) -> None:
        """Save after the loop, once."""

    def close(self) -> None:
        """Close the connections."""


class RankZero:
    """Rank 0: the agent's socket, the checkpoints, and the verdicts for all ranks."""

    def __init__(self, environment: RankEnvironment, state: ScriptState) -> None:
        self._environment = environment
        self._state = state
        self._link = AgentLink(environment, state.checkpoint_s)
        self._rank_sync: RankSync = (
            RankZeroSync(environment) if environment.world_size > 1 else SingleRankSync()
        )
        self._pace = CheckStepPace()
        self._wait_notice = WaitNotice()
        directory = environment.checkpoint_dir or state.directory
        self._store = Checkpoints(directory) if directory else None
        self._steps = StepCount(Path(directory), environment.job) if directory else None
        self._saves = SaveSchedule()
        self._step = -1  # not known yet
        self._marked = -1  # the total of which the newest checkpoint says that no more are needed
        self._finishing = False  # the loop is over, the script is not
        self._found: Manifest | None = None  # of the newest checkpoint, as far as is known here

    def open(self) -> Checkpoint | None:
        """Gather the ranks, get the lease, find the checkpoint that all of them load."""
        self._link.open()
        self._rank_sync.open(self._gather)
        self._link.await_admission()
        found = None
        if self._store is not None:
            with own_access(self._store.directory, self._environment):
                self._take_lock(self._store)
                found = self._store.newest(set_aside=self._environment.accept_loss)
        if found is not None:
            self._mark(found.manifest)
            self._found = found.manifest
        self._rank_sync.send(Begin(str(found.path) if found else ""))
        return found

    def loaded(self, step: int, load_s: float, change: tuple[int, int] | None) -> None:
        """Training goes on from this step; ``change``: with another batch size and total than at first."""
        self._step = step
        self._saves.loaded(step)
        lost = -1 if self._steps is None else self._steps.resume_from(step)
        _, attempt, job = _origin(self._found)
        self._link.send(Loaded(self._environment.attempt, step, load_s, lost, job, attempt))
        if change is not None:
            self.change(step, *change)

    def change(self, step: int, batch_size: int, total_steps: int) -> None:
        """From the next step on the job uses another batch size."""
        self._link.send(Adapt(self._environment.attempt, batch_size, total_steps, step))

    def count(self, step: int) -> None:
        """So many steps are done."""
        if self._steps is not None:
            self._steps.write(step)

    def decide(self, status: RankStatus) -> Decision:
        """Return what all ranks do at this step, and send it to them."""
        self._step = status.step
        statuses = [status, *self._rank_sync.statuses(self._idle)]
        if differs := difference(statuses):
            leave(EXIT_RANK_SYNC, differs)
        if waits := self._wait_notice.sentence(statuses):
            print_to_log(waits)
        uneven, at = are_uneven(statuses), training_step(statuses)
        now = monotonic()
        decision = self._judge(statuses, now)
        if self._environment.world_size > 1 and not decision.check_step:
            decision = replace(decision, check_step=self._pace.next(at, now))
        if decision.do in ("save", "stop", "finish"):
            early = decision.do == "finish" and status.step != status.total_steps
            again = (
                early and status.total_steps != self._marked
            )  # else the next start would do more steps
            partial = self._partial(status.step, again or uneven)  # others may have done more since
            decision = replace(decision, partial=partial, uneven=uneven)
        self._rank_sync.send(decision)
        return decision

    def save(self, partial: str, manifest: Manifest) -> bool:
        """Save, together with the other ranks where each has a part. False: the disk would not have it."""
        assert self._store is not None
        began = monotonic()
        self._link.send_saving(manifest.step)
        mine = self._state.write_part(Path(partial), self._environment.rank)
        others = self._rank_sync.saved(self._idle)
        failed = next((one for one in (mine, *others) if one.problem), None)
        problem = None if failed is None else SaveProblem(failed.problem, failed.place)
        if problem is None:
            parts = {name: part for one in (mine, *others) for name, part in one.parts.items()}
            try:
                self._store.commit(Path(partial), replace(manifest, parts=parts))
            except OSError as error:
                problem = save_problem(error, Path(partial))
        self._link.has_saved()
        if problem is not None:
            self._store.discard(Path(partial))
            self._not_saved(problem)
            return False
        self._link.save_problem = SaveProblem("")
        self._saves.saved(manifest.step, monotonic() - began)
        self._found = manifest
        self._mark(manifest)
        return True

    def proceed(self, decision: Decision, step: int) -> tuple[float, int]:
        """Tell of the progress; when to look again: monotonic time (inf: not by time), and step."""
        now = monotonic()
        self._progress(now, step, at_once=decision.do == "save")
        if self._environment.world_size > 1:
            return inf, decision.check_step
        if decision.check_step:
            return now, UNREACHABLE_STEP
        if self._environment.socket:
            return now + POLL_S, UNREACHABLE_STEP
        due = self._saves.due_at(self._link.checkpoint_s)
        return min(now + CLOCK_POLL_S, due), UNREACHABLE_STEP

    def end(self, step: int, completed: bool, reason: str) -> None:
        """The last word to the agent. reason: why it is over, where it is not completed."""
        if step != self._saves.step and (self._store is not None or not completed):
            self._end_unsaved(step, completed, reason)
        self._finishing = completed
        tell = self._link.finish_and_stay if completed else self._link.finish
        tell(self._end_of(step, completed, reason))

    def leave(self, step: int, why: str) -> None:
        """The last word to the agent. Who has left the loop and ends is done, though told to stop since."""
        self._link.poll(monotonic())
        if self._link.refused:
            return
        expired = EXPIRED if monotonic() >= self._link.lease_end else ""
        reason = self._link.stop or why if why else expired
        self._link.finish(self._end_of(step, not reason, reason))

    def park(self, step: int, reason: str) -> None:
        """The last word to the agent. Other ranks stay connected."""
        self.end(step, False, reason)
        if self._store is not None:
            self._store.unlock()

    def resume(self, environment: RankEnvironment, step: int) -> None:
        """Get the lease of another attempt, and the checkpoints, of which the newest has to be its own."""
        self._environment = environment
        self._link = AgentLink(environment, self._link.checkpoint_s)
        self._link.open()
        if self._store is None:
            return
        with own_access(self._store.directory, environment):
            self._take_lock(self._store)
            newest = self._store.newest_manifest()
        if _origin(newest) != _origin(self._found):
            leave(
                EXIT_MAY_NOT_RUN,
                f"while this process was parked at step {step}, another one has changed its checkpoints",
            )

    def _end_unsaved(self, step: int, completed: bool, reason: str) -> None:
        """Warn where the script goes on behind its loop: it may save its results elsewhere. Else leave."""
        problem = self._link.save_problem.why
        why = f" ({problem})" if problem else ""
        where = f"could not be saved{why}" if self._store is not None else "has no checkpoint_dir"
        left = self._left() if self._store is not None else ""
        lost = f"step {step} {where}, and the work since step {self._saves.step} is"
        if completed:
            print_to_log(f"warning: {lost} done again if this process is stopped before its end")
            return
        self._link.deliver_progress(step, self._saves.step, self._saves.save_s)
        self._link.deliver(self._end_of(step, completed, reason))
        self.close()
        leave(EXIT_IO, f"{lost} lost" + (f"; {left}" if left.endswith(_UNSEEN) else ""))

    def request_checkpoint(self) -> None:
        """Request a checkpoint at the next step."""
        self._link.save_requested = True

    def save_finishing(self, manifest: Manifest, terminated: bool) -> str:
        """Save after the loop. Returns why the process has to stop now, "" = it may go on."""
        link, now = self._link, monotonic()
        link.poll(now)
        if link.refused:
            leave(EXIT_MAY_NOT_RUN, f"this process may not run any more: {link.refused}")
        self.save_after_loop(manifest)
        link.poll(monotonic())
        reason = link.stop or ("SIGTERM" if terminated else "")
        if monotonic() >= link.lease_end:
            reason = reason or EXPIRED
        if reason:
            self._finishing = False
            link.finish(self._end_of(manifest.step, False, reason))
        return reason

    def save_after_loop(self, manifest: Manifest) -> None:
        """Save after the loop."""
        if self._store is None:
            return
        try:
            self._take_lock(self._store)
        except OSError as problem:
            self._not_begun(problem)
            return
        try:
            if partial := self._partial(manifest.step, again=True):
                self.save(partial, manifest)
                # No step follows that would tell the agent that the save is over.
                self._progress(monotonic(), manifest.step, at_once=True)
        finally:
            self._store.unlock()

    def _mark(self, manifest: Manifest) -> None:
        self._marked = manifest.total_steps if manifest.finished else -1

    def _end_of(self, step: int, completed: bool, reason: str) -> RankEnded:
        return RankEnded(
            self._environment.attempt, step, self._saves.step, self._saves.save_s, completed, reason
        )

    def close(self) -> None:
        if not self._finishing:
            self._link.close()
        self._rank_sync.close()
        if self._store is not None:
            self._store.unlock()
        if self._steps is not None:
            self._steps.close()

    def _judge(self, statuses: list[RankStatus], now: float) -> Decision:
        link = self._link
        link.poll(now)
        if link.refused:
            return Decision("abandon", link.refused)
        if all(one.finished for one in statuses) or any(one.complete for one in statuses):
            return Decision("finish")
        told = link.stop or ("SIGTERM" if any(one.terminated for one in statuses) else "")
        if now < link.lease_end and any(one.pass_ends for one in statuses):
            # A start from here would find the pass empty: before the first step of the next one.
            together = told and all(one.pass_ends for one in statuses)
            return Decision("go", check_step=self._step if together else 0)
        if told:
            return Decision("stop", told, park=link.may_park and told == link.stop)
        if now >= link.lease_end:
            return Decision("stop", EXPIRED)
        if self._store is not None and self._save_is_due(now):
            link.save_requested = False
            return Decision("save")
        return Decision("go")

    def _save_is_due(self, now: float) -> bool:
        if self._step == self._saves.step:
            self._link.save_requested = False
            return False
        link = self._link
        return self._saves.is_due(now, link.checkpoint_s, requested=link.save_requested)

    def _partial(self, step: int, again: bool = False) -> str:
        """A folder for the parts of a checkpoint of this step; ``""``: none is needed, or can be made.
        again: though there is one of this step."""
        if self._store is None or (step == self._saves.step and not again):
            return ""
        try:
            return str(self._store.begin(step))
        except OSError as problem:
            self._not_begun(problem)
            return ""

    def _not_begun(self, problem: OSError) -> None:
        assert self._store is not None
        self._not_saved(save_problem(problem, self._store.directory / "unfinished"))

    def _not_saved(self, problem: SaveProblem) -> None:
        self._link.save_problem = problem
        wait_s = min(RETRY_S, self._link.checkpoint_s)
        self._saves.retry_after(wait_s, self._link.checkpoint_s)
        print_to_log(
            f"warning: no checkpoint of step {self._step}: {problem.why}; {self._left()}, "
            f"next attempt in {wait_s:.0f} s"
        )

    def _left(self) -> str:
        """Return in words which checkpoint is left, read from the folder now: it may have been emptied."""
        try:
            steps = [] if self._store is None else self._store.steps()
        except (
            OSError
        ):  # they are away, or the storage is out of order: that is not that there are none
            step = self._saves.step
            return f"the one of step {step}{_UNSEEN}" if step else "there is none"
        if self._saves.step not in steps:
            self._saves.step = max(steps, default=0)
        step = self._saves.step
        return f"the one of step {step} stays" if step in steps else "there is none"

    def _take_lock(self, store: Checkpoints) -> None:
        until = monotonic() + LOCK_S
        while not store.lock():
            if monotonic() > until:
                leave(
                    EXIT_MAY_NOT_RUN,
                    f"another process uses {store.directory}: of this job, or of another job with "
                    "the same checkpoint directory",
                )
            self._idle()
            sleep(0.05)

    def _gather(self) -> None:
        """While ranks come: there is nothing to save yet for a job that is told to stop."""
        self._idle()
        if self._link.stop:
            leave(EXIT_MAY_NOT_RUN, f"told to stop before all ranks had come: {self._link.stop}")

    def _idle(self) -> None:
        """While rank 0 waits for others: keep the lease."""
        now = monotonic()
        self._link.poll(now)
        if self._step >= 0 or self._link.is_due(now):
            self._progress(now, self._step)
        if self._link.refused or now >= self._link.lease_end:
            if not self._link.refused:
                self._link.finish(self._end_of(self._step, False, EXPIRED))
            leave(EXIT_MAY_NOT_RUN, self._link.refused or "the lease ran out while ranks waited")

    def _progress(self, now: float, step: int, at_once: bool = False) -> None:
        self._link.send_progress(now, step, self._saves.step, self._saves.save_s, at_once)


class OtherRank:
    """Every other rank."""

    def __init__(self, environment: RankEnvironment, state: ScriptState) -> None:
        self._environment = environment
        self._state = state
        self._rank_sync = OtherRankSync(environment)

    def open(self) -> Checkpoint | None:
        """The checkpoint that rank 0 has chosen and checked."""
        text = self._rank_sync.open()
        if not text:
            return None
        path = Path(text)
        with own_access(path.parent, self._environment):
            return Checkpoint(path, read_manifest(path))

    def loaded(self, step: int, load_s: float, change: tuple[int, int] | None) -> None: ...

    def change(self, step: int, batch_size: int, total_steps: int) -> None: ...

    def count(self, step: int) -> None: ...

    def decide(self, status: RankStatus) -> Decision:
        """Return the decision of rank 0."""
        return self._rank_sync.exchange(status)

    def save(self, partial: str, manifest: Manifest) -> bool:
        """This rank's part, where each has one, and the state of its loader."""
        rank = self._environment.rank
        saved = self._state.write_part(Path(partial), rank) if self._state.sharded else Saved({})
        if manifest.loader_state and not saved.problem:
            loader = write_loader_state(Path(partial), rank, manifest.loader_state)
            saved = Saved({**saved.parts, **loader.parts}, loader.problem)
        self._rank_sync.send(saved)
        return True

    def proceed(self, decision: Decision, step: int) -> tuple[float, int]:  # noqa: ARG002
        return inf, decision.check_step

    def end(self, step: int, completed: bool, reason: str) -> None: ...

    def leave(self, step: int, why: str) -> None: ...

    def park(self, step: int, reason: str) -> None: ...

    def resume(self, environment: RankEnvironment, step: int) -> None:  # noqa: ARG002
        self._environment = environment

    def request_checkpoint(self) -> None: ...

    def save_finishing(self, manifest: Manifest, terminated: bool) -> str:  # noqa: ARG002
        return ""

    def save_after_loop(self, manifest: Manifest) -> None: ...

    def close(self) -> None:
        self._rank_sync.close()


def _origin(manifest: Manifest | None) -> tuple[int, int, int]:
    """Step, attempt and job of a checkpoint; those of none where there is none."""
    one = manifest or Manifest(step=0)
    return one.step, one.attempt, one.job


def rank_role(environment: RankEnvironment, state: ScriptState) -> RankRole:
    """The side of this process's rank."""
    return RankZero(environment, state) if environment.rank == 0 else OtherRank(environment, state)
