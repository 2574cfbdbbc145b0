"""The process that owns all ranks of a node: it starts, ends and reaps them.

Single-threaded and small, started before anything else of the agent, so that it can always fork. When
the agent dies it ends all ranks; when it dies itself, the next one does (``survivors``), or its ``warden``
where nobody starts a next one. Its rule for what belongs to an attempt: the ranks' process groups and
sessions, whoever carries the token of the attempt in the environment, and every orphan that no running
attempt can claim.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec

from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.device_claim import SpawnerStorage
from fairlead.cluster.agent.device_holders import DeviceHolders
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.job_folders import open_files
from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.orphans import reap_orphans
from fairlead.cluster.agent.parked_attempts import ParkedAttempts
from fairlead.cluster.agent.prepared_processes import PreparedProcesses
from fairlead.cluster.agent.running_attempts import (
    EXPIRY_SLACK_S,
    Key,
    NotStartedError,
    SpawnedAttempt,
)
from fairlead.cluster.agent.spawner_messages import (
    AgentSocket,
    EndAttempt,
    EndParked,
    Failed,
    Gone,
    Inspect,
    Launch,
    Ping,
    Pong,
    Prepare,
    Suspend,
    Until,
    Waits,
)
from fairlead.cluster.agent.spawner_signals import watch_signals
from fairlead.cluster.agent.spawner_takeover import take_over
from fairlead.cluster.agent.survivors import remove_record
from fairlead.cluster.agent.warden import WARDEN_SLACK_S, AttemptEnded, WardenLink
from fairlead.cluster.agent.zygote import PLACEHOLDER, Forked, Zygote
from fairlead.cluster.shortage import check_descriptors

_RETRY_S = 0.05  # between looks at lock files that somebody holds whom we do not know
_DISK_RETRY_S = 1.0  # between tries when the disk is full
_WARDEN_MARGIN_S = WARDEN_SLACK_S - 0.1  # behind it the warden may have ended the attempt
_NOT_PARKED = "what was parked of the job on this node has ended"
_KILL_TIMEOUT_S = 10.0  # a process that does not die of SIGKILL is inside the kernel


class Spawner:
    """``run`` until the agent has gone and nothing is left."""

    def __init__(
        self,
        state: Path,
        agent: AgentSocket,
        prefork: str,
        record: AgentFiles,
        devices: NodeDevices,
        adopts: int = 0,
    ) -> None:
        """record: of the agent's run on this machine; devices: of the node; adopts: pid of the agent, where
        it adopts what a spawner leaves behind."""
        self._adopts = adopts
        self._state = state
        self._record = record
        self._storage = SpawnerStorage(
            state,
            (state / "starts", record.attempt_records),
            DeviceLocks(
                lambda d: record.device_lock(devices.indices[d], devices.simulated_devices)
            ),
        )
        self._agent = agent
        self._attempts: dict[Key, SpawnedAttempt] = {}
        self._prepared = PreparedProcesses(prefork)
        self._selector = selectors.DefaultSelector()
        self._warden = WardenLink(state, record)
        self._holders = DeviceHolders(self._storage, record, self._fail_running)
        self._parked = ParkedAttempts(
            self._storage,
            selector=self._selector,
            agent=agent,
            warden=self._warden,
            running=self._attempts,
            freed=self._retry,
        )
        self._leaving = False
        self._early_exits: dict[int, int] = {}  # pid -> status, of forked ranks not known yet

    def run(self) -> None:
        """Take the place of the last spawner, then serve."""
        for name in ("locks", "starts"):
            (self._state / name).mkdir(exist_ok=True)
        wakeup = watch_signals(self._selector, self._leave)
        self._keep_warden()
        status, ready = take_over(self._state, self._record, self._storage, self._adopts)
        self._agent.send(ready)
        self._selector.register(self._agent.socket, selectors.EVENT_READ, self._handle_agent)
        if (peer := self._prepared.start_named()) is not None and self._prepared.named is not None:
            self._listen_to(self._prepared.named, peer)
        while not self._leaving or self._attempts or self._parked:
            events = self._selector.select(self._timeout_s())
            self._reap()  # first: what ended in time has not been ended by its lease
            # Before the agent is heard: where this process stood still, the warden has ended what had no
            # lease as far as the two knew, whatever the agent has said since.
            self._expire_leases(_WARDEN_MARGIN_S, time.monotonic())
            for key, _ in events:
                key.data()
            self._reap()
            self._clear()
            self._keep_warden()
            self._launch_waiting()
            self._kill_late()
        for zygote in self._prepared.all():
            zygote.stop()
        self._warden.dismiss()
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for one in wakeup:
            one.close()
        locks.release(status)

    def _timeout_s(self) -> float | None:
        """Seconds until something is due."""
        due = [*self._parked.due(), *filter(None, [self._warden.due_s])]
        for attempt in self._attempts.values():
            due.extend(attempt.due())
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _handle_agent(self) -> None:
        messages = self._agent.receive()
        if messages is None:
            self._leave()
            return
        for message in messages:
            match message:
                case Launch() as launch:
                    if (launch.job, launch.attempt) not in self._attempts:
                        self._attempts[launch.job, launch.attempt] = SpawnedAttempt(launch)
                case EndAttempt() as end:
                    self._end(end)
                case Suspend() as order:
                    if not self._parked.suspend(order):
                        self._end(order.to_end)
                case EndParked() as end:
                    self._parked.end(end)
                case Prepare(modules=modules):
                    self._prepare(modules)
                case Inspect(job=job, attempt=number):
                    if (attempt := self._attempts.get((job, number))) is not None:
                        self._agent.send(attempt.inspect())
                case Ping():
                    self._agent.send(Pong())
                case Until() as until:
                    if (attempt := self._attempts.get((until.job, until.attempt))) is not None:
                        attempt.ending.until_s = until.until_s
                        self._watch(attempt)

    @property
    def _begun(self) -> list[SpawnedAttempt]:
        """The attempts that hold their devices."""
        return [s for s in self._attempts.values() if s.claim.locks is not None]

    def _keep_warden(self) -> None:
        self._warden.keep(s.watched(self._storage) for s in (*self._begun, *self._parked))

    def _watch(self, attempt: SpawnedAttempt) -> None:
        """Tell the warden how it is now, if it has begun."""
        if attempt.claim.locks is not None:
            self._warden.send(attempt.watched(self._storage))

    def _leave(self) -> None:
        """The agent has gone: end everything."""
        if self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._agent.socket)
        for attempt in list(self._attempts.values()):
            self._end(attempt.order_to_end(attempt.launch.grace_s))
        self._parked.end_all()

    def _end(self, end: EndAttempt) -> None:
        attempt = self._attempts.get((end.job, end.attempt))
        if attempt is None:  # never heard of, or gone already
            self._agent.send(Gone(job=end.job, attempt=end.attempt, at_s=time.monotonic()))
            return
        if attempt.claim.locks is None:
            self._reap_attempt(attempt)
            return
        attempt.ending.terminated |= end.terminate
        attempt.processes.begin_to_end(end.terminate, end.spares_finished)
        attempt.ending.kill_by(time.monotonic() + end.kill_after_s)
        self._watch(attempt)

    def _kill_late(self) -> None:
        now = time.monotonic()
        self._expire_leases(EXPIRY_SLACK_S, now)
        for attempt in self._attempts.values():
            attempt.processes.terminate_rest()
            if attempt.ending.must_kill(now) and attempt.processes.leaders:
                attempt.kill()
                attempt.ending.kill_s = now + 1.0  # once more: a group may have grown meanwhile
        self._parked.kill_late(now)

    def _expire_leases(self, slack_s: float, now: float) -> None:
        """End attempts whose lease has been over for this long."""
        for attempt in list(self._attempts.values()):
            until_s = attempt.ending.until_s
            if until_s is not None and until_s + slack_s <= now:
                self._expire(attempt, until_s, now)

    def _expire(self, attempt: SpawnedAttempt, until_s: float, now: float) -> None:
        """The lease is over, and the agent, which should have seen to that, does not stir. The grace counts
        from the end of the lease: the server reckons with it."""
        attempt.ending.until_s, attempt.ending.expired = None, True
        end = attempt.order_to_end(max(0.0, until_s + attempt.launch.grace_s - now))
        # One that is ending already is not told twice: scripts take a second SIGTERM for haste.
        self._end(msgspec.structs.replace(end, terminate=attempt.ending.kill_s is None))

    def _launch_waiting(self) -> None:
        for attempt in [s for s in self._attempts.values() if s.claim.locks is None]:
            now = time.monotonic()
            if now < attempt.claim.retry_s:
                continue
            attempt.claim.retry_s = now + _RETRY_S
            if not self._may_begin(attempt):
                self._send_waits(attempt, attempt.claim.blocked(now), obstacle=False)
                continue
            try:
                self._launch(attempt)
            except OSError as problem:  # a full disk: the job is not to blame
                attempt.claim.unlock_devices(self._storage)
                attempt.claim.retry_s = now + _DISK_RETRY_S
                where = f"{problem.filename}: " if problem.filename else ""
                self._send_waits(attempt, f"{where}{problem.strerror or problem}")

    def _send_waits(self, attempt: SpawnedAttempt, reason: str, *, obstacle: bool = True) -> None:
        if reason in ("", attempt.claim.waits_for):  # once: it is tried again many times a second
            return
        attempt.claim.waits_for = reason
        job, number = attempt.key
        self._agent.send(Waits(job=job, attempt=number, reason=reason, obstacle=obstacle))

    def _may_begin(self, attempt: SpawnedAttempt) -> bool:
        """Return whether nobody holds its devices but processes with which it may share them."""
        free = all(attempt.may_share_devices(s) for s in self._begun if s is not attempt)
        return free and self._parked.allows(attempt)

    def _launch(self, attempt: SpawnedAttempt) -> None:
        """Raises OSError, before the first rank is started, where nothing can be written."""
        if why := self._parked.take(attempt):
            self._find_holders(attempt, why)
            return
        attempt.make_group()
        attempt.record(self._storage)
        self._watch(attempt)
        logs: list[int] = []
        try:
            user = attempt.launch.user
            logs.extend(open_files(rank.log, rank.stacks, user) for rank in attempt.launch.ranks)
            check_descriptors(len(logs) + 1)  # a pipe for each, the end of one for the rank itself
            self._start_ranks(attempt, logs)
        finally:
            locks.release(logs)
        attempt.note_end()

    def _find_holders(self, attempt: SpawnedAttempt, why: str) -> None:
        """Its devices are not free. why: as far as is known."""
        text, obstacle = self._holders.search(attempt, why, self._begun, self._helper_pids)
        self._send_waits(attempt, text, obstacle=obstacle)

    @property
    def _helper_pids(self) -> set[int]:
        """Pids of children that are no ranks."""
        return {self._warden.pid, *(zygote.pid for zygote in self._prepared.all())}

    def _start_ranks(self, attempt: SpawnedAttempt, logs: list[int]) -> None:
        if attempt.launch.resumes:
            if self._parked.resume(attempt, logs):
                self._send_started(attempt, resumed=True)
                return
            if not attempt.launch.alone:
                self._fail(attempt, attempt.launch.ranks[0].rank, _NOT_PARKED)
                return
        attempt.processes.zygote = self._prepared.of(attempt.launch)
        for rank, log in zip(attempt.launch.ranks, logs, strict=True):
            try:
                attempt.start(rank, log, self._storage)
            except NotStartedError as problem:
                self._fail(attempt, rank.rank, str(problem))
                return
        for number, pending_exec in attempt.processes.pending_exec.items():
            handle = partial(self._handle_pending_exec, attempt, number)
            self._selector.register(pending_exec.pipe, selectors.EVENT_READ, handle)
        attempt.record(self._storage)
        self._watch(attempt)
        self._parked.listen(attempt)
        self._send_started(attempt)
        self._prepare(attempt.launch.modules)  # for the next one

    def _handle_pending_exec(self, attempt: SpawnedAttempt, rank: int) -> None:
        """A rank has come to its program, or cannot."""
        pending_exec = attempt.processes.pending_exec.get(rank)
        why = None if pending_exec is None else pending_exec.read()
        if pending_exec is None or (why is None and time.monotonic() < pending_exec.until_s):
            return
        self._selector.unregister(pending_exec.pipe)
        pending_exec.close()
        del attempt.processes.pending_exec[rank]
        if why == "":
            self._send_started(attempt)
            return
        attempt.processes.unstarted.add(rank)
        self._fail(attempt, rank, f"rank {rank}: {pending_exec.hangs if why is None else why}")

    def _fail(
        self, attempt: SpawnedAttempt, rank: int, reason: str, *, began: bool = False
    ) -> None:
        job, number = attempt.key
        self._agent.send(Failed(job=job, attempt=number, rank=rank, reason=reason, began=began))
        self._end(attempt.order_to_end(0.0))

    def _fail_running(self, attempt: SpawnedAttempt, why: str) -> None:
        self._fail(attempt, attempt.launch.ranks[0].rank, why, began=True)

    def _send_started(self, attempt: SpawnedAttempt, *, resumed: bool = False) -> None:
        if attempt.processes.have_begun and attempt.ending.kill_s is None:
            self._agent.send(attempt.started(resumed=resumed))

    def _prepare(self, modules: str) -> None:
        """Make a process with these modules, unless there is one; the least recently used one goes for it."""
        if self._leaving or not self._prepared.wants(modules):
            return
        forking = [s.processes for s in self._attempts.values() if s.processes.forking]
        busy = {one.zygote for one in forking if one.zygote is not None}
        if (old := self._prepared.evictable(busy)) is not None:
            self._drop_zygote(old, evicted=True)
        if self._prepared.full:
            return
        with contextlib.suppress(OSError):  # no room for it now: ranks are exec'd
            zygote, peer = self._prepared.start(modules)
            self._listen_to(zygote, peer)

    def _listen_to(self, zygote: Zygote, peer: socket.socket) -> None:
        self._selector.register(peer, selectors.EVENT_READ, partial(self._handle_zygote, zygote))

    def _handle_zygote(self, zygote: Zygote) -> None:
        answers = zygote.answers()
        self._take_answers(answers or ())
        if answers is None:
            self._drop_zygote(zygote)

    def _take_answers(self, answers: Iterable[Forked]) -> None:
        for forked in answers:
            attempt = self._attempts.get((forked.job, forked.attempt))
            if attempt is None or attempt.processes.forking.pop(forked.rank, None) is None:
                continue
            attempt.set_pid(forked.rank, forked.pid)
            attempt.record(self._storage)
            self._watch(attempt)
            self._send_started(attempt)
            if forked.pid in self._early_exits:
                self._reaped(attempt, forked.pid, self._early_exits.pop(forked.pid))

    def _drop_zygote(self, zygote: Zygote, *, evicted: bool = False) -> None:
        """From now on ranks are exec'd. Attempts of which it has begun none are launched anew."""
        if zygote.peer is not None:
            self._selector.unregister(zygote.peer)
            zygote.hang_up()
            self._take_answers(zygote.answers() or ())
        self._prepared.drop(zygote, evicted=evicted)
        for attempt in [s for s in self._attempts.values() if s.processes.zygote is zygote]:
            if attempt.can_begin_again:
                self._parked.hang_up(attempt)
                attempt.begin_again(self._storage)
                continue
            for rank in attempt.processes.give_up_forks():
                self._fail(attempt, rank, f"rank {rank}: the prepared process (--prefork) ended")
            over = attempt.claim.locks is not None and not attempt.processes.leaders
            if over and attempt.ending.dead_s is None:
                attempt.ending.dead_s = time.monotonic()

    def _reap(self) -> None:
        """Wait for all that have ended. A leader's pid is not given away before its group is dead."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                ended = None
            if ended is None:
                return
            pid = ended.si_pid
            every = (*self._attempts.values(), *self._parked)
            attempt = next((s for s in every if pid in s.processes.leaders), None)
            if attempt is not None:
                proc.kill_group(pid, signal.SIGKILL)
            if (zygote := self._prepared.with_pid(pid)) is not None:
                self._drop_zygote(zygote)
                continue
            if pid == self._warden.pid:
                self._warden.reap()
                continue
            _, status = os.waitpid(pid, 0)
            if attempt is not None and attempt.key not in self._attempts:
                self._parked.reaped(attempt, pid)
            elif attempt is not None:
                self._reaped(attempt, pid, os.waitstatus_to_exitcode(status))
            elif any(s.processes.forking for s in self._attempts.values()):
                self._early_exits[pid] = os.waitstatus_to_exitcode(status)

    def _reaped(self, attempt: SpawnedAttempt, pid: int, code: int) -> None:
        rank = attempt.processes.end(pid, code)
        self._handle_pending_exec(attempt, rank)  # first: it may say why
        at_s = self._warden.exit_s(attempt.processes.key_of(pid))
        if rank not in attempt.processes.unstarted:
            self._agent.send(attempt.exited(pid, rank, code, at_s, leaving=self._leaving))
        attempt.ending.gone_s = max(attempt.ending.gone_s, at_s)
        self._parked.hang_up(attempt)  # the others cannot be parked without it
        attempt.note_end()

    def _clear(self) -> None:
        """Kill what starts have left behind, and free their devices."""
        if not any(s.processes.forking for s in self._attempts.values()):
            self._early_exits.clear()
        for attempt in list(self._attempts.values()):
            for rank in list(attempt.processes.pending_exec):
                self._handle_pending_exec(attempt, rank)
        late = next((s.processes for s in self._attempts.values() if s.processes.are_late), None)
        if late is not None and late.zygote is not None:
            self._drop_zygote(late.zygote)
        ended = [s for s in self._attempts.values() if s.ending.dead_s is not None]
        strays = self._reap_orphans() if ended else []
        now = time.monotonic()
        for attempt in ended:
            if attempt.kill_left() or any(map(attempt.may_be_of, strays)):
                attempt.ending.gone_s = now
                if now - (attempt.ending.dead_s or 0.0) <= _KILL_TIMEOUT_S:
                    continue
            self._reap_attempt(attempt)

    def _reap_orphans(self) -> list[int]:
        """Kill what belongs to no attempt. Returns the pids."""
        living = [*(s for s in self._begun if s.ending.dead_s is None), *self._parked]
        tokens = {PLACEHOLDER} if self._prepared.used else set()
        return reap_orphans(living, self._helper_pids, tokens)

    def _retry(self) -> None:
        """Devices are free: whoever waits for some tries again at once."""
        for other in self._attempts.values():
            other.claim.retry_s = 0.0

    def _reap_attempt(self, attempt: SpawnedAttempt) -> None:
        job, number = attempt.key
        del self._attempts[attempt.key]
        if attempt.claim.locks is not None:
            locks.forget_job(self._state / "locks", job)
            attempt.claim.unlock_devices(self._storage)
        attempt.remove_group()
        for folder in self._storage.attempt_records:
            remove_record(folder, job, number)
        self._warden.send(AttemptEnded(job=job, attempt=number))
        self._parked.hang_up(attempt)
        self._retry()
        gone_s = attempt.ending.gone_s or time.monotonic()
        self._agent.send(Gone(job=job, attempt=number, at_s=gone_s))


def main() -> None:
    """``python -m fairlead.cluster.agent.spawner DESCRIPTOR STATE MODULES RECORD DEVICES ADOPTS``."""
    descriptor, state, prefork, record, devices, adopts = sys.argv[1:7]
    proc.become_subreaper()
    with socket.socket(fileno=int(descriptor)) as agent:
        found = msgspec.json.decode(devices, type=NodeDevices)
        Spawner(
            Path(state), AgentSocket(agent), prefork, AgentFiles(Path(record)), found, int(adopts)
        ).run()


if __name__ == "__main__":
    main()
