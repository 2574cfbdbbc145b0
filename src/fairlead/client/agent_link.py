"""Rank 0's side of what it and its agent say to each other. Never waits while the job trains."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from time import monotonic, sleep

from fairlead.client.agent_connection import AgentConnection
from fairlead.client.messages import (
    Adapt,
    FromAgent,
    Grant,
    Hello,
    Loaded,
    Progress,
    RankPrepared,
    RankRefused,
    Save,
    StandBy,
    StopRank,
)
from fairlead.client.rank_environment import EXIT_MAY_NOT_RUN, RankEnvironment, leave
from fairlead.client.save_problem import SaveProblem
from fairlead.client.version import __version__

CONNECT_TIMEOUT_S = 30.0  # how long the agent may be away when a rank comes up
FINISH_S = 10.0  # and when it ends
PROGRESS_INTERVAL_S = 0.2  # between two reports of progress
RENEW_AT = 0.75  # of the lease
GRANT_TIMEOUT_S = 1.0  # what a rank that was busy beyond the end of its lease waits for a renewal
MAX_PROBLEM = 500  # characters of why a checkpoint could not be saved
MAX_PLACE = 4096  # and of where: no path is longer
MAX_BACKLOG = 4096  # bytes that wait to be sent; beyond that progress is not told for now


class LeaseTerm:
    """Until when a rank may run, and when it asks for longer. Without an agent it lasts for ever."""

    def __init__(self) -> None:
        self.end = inf  # monotonic time
        self.renew_at = inf  # monotonic time
        self.asked_at = 0.0
        self.is_asked = False  # and not answered yet, on the connection of that time

    def ask(self, now: float) -> None:
        """The agent is asked for the lease."""
        self.is_asked, self.asked_at = True, now

    def grant(self, lease_s: float) -> None:
        """The agent's answer: so long from when it was asked."""
        self.is_asked = False
        self.end = self.asked_at + lease_s
        self.renew_at = self.asked_at + RENEW_AT * lease_s


