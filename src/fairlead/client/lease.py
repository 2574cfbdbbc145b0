"""The lease of a training process: how many steps, until when, and what to do when it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from fairlead.client import crash, stacks
from fairlead.client.arguments import folder, function, seconds
from fairlead.client.checkpoint import Manifest
from fairlead.client.job_size import JobSize
from fairlead.client.loop_state import Ending, LoopState
from fairlead.client.open_loop import OPEN_LOOP
from fairlead.client.parking import Parking, ParkingHooks
from fairlead.client.poll_schedule import PollSchedule
from fairlead.client.quick_exit import end_at_once, leave_stopped
from fairlead.client.rank_environment import (
    EXIT_MAY_NOT_RUN,
    EXIT_RANK_SYNC,
    RankEnvironment,
    leave,
    print_to_log,
    read_rank_environment,
)
from fairlead.client.rank_sync import RankStatus
from fairlead.client.rank_zero import RankRole, rank_role
from fairlead.client.script_state import Position, ScriptState
from fairlead.client.sigterm import SigtermCatcher
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from typing import Self


class Lease:
    """For training loops without a loader (``Iterator`` is for those with one)::

        with Lease(load=load, save=save, total_steps=1000) as lease:
            while lease.next():
                train()

    ``save(path)`` writes the script's state to a file or a folder at ``path``; ``load(path)`` reads it. They
    are called at the right moments: ``load`` when the block is entered and there is a checkpoint, ``save``
    from within ``next``. Under the scheduler ``FAIRLEAD_*`` variables say where and how long; without it the
    script runs to its end and saves every ``checkpoint_s`` seconds if it has a ``checkpoint_dir``.

    A step counts when ``next`` is called again after it. When the scheduler takes the devices away (or on
    SIGTERM) the state is saved and the process exits with 0; with ``on_stop="return"`` the loop ends instead
    and ``preempted`` is true. Several ranks stop and save on the same step; rank 0 saves, or with
    ``save_ranks="all"`` every rank has its own part.

    The job is complete when all its processes have ended with 0 after ``finished`` has become true. What a
    script does after the loop (a last evaluation, an upload) is done at least once: a job that is stopped
    there is started again at its last step, and comes there again. ``checkpoint`` keeps its work there.

    A process that is preempted need not end: where the scheduler says so it is *parked* on its node, once its
    state is saved: it stands still, and ``next`` returns when the job has devices there again. One that is of
    no use any more is killed as it stands. on_park, on_resume: called before it
    gives its devices back and after it has others; ``on_park`` takes to the host's memory what the script has
    in the memory of its devices. A process that has an accelerator open and no ``on_park`` is never parked.

    exit: how a process ends that the scheduler stops. "quick": after ``finally`` blocks, threads and
    functions of ``atexit`` it leaves without tearing the interpreter down; "clean": as Python does.
    total_steps: of the whole job, all starts together; None = until ``complete`` is called.
    batch_size: samples per step, told to the scheduler when ``adapt`` changes it; 0 = not known.
    """

    def __init__(
        self,
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        total_steps: int | None = None,
        batch_size: int = 0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_s: float = 600.0,
        on_stop: Literal["exit", "return"] = "exit",
        save_ranks: Literal["zero", "all"] = "zero",
        exit: Literal["quick", "clean"] = "quick",
        on_park: Callable[[], None] | None = None,
        on_resume: Callable[[], None] | None = None,
    ) -> None:
        for name, value, known in (
            ("on_stop", on_stop, ("exit", "return")),
            ("save_ranks", save_ranks, ("zero", "all")),
            ("exit", exit, ("quick", "clean")),
        ):
            if value not in known:
                raise ConfigError(f"{name}: expected {known[0]!r} or {known[1]!r}, got {value!r}")
        function("load", load)
        function("save", save)
        for name, hook in (("on_park", on_park), ("on_resume", on_resume)):
            if hook is not None:
                function(name, hook)
        self.step = 0
        self.job_size = JobSize(total_steps, batch_size)
        self.position: Callable[[], Position] = Position  # asked whenever a checkpoint is saved
        self._state = ScriptState(
            load=load,
            save=save,
            directory=folder("checkpoint_dir", checkpoint_dir),
            checkpoint_s=seconds("checkpoint_s", checkpoint_s),
            sharded=save_ranks == "all",
        )
        self._on_stop = exit if on_stop == "exit" else on_stop
        self._environment = RankEnvironment()
        self._role: RankRole | None = None  # in the loop
        self._finishing_role: RankRole | None = None  # the same, once the loop has come to its end
        self._count_step: Callable[[int], None] = _count_nowhere
        self._sigterm = SigtermCatcher(self._on_sigterm)
        self._schedule = PollSchedule()
        self._loop = LoopState()
        self._parking = Parking(ParkingHooks(on_park, on_resume))
        self._ending: Ending | None = None
        self._is_entered = False

    @property
    def total_steps(self) -> int | None:
        """Total steps of the job over all its attempts; None = until ``complete`` is called."""
        return self.job_size.total_steps

    @property
    def batch_size(self) -> int:
        """Samples per step; 0 = not known."""
        return self.job_size.batch_size

    @property
    def loaded(self) -> Position:
        """The position that was saved with the checkpoint of this start."""
        return self._state.loaded

    def states_of_ranks(self) -> list[bytes]:
        """Return what each rank that saved the checkpoint of this start kept, the present ones or not."""
        return self._state.states_of_ranks(self._environment)

    @property
    def completed(self) -> bool:
        """The loop is over, and all steps are done."""
        return self._ending is not None and self._ending.completed

    @property
    def preempted(self) -> bool:
        """The loop, or the code behind it, was stopped before the job was complete."""
        return self._ending is not None and not self._ending.completed

    @property
    def reason(self) -> str:
        """Return why it was preempted."""
        return self._ending.reason if self._ending is not None else ""

    @property
    def rank(self) -> int:
        """Rank of this process, below ``world_size``."""
        return self._environment.rank if self._role else read_rank_environment(os.environ).rank

    @property
    def world_size(self) -> int:
        """Processes of the job."""
        environment = self._environment if self._role else read_rank_environment(os.environ)
        return environment.world_size

    def __enter__(self) -> Self:
        """Get the lease and load the newest checkpoint. Raises ConfigError where that was done before: a
        process loads once."""
        if self._is_entered:
            where = f"the lease was left at step {self.step}, and is entered once"
            raise ConfigError(f"{where}: an outer loop has to be within its with block")
        environment = read_rank_environment(os.environ)
        directory = environment.checkpoint_dir or self._state.directory
        OPEN_LOOP.opened(self, environment.socket, directory)
        self._is_entered, self._environment = True, environment
        crash.install(lambda: self.step)
        stacks.register()
        if self._on_stop != "return":
            self._parking.open()
        self._role = rank_role(environment, self._state)
        self._count_step = self._role.count
        self._sigterm.catch()
        try:
            self._resume(self._role)
            self._sigterm.may_wait = True
        except BaseException:
            self._is_entered = False
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Let go. A loop that was left early, without an exception, ends well here after ``complete``, and
        under the scheduler in any case: the script does no more steps."""
        well = kind is None or (isinstance(error, SystemExit) and not error.code)
        by_itself = well and self._loop.running and bool(self._environment.socket)
        completes = self._loop.no_more and (well or kind is GeneratorExit)
        try:
            if self._role and (completes or by_itself):
                self.leave_loop()
            elif self._role and kind is not None and issubclass(kind, Exception):
                self._role.leave(self.step, kind.__name__)  # a script may catch it, and exit with 0
        finally:
            self._release()

    def leave_loop(self) -> None:
        """The step under way was the last one, for all ranks: the script does no more."""
        self.count_left_step()
        self._loop.at_end = True
        self._check_in()

    def complete_left(self) -> None:
        """The script has left its loop after ``complete``, in a generator: the interpreter would pass over an
        exception. Where the other ranks have left theirs without it, this one has left its, too."""
        try:
            self.leave_loop()
        except SystemExit as end:
            if end.code != EXIT_RANK_SYNC:
                end_at_once(int(end.code or 0))
            print_to_log(
                f"warning: complete() was called by rank {self._environment.rank} alone; it has left its "
                "loop by itself, as the others have"
            )
            self._loop.no_more = self._loop.at_end = False
        else:
            self._release()

    def let_go(self) -> None:
        """Another lease is entered in this process: this one was left."""
        self._release()

    def ends_with_process(self) -> None:
        """The process ends, and the script has left its loop: the job is done, if its exit code says so, too.
        Nothing is saved, for what the script has may be gone."""
        if self._role is None:
            return
        self.count_left_step()
        if self._loop.begun or self.step >= self.job_size.last_step:
            if self._environment.world_size > 1:  # the others cannot be asked: they may have ended
                crash.report_left(self.step)
            self._role.leave(self.step, "")
        self._release()

    def next(self) -> bool:
        """Count the step that has just been done. Returns whether another one is to be done."""
        if self._loop.running:
            self.step += 1
            self._count_step(self.step)
        schedule = self._schedule
        if self.step < schedule.step and monotonic() < schedule.time:
            self._loop.running = True
            return True
        if self._role is None:
            if self._ending is None:
                raise ConfigError("next: the lease is used outside its with block")
            return False
        self._loop.running = self._check_in()
        return self._loop.running

    @property
    def in_step(self) -> bool:
        """A step is under way."""
        return self._loop.running

    @property
    def is_completing(self) -> bool:
        """``complete`` was called, and the loop is not over yet."""
        return self._loop.no_more and self._role is not None

    def pass_ends(self) -> None:
        """With the step under way a pass over the data ends, behind which another one comes. The code after
        it belongs to it: nothing is saved or stopped before the next pass begins."""
        self._schedule.pass_ends = True

    def count_left_step(self) -> None:
        """The script has left its loop in this step, if one is under way: it is done."""
        if self._loop.running:
            self.step += 1
            self._count_step(self.step)
        self._loop.running = False

    def no_step(self) -> None:
        """The step that ``next`` has begun is none: there was no batch for it."""
        self._loop.running = self._schedule.pass_ends = False

    def save_after_loop(self) -> None:
        """Save after the loop, where a process that is started again is to go on from here. Nothing happens
        where each rank has its own part, which only the loop can save."""
        if self._finishing_role is not None and not self._has_parts():
            self._finishing_role.save_after_loop(self._manifest(finished=True))

    def reload(self) -> None:
        """Read the checkpoint of this start once more, if there was one."""
        step = self._state.read_again(self._environment)
        if step is not None:
            self.step = step

    def complete(self) -> None:
        """No more steps are needed after the one under way. With several ranks the loop ends at the next
        step on which they agree, within about half a second."""
        self._loop.no_more = True
        self._schedule.poll_at_once()

    @property
    def finished(self) -> bool:
        """The loop is over, and all steps are done: what is left is the code behind it. Also true, without
        a step, in a process that was started again for that code alone; false where it was preempted."""
        return self.completed

    def checkpoint(self) -> bool:
        """Save. In the loop: at the next step. Behind it: now, so that the work done there is kept; rank 0
        saves, for other ranks nothing happens.

        Returns whether the script may go on. After the loop a process that is to stop exits with 0 once it
        has saved, and is started again later; with ``on_stop="return"`` False is returned instead.
        """
        if self._role is not None:
            self._role.request_checkpoint()
            self._schedule.poll_at_once()
            return True
        if self._finishing_role is None:
            return not self.preempted
        if self._has_parts():
            raise ConfigError(
                "checkpoint: after the loop rank 0 saves alone, which save_ranks='all' does not allow"
            )
        manifest = self._manifest(finished=True)
        reason = self._finishing_role.save_finishing(manifest, self._sigterm.is_received)
        if not reason:
            return True
        self._finishing_role = None
        self._ending = Ending(False, reason)
        if self._on_stop != "return":
            leave_stopped(quick=self._on_stop == "quick" and bool(self._environment.socket))
        return False

    def adapt(self, batch_size: int, total_steps: int) -> None:
        """Another batch size from the next step on, so that the whole job has other steps.

        total_steps: of the whole job, those done included. All ranks have to call this on the same step.
        """
        self.job_size.adapt(batch_size, total_steps, self.step + self._loop.running)
        self._schedule.poll_at_next_step()

    def end_of_data(self) -> None:
        """The data have ended, for this rank at this step. Returns when those of all ranks have."""
        self._loop.at_end = True
        self._loop.running = False
        if self._role is not None:
            self._check_in()

    def catch_sigterm(self) -> None:
        """Be the handler of SIGTERM again, after a framework has put its own there."""
        if self._role is not None:
            self._sigterm.catch_again()

    def _check_in(self) -> bool:
        """Do what is due, which is seldom: report, save, or stop. Return whether the loop goes on. A rank at
        its end waits here until all have come to theirs, and takes part in what they do meanwhile."""
        while self._do_what_is_due():
            if not self._is_at_end:
                return True
        return False

    @property
    def _is_at_end(self) -> bool:
        return self._loop.at_end or self.step >= self.job_size.last_step

    def _do_what_is_due(self) -> bool:
        """Ask rank 0 what to do, and do it. Return whether the loop goes on, as far as that decides."""
        role = self._role
        assert role is not None
        self._loop.begun = True
        changed = self.job_size.change()
        if changed is not None:
            role.change(self.step, *changed)
        last = self.job_size.last_step
        finished = self._is_at_end
        several = self._environment.world_size > 1
        if several and not finished and self._schedule.waits_for_ranks(self.step, last):
            return True
        decision = role.decide(self._rank_status(finished))
        if decision.do == "abandon":
            self._release()
            leave(EXIT_MAY_NOT_RUN, f"this process may not run any more: {decision.reason}")
        # First the devices: the next job does not wait until this one is saved.
        parks = decision.do == "stop" and decision.park and self._parking.release()
        if decision.partial:
            role.save(decision.partial, self._manifest(decision.do == "finish"))
        if parks:
            self._park(role, decision.reason)
            return True
        if decision.do == "finish" and decision.uneven:
            crash.report_left(self.step)
        if decision.do in ("stop", "finish"):
            return self._end(role, Ending(decision.do == "finish", decision.reason))
        self._schedule.plan(*role.proceed(decision, self.step), last)
        if self._sigterm.is_received and not several:
            self._schedule.poll_at_once()
        return True

    def _park(self, role: RankRole, reason: str) -> None:
        """Wait for other devices, and go on there. Ends the process where there are none."""
        role.park(self.step, reason)
        self._sigterm.release()
        if not self._parking.wait():
            os._exit(0)  # the job may run elsewhere: nothing of the script is to run here any more
        began = monotonic()
        self._environment = read_rank_environment(os.environ)
        crash.install(lambda: self.step)
        stacks.register()
        self._sigterm.catch()
        self._sigterm.may_wait = True
        role.resume(self._environment, self.step)
        self._parking.resume()
        role.loaded(self.step, monotonic() - began, None)
        self._schedule.plan(0.0, self.step + 1, self.job_size.last_step)

    def _end(self, role: RankRole, ending: Ending) -> bool:
        role.end(self.step, ending.completed, ending.reason)
        self._ending = ending
        self._release()
        self._finishing_role = role if ending.completed else None
        if not ending.completed and self._on_stop != "return":
            leave_stopped(quick=self._on_stop == "quick" and bool(self._environment.socket))
        return False

    def _rank_status(self, finished: bool) -> RankStatus:
        return RankStatus(
            step=self.step,
            batch_size=self.job_size.batch_size,
            total_steps=self.job_size.total_steps or 0,
            finished=finished,
            complete=self._loop.no_more,
            terminated=self._sigterm.is_received,
            pass_ends=self._schedule.pass_ends,
        )

    def _manifest(self, finished: bool = False) -> Manifest:
        epoch, position, state, _ = self.position()
        return Manifest(
            step=self.step,
            loader_epoch=epoch,
            position=position,
            loader_state=state,
            batch_size=self.job_size.batch_size,
            total_steps=self.job_size.total_steps or 0,
            adapted=self.job_size.is_adapted,
            world_size=self._environment.world_size,
            attempt=self._environment.attempt,
            job=self._environment.job if self._environment.socket else -1,
            finished=finished,
        )

    def _resume(self, role: RankRole) -> None:
        found = role.open()
        opened = monotonic()
        if found is not None:
            self._state.read(found, self._environment)
            self.step = found.manifest.step
        own_total = self.job_size.total_steps
        change = self.job_size.settle(self._environment, found.manifest if found else None)
        self.warn_of_total(own_total)
        if found is not None and found.manifest.finished:  # of this total, not of one raised since
            self._loop.no_more = found.manifest.total_steps == (self.job_size.total_steps or 0)
        role.loaded(self.step, monotonic() - opened if found else 0.0, change)

    def warn_of_total(self, own_total: int | None) -> None:
        """Print a warning to the job's log if it was submitted with another number of steps than its script
        has. own_total: the script's; None = it has none."""
        if self._environment.rank == 0:
            self.job_size.warn_of_total(own_total)

    def _has_parts(self) -> bool:
        """Return whether each rank saves its own part."""
        return self._state.sharded and self._environment.world_size > 1

    def _on_sigterm(self) -> None:
        if not self._sigterm.may_wait and self._environment.socket:
            leave(EXIT_MAY_NOT_RUN, "told to stop before the first step: there is nothing to save")
        if self._environment.world_size == 1:
            self._schedule.poll_at_once()

    def _release(self) -> None:
        OPEN_LOOP.closed(self, completed=self.completed)
        if self._role is not None:
            self._role.close()
            self._role = None
        self._sigterm.release()
        self._schedule.end_of_loop()


def _count_nowhere(step: int) -> None:
    """Before there is a role."""
