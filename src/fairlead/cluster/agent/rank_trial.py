"""A rank that an agent starts to find out whether ranks can be started here: as a job's, by the spawner, with
the client library. It connects to the agent, gets a lease, does one step, saves, and says that it is done."""

import asyncio
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from fairlead.cluster.agent.addresses import assign_addresses
from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempt_launcher import AttemptLauncher
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.launch import TRIAL_JOB, logs_path, reports_path
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.order_follower import NodeIdentity
from fairlead.cluster.agent.survivors import make_token
from fairlead.cluster.protocol.messages import Assignment, Rank, StartCheck
from fairlead.errors import ConfigError

LIMIT_S = 90.0  # from the order to the end of the rank; the client waits 30 s for its agent
_REMOVE_S = 5.0  # for what it has left behind to be removed
_POLL_S = 0.02
_PROGRAM = """
from fairlead.client.lease import Lease

with Lease(load=lambda _: None, save=lambda path: path.write_text("well"), total_steps=1) as lease:
    while lease.next():
        pass
"""


class RankTrial:
    """One at a time. ``identity`` is to be set before the first."""

    def __init__(
        self,
        state: Path,
        attempts: NodeAttempts,
        launcher: AttemptLauncher,
        ending: AttemptEnding,
    ) -> None:
        """state: of the agent."""
        self.identity: NodeIdentity | None = None
        self._state = state
        self._attempts = attempts
        self._launcher = launcher
        self._ending = ending

    async def problem(self, check: StartCheck) -> str:
        """Return why a rank cannot run here, "" = it has."""
        above = check.checkpoints or self._state / "trials"
        folder = Path(above, f".trial-{self._state.name}-{check.number}")
        try:
            attempt = self._attempts.trial = self._start(check, folder)
        except ConfigError as problem:
            return f"a test rank cannot be started: {problem}"
        try:
            return await self._outcome(attempt)
        finally:
            self._attempts.trial = None
            await self._clean(folder)

    def _start(self, check: StartCheck, folder: Path) -> NodeAttempt:
        """Raises ConfigError where no port is free."""
        assert self.identity is not None
        now = time.monotonic()
        assignment = Assignment(
            job=TRIAL_JOB,
            attempt=check.number,
            command=(sys.executable, "-c", _PROGRAM),
            env={},
            cwd=str(self._state.absolute()),
            checkpoint_dir=str(folder.absolute()),
            checkpoint_root=check.checkpoints,
            root_is_known=check.root_is_known,
            ranks=(Rank(rank=0, devices=()),),
            world_size=1,
            total_steps=1,
            grace_s=0.0,
        )
        lease = NodeLease(LIMIT_S)
        lease.extend(now, LIMIT_S, 0.0)
        attempt = NodeAttempt(assignment, make_token(self.identity.incarnation), lease, now)
        attempt.addresses = assign_addresses(assignment, self.identity.host, self._attempts.ports)
        return attempt

    async def _outcome(self, attempt: NodeAttempt) -> str:
        deadline = time.monotonic() + LIMIT_S
        self._launcher.launch(attempt)
        while not attempt.ended and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        status = attempt.status(time.monotonic())
        if status.completed:
            return ""
        if attempt.ended:
            return f"a test rank failed: {status.reason or 'it ended before its step was done'}"
        self._ending.kill(attempt)
        why = f": {status.reason}" if status.reason else ""
        return f"a test rank has not ended within {LIMIT_S:.0f} s{why}"

    async def _clean(self, folder: Path) -> None:
        """Remove the files of the trial, except where the disk hangs."""
        left = (
            folder,
            logs_path(self._state) / str(TRIAL_JOB),
            reports_path(self._state, TRIAL_JOB),
        )
        for path in left:
            try:
                await on_thread(partial(shutil.rmtree, path, ignore_errors=True), _REMOVE_S)
            except (TimeoutError, OSError):  # OSError: no thread
                continue