class AgentLink:
    """The lease, and what the agent wants. Without an agent the lease lasts for ever.

    ``stop`` (a reason), ``may_park`` (instead of ending then), ``save_requested`` and ``refused`` (a reason)
    are what it has asked for so far;
    ``save_problem`` is what it is told with the progress: why the newest checkpoint could not be saved.
    """

    def __init__(self, environment: RankEnvironment, checkpoint_s: float) -> None:
        self.checkpoint_s = checkpoint_s
        self.stop = ""
        self.may_park = False
        self.save_requested = False
        self.refused = ""
        self.save_problem = SaveProblem("")
        self._environment = environment
        self._term = LeaseTerm()
        self._connection = AgentConnection(environment.socket)
        self._progress_sent_s = -inf
        self._state = (-1, 0, 0.0)  # step, newest saved step, seconds that it took to save
        self._saves = False
        self._stands_by = False  # the agent is there, and has the rank wait
        self._again: dict[type, object] = {}  # what an agent that comes back has to know

    @property
    def lease_end(self) -> float:
        """Monotonic time until which this process may run."""
        return self._term.end

    def open(self) -> None:
        """Connect, say hello, get the lease, unless the rank is to stand by. Leaves the process where that is
        refused."""
        if not self._environment.socket:
            return
        self._term.end = -inf
        self._wait(lambda: self._term.end == -inf)

    def await_admission(self) -> None:
        """Wait for the lease, if the rank stands by: all is prepared. Leaves the process where none is to
        come."""
        if self._stands_by:
            self.send(RankPrepared(self._environment.attempt))
            self._wait(lambda: self._stands_by)

    def _wait(self, is_waiting: Callable[[], bool]) -> None:
        """Hear the agent while this holds. Leaves the process if it does not answer, or refuses."""
        until = monotonic() + CONNECT_TIMEOUT_S
        while is_waiting() and not self.refused:
            now = monotonic()
            if self._stands_by and self._connection.is_open:
                until = now + CONNECT_TIMEOUT_S
            if self._stands_by and self.stop:
                leave(EXIT_MAY_NOT_RUN, f"told to stop while it stood by: {self.stop}")
            if now > until:
                leave(EXIT_MAY_NOT_RUN, f"the agent does not answer at {self._environment.socket}")
            self._connect(now)
            self._receive(wait_s=0.1)
            if not self._connection.is_open:
                sleep(0.05)
        if self.refused:
            leave(EXIT_MAY_NOT_RUN, f"this process may not run: {self.refused}")

    def poll(self, now: float) -> None:
        """Take in what the agent has sent; connect again where it was lost; ask for the lease when it is
        time."""
        if not self._environment.socket:
            return
        self._connect(now)
        self._receive()
        if now >= self._term.end and (not self._awaits_grant or self._term.asked_at == now):
            self._final_renewal(now)

    def send(self, message: object) -> None:
        """Send, at once if the agent takes it."""
        if isinstance(message, (Loaded, Adapt, RankPrepared)):
            self._again[type(message)] = message
        self._connection.send(message)

    def send_progress(
        self, now: float, step: int, saved_step: int, save_s: float, at_once: bool = False
    ) -> None:
        """Progress, at most every ``PROGRESS_INTERVAL_S`` unless ``at_once``; with it the request for
        the lease."""
        self._state = step, saved_step, save_s
        renew = self.is_due(now)
        if not (renew or at_once or now >= self._progress_sent_s + PROGRESS_INTERVAL_S):
            return
        if not self._connection.is_open:
            return
        self._progress_sent_s = now
        if renew:
            self._term.ask(now)
        if renew or self._connection.backlog < MAX_BACKLOG:
            self._connection.send(self._progress(renew))

    def deliver_progress(self, step: int, saved_step: int, save_s: float) -> None:
        """The last progress of a process that leaves without an end in order: what it says of its step and
        what its agent knows shall be the same."""
        self._state = step, saved_step, save_s
        self.deliver(self._progress())

    def send_saving(self, step: int) -> None:
        """The state after this step is being saved, until ``has_saved``."""
        self._saves, self._state = True, (step, *self._state[1:])
        if self._connection.backlog < MAX_BACKLOG:
            self._connection.send(self._progress())

    def _progress(self, renew: bool = False) -> Progress:
        return Progress(
            self._environment.attempt,
            *self._state,
            renew=renew,
            saving=self._saves,
            save_problem=self.save_problem.why[:MAX_PROBLEM],
            save_place=self.save_problem.place[:MAX_PLACE],
        )

    def has_saved(self) -> None:
        """The save is over, whatever came of it; the next message says so."""
        self._saves = False

    def is_due(self, now: float) -> bool:
        """Return whether it is time to ask for the lease."""
        return now >= self._term.renew_at and not self._awaits_grant

    def finish(self, message: object) -> None:
        """The last word, and hang up."""
        self._again.pop(type(message), None)
        self.deliver(message)
        self.close()

    def deliver(self, message: object) -> None:
        """Send, and wait until the agent's socket has taken it. One that was lost gets some time to come
        back for it."""
        if not self._environment.socket:
            return
        until = min(self._term.end, monotonic() + FINISH_S)
        while not self._delivered(message) and monotonic() < until:
            sleep(0.05)

    def finish_and_stay(self, message: object) -> None:
        """The last word of the loop. The connection stays, so that the agent can say that the code behind
        the loop is to stop; an agent that is lost is told again."""
        self.deliver(message)
        self._again[type(message)] = message

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    @property
    def _awaits_grant(self) -> bool:
        return self._term.is_asked and self._connection.is_open

    def _delivered(self, message: object) -> bool:
        self._receive()  # an agent that has gone is noticed here
        self._connect(monotonic())
        return self._connection.deliver(message)

    def _final_renewal(self, now: float) -> None:
        """The lease ran out while the rank was busy (a long step, a load): the agent may still extend it."""
        if self._connection.is_open and not self._term.is_asked:
            self._term.ask(now)
            self._connection.send(self._progress(renew=True))
        until = now + GRANT_TIMEOUT_S
        while self._awaits_grant and (now := monotonic()) < until:
            self._receive(wait_s=until - now)

    def _connect(self, now: float) -> None:
        """Connect again where the connection was lost. Hello asks for the lease too."""
        if not self._connection.connect(now):
            return
        self._term.ask(now)
        environment = self._environment
        hello = Hello(
            environment.job,
            environment.attempt,
            environment.token,
            os.getpid(),
            version=__version__,
        )
        for message in (hello, *self._again.values()):
            self._connection.send(message)

    def _receive(self, wait_s: float = 0.0) -> None:
        for message in self._connection.receive(wait_s):
            self._handle(message)

    def _handle(self, message: FromAgent) -> None:
        if isinstance(message, Grant):
            self._term.grant(message.lease_s)
            self.checkpoint_s = message.checkpoint_s
            self._stands_by = False
            self._again.pop(RankPrepared, None)
        elif isinstance(message, StandBy):
            self._stands_by = True
            self._term.end = inf  # it needs none for what it does meanwhile
            if message.over:
                self._term.ask(monotonic())
                self._connection.send(self._progress(renew=True))
        elif isinstance(message, StopRank):
            self.stop = message.reason or "stopped"
            self.may_park = message.park
        elif isinstance(message, Save):
            self.save_requested = True
        elif isinstance(message, RankRefused):
            self.refused = message.reason or "refused"
