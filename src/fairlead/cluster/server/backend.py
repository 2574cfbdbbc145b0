"""The live backend: the clock is real, and rounds are run by agents.

``next`` and ``perform`` are called by the driver's thread alone. Whatever comes from outside (agents,
people, the solver) is an errand in the inbox. A batch of it is handled, then committed as one, and only
then published: what an agent is ordered or a person is told is durable (group commit).
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Protocol

import numpy as np

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.precedence import MAX_WAITING, Yielder
from fairlead.cluster.server.report_intake import ReportIntake
from fairlead.cluster.server.round_clock import RoundClock
from fairlead.cluster.server.round_starter import RoundStarter
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    Solve,
    StartRound,
    WakeAt,
)
from fairlead.model.events import (
    DevicesBound,
    Event,
    JobsCancelled,
    JobsDropped,
    JobsPaused,
    JobsReweighted,
    NodeLost,
    NodeRecovered,
    NodesAvoided,
    RequirementsChanged,
)


class SolveQueue(Protocol):
    """Takes solves: see ``solve_coordinator``."""

    def ask(self, problem: Solve) -> None:
        """Have a problem solved; the answer comes as an event."""


class LiveBackend:
    """See the module."""

    def __init__(
        self,
        state: ClusterState,
        *,
        inbox: Inbox,
        intake: ReportIntake,
        clock: RoundClock,
        starter: RoundStarter,
        solves: SolveQueue,
        precedence: Yielder,
        settle: Callable[[], bool],
        commit: Callable[[], None],
        is_interrupted: Callable[[], bool],
    ) -> None:
        """precedence: over questions, while a round is reported and published; settle: does what follows for
        jobs that wait for others, returns whether there was anything; commit: makes durable what was handled,
        then publishes it; is_interrupted: whether whoever drives wants to take over."""
        self._state = state
        self._inbox = inbox
        self._intake = intake
        self._clock = clock
        self._starter = starter
        self._solves = solves
        self._precedence = precedence
        self._settle = settle
        self._commit = commit
        self._is_interrupted = is_interrupted
        self._frozen = False  # what came before the cluster was halted has been handled

    def next(self) -> Event | None:
        """The next event; None when the one who drives wants to take over."""
        state = self._state
        while True:
            if state.ready and state.events and not self._frozen:
                event = self._still(state.events.popleft())
                if event is not None:
                    return event
                continue
            self._commit()
            self._frozen = bool(state.halted)
            self._precedence.give_back()
            if self._is_interrupted():
                return None
            if not self._settle():
                self._collect()

    def perform(self, command: Command) -> None:
        """Make a command so, from the next commit on."""
        match command:
            case StartRound():
                self._starter.start(command)
            case Solve():
                self._state.solving = True
                self._solves.ask(command)
            case EndRound():
                self._clock.end_soon()
            case WakeAt():
                pass  # the clock tells a stall again and again
            case EndJobs():
                self._starter.end_jobs(command)

    def _collect(self) -> None:
        """Wait for something to happen, and turn it into events."""
        waits = self._state.ready and self._state.events and not self._frozen  # committed just now
        noticed = self._inbox.collect(0.0 if waits else self._clock.timeout_s())
        if len(noticed) >= MAX_WAITING:
            self._precedence.take()
        if self._state.halted:
            return
        for node in noticed:
            self._intake.apply(node)
        if self._state.ready:
            self._clock.poll()

    def _still(self, event: Event) -> Event | None:
        """Return what of an event still applies, for jobs may have ended meanwhile; None = nothing."""
        match event:
            case JobsCancelled() | JobsDropped():
                jobs = tuple(job for job in event.jobs if self._is_open(job))
                return replace(event, jobs=jobs) if jobs else None
            case NodesAvoided() | DevicesBound():
                return event if self._is_open(event.job) else None
            case JobsPaused() | JobsReweighted() | RequirementsChanged():
                good = np.array([self._is_open(job) for job in event.jobs.tolist()], np.bool_)
                if good.all():
                    return event
                columns = [f.name for f in fields(event) if f.name not in ("time_s", "paused")]
                arrays = {name: getattr(event, name)[good] for name in columns}
                return replace(event, **arrays) if good.any() else None
            case NodeLost() | NodeRecovered():  # a node that has just come: told once it is known
                known = {node.name for node in self._state.cluster.nodes}
                return event if event.node in known else None
        return event

    def _is_open(self, job: int) -> bool:
        row = self._state.registry.jobs.get(job)
        return row is not None and row.open
