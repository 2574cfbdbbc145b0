"""The controller of a node: all that its agent holds and does there, put together."""

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempt_launcher import AttemptLauncher
from fairlead.cluster.agent.device_memory import DeviceMemory
from fairlead.cluster.agent.kept_ends import KeptEnds
from fairlead.cluster.agent.launch import LaunchSite
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.order_follower import NodeIdentity, OrderFollower
from fairlead.cluster.agent.parked_jobs import ParkedJobs
from fairlead.cluster.agent.progress_reader import ProgressReader
from fairlead.cluster.agent.rank_messages import RankMessages
from fairlead.cluster.agent.rank_server import RankConnections
from fairlead.cluster.agent.rank_trial import RankTrial
from fairlead.cluster.agent.spawner_events import SpawnerEvents
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.stall_inspections import StallInspections
from fairlead.cluster.agent.suspension import Suspension


class NodeController:
    """``open`` it before there are orders; ``poll`` is to be called many times a second."""

    def __init__(
        self,
        state: Path,
        spawner: SpawnerLink,
        logs: Logs,
        ranks: RankConnections,
        *,
        park_bytes: int | None,
        changed: Callable[[], None],
        ask: Callable[[], Awaitable[None]],
    ) -> None:
        """state: of the agent; park_bytes: see ``ParkedJobs``. changed: called when there is news for the
        server; ask: waits until the server has answered to all that the node holds now."""
        self.attempts = NodeAttempts(KeptEnds(state))
        self.parked = ParkedJobs(spawner, park_bytes, changed)
        self._suspension = Suspension(state, spawner, self.parked, logs)
        self.ending = AttemptEnding(
            self.attempts, spawner, ranks, self.parked, self._suspension, changed
        )
        self._launcher = AttemptLauncher(spawner, self.ending, changed)
        self.orders = OrderFollower(
            self.attempts,
            self._launcher,
            self.ending,
            parked=self.parked,
            ranks=ranks,
            logs=logs,
            changed=changed,
        )
        self.rank_messages = RankMessages(self.attempts, self.ending, changed, ask)
        self.rank_trial = RankTrial(state, self.attempts, self._launcher, self.ending)
        self._stalls = StallInspections(state, spawner, self.ending, changed)
        self._progress = ProgressReader(state)
        self.spawner_events = SpawnerEvents(
            state,
            self.attempts,
            spawner=spawner,
            ending=self.ending,
            ranks=ranks,
            logs=logs,
            progress=self._progress,
            inspector=self._stalls.inspector,
            parked=self.parked,
            suspension=self._suspension,
            changed=changed,
        )
        self._suspension.leaders = self.spawner_events.leaders
        self._changed = changed

    def open(self, place: LaunchSite, incarnation: str) -> None:
        """From here on ranks can be started. incarnation: of the agent."""
        self._launcher.place = place
        if not place.devices.simulated_devices:
            self._suspension.memory = DeviceMemory(place.devices.indices)
        identity = NodeIdentity(incarnation, place.host, place.devices)
        self.orders.identity = self.rank_trial.identity = identity

    def poll(self) -> None:
        """Stop what has no lease any more, and look at attempts whose steps do not come along."""
        self.ending.expire_all()
        now = time.monotonic()
        for attempt in self.attempts:
            self._stalls.watch(attempt, now)

    def poll_progress(self) -> None:
        """Take over what jobs without the iterator say of theirs."""
        now = time.monotonic()
        for attempt in self.attempts:
            if attempt.may_report_progress and attempt.state in ("running", "stopping"):
                reported_before = attempt.steps.has_reported
                self._progress.poll(attempt, now)
                if attempt.steps.has_reported and not reported_before:
                    self._changed()

    def report_directories(self, problems: Mapping[Path, str]) -> None:
        """Note path -> problem of the directories that jobs save to; the server is told of changes."""
        if self.attempts.note_directories(problems):
            self._changed()

    def problems(self) -> list[str]:
        """Return the problems that keep this agent from doing what it is told to."""
        now = time.monotonic()
        deaths = self.spawner_events.problem(now)
        return [*filter(None, [deaths]), *self.attempts.obstructed(now)]
