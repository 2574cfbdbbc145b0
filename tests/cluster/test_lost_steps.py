"""Steps lost are counted exactly, whatever dies and whatever is heard of it in which order."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.cluster.server_parts import AttemptParts, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    AttemptStatus,
    NodeReport,
    Register,
)
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.live_round import LiveRound
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.model.events import ProgressCorrected, RoundEnded

JOB, TOTAL = 7, 150


@dataclass
class Process:
    """A rank of the job as it is, whoever knows of it."""

    attempt: int
    order_id: str
    step: int
    loaded: int
    lost: int
    told: int  # the step that its agent has heard of
    saved: int
    state: str = "running"
    code: int | None = None
    completed: bool = False

    def status(self) -> AttemptStatus:
        return AttemptStatus(
            job=JOB,
            attempt=self.attempt,
            order_id=self.order_id,
            state=self.state,  # type: ignore[arg-type]
            step=self.told,
            loaded_step=self.loaded,
            saved_step=self.saved,
            lost_steps=self.lost,
            exit_code=self.code,
            completed=self.completed,
            ran_s=1.0,
        )


@dataclass
class Truth:
    """What the job has really done. ``count`` is its file of steps: (lost, reached)."""

    saved: int = 0
    executed: int = 0
    count: tuple[int, int] | None = None
    process: Process | None = None
    completed: bool = False
    ended: dict[int, Process] = field(default_factory=dict)  # not booked yet, as its agent knows

    def load(self, attempt: int, order_id: str) -> None:
        lost = 0 if self.count is None else self.count[0] + max(self.count[1] - self.saved, 0)
        self.process = Process(
            attempt, order_id, self.saved, self.saved, lost, self.saved, self.saved
        )
        self.count = lost, self.saved

    def work(self, steps: int) -> None:
        assert self.process is not None
        assert self.count is not None
        steps = min(steps, TOTAL - self.process.step)
        self.executed += steps
        self.process.step += steps
        self.count = self.count[0], self.process.step

    def save(self) -> None:
        assert self.process is not None
        self.saved = self.process.saved = self.process.step

    def end(self, code: int, completed: bool = False) -> None:
        one = self.process
        assert one is not None
        one.state, one.code, one.completed = "ended", code, completed
        self.completed |= completed
        self.ended[one.attempt], self.process = one, None


class Account(RuleBasedStateMachine):
    """A server and one node; the core is what it would count."""

    keeps_count = True

    @initialize()
    def begin(self) -> None:
        self.now, self.run, self.incarnation = 100.0, 0, 0
        self.truth = Truth()
        self.core = 0.0
        self.seq = 0
        self.lost = 0.0
        spec = JobSpec(command=("x",), total_steps=TOTAL)
        row = JobRow(
            id=JOB, name="", tenant="t", user="u", spec=spec, submitted_s=0.0,
            total_steps=float(TOTAL), acknowledged_total=float(TOTAL),
        )  # fmt: skip
        self._serve(row, [])
        self._register()

    def _serve(self, row: JobRow, attempts: list[AttemptRow]) -> None:
        """A server comes up with what the last one had committed."""
        self.fleet = Fleet(10.0, 0.01, lambda: self.now, lambda _: None)
        self.front = LocalFront(self.fleet)
        self.fleet.add("a", "v100", 1)
        self.run += 1
        self.fleet.set_order_seq(self.run << 32)
        self.state = cluster_state(self.fleet, lambda: self.now)
        self.registry = self.state.registry
        self.parts = AttemptParts(self.state)
        self.row = row
        self.registry.jobs[JOB] = row
        for attempt in attempts:
            start = Attempt(row, attempt, ranks_on({"a": (0,)}), 1.0, row.steps, ordered=True)
            self.registry.add(start)
            if attempt is not attempts[-1]:
                start.stop(AttemptEnd.MOVED)
        for start in self.registry.live.get(JOB, ()):
            self.parts.orders.order(start)
        self.parts.steps.correct(row, row.steps)
        self.fleet.publish()

    def _register(self) -> None:
        holds = [*self.truth.ended.values(), *([self.truth.process] if self.truth.process else [])]
        self.parts.intake.apply("a")
        message = Register(
            protocol=PROTOCOL, version="0", node="a", incarnation=f"i.{self.incarnation}", host="h",
            accelerator="v100", devices=1, holds=tuple(one.status() for one in holds),
        )  # fmt: skip
        self.fleet.register(message)
        self.followed = -1
        held = {one.attempt for one in holds}
        gone = [
            s
            for s in self.registry.on_node.get("a", {}).values()
            if s.key[1] not in held and s.ordered
        ]
        if self.incarnation != self.known_incarnation:
            self.parts.ends.orphan("a", gone, "the agent restarted")
        self.known_incarnation = self.incarnation
        self._publish()

    known_incarnation = 0

    def _publish(self) -> None:
        self.fleet.publish()
        while self.state.events:
            event = self.state.events.popleft()
            if isinstance(event, ProgressCorrected):
                self.core = float(event.steps_done[0])
            elif isinstance(event, RoundEnded):
                self.core += float(event.steps.sum())

    # --- the job and its agent -------------------------------------------------------------------

    @rule(steps=st.integers(1, 60), tells=st.booleans())
    def works(self, steps: int, tells: bool) -> None:
        if self.truth.process is not None:
            self.truth.work(steps)
            if tells:
                self.truth.process.told = self.truth.process.step

    @rule(heard=st.booleans())
    def saves(self, heard: bool) -> None:
        process = self.truth.process
        if process is not None:
            known = process.saved
            self.truth.save()
            if not heard:
                process.saved = known

    @rule(saves=st.booleans())
    def is_killed(self, saves: bool) -> None:
        if self.truth.process is not None:
            if saves:
                self.truth.save()
            self.truth.end(-9)

    @rule()
    def follows(self) -> None:
        """The agent does what it was ordered, as the newest orders have it."""
        orders = self.front.orders("a", f"i.{self.incarnation}")
        self.followed = orders.seq
        wanted = {a.attempt: a.order_id for a in orders.desired}
        process = self.truth.process
        if process is not None and process.attempt not in wanted:
            self.truth.save()
            process.told = process.step
            self.truth.end(0, completed=process.step == TOTAL)
        for _, attempt in orders.forget:
            self.truth.ended.pop(attempt, None)
        for attempt, order_id in wanted.items():
            if self.truth.process is None and attempt not in self.truth.ended:
                self.truth.load(attempt, order_id)

    @rule(fold=st.booleans())
    def reports(self, fold: bool) -> None:
        self.seq += 1
        holds = [*self.truth.ended.values(), *([self.truth.process] if self.truth.process else [])]
        self.front.report(
            NodeReport(
                node="a",
                incarnation=f"i.{self.incarnation}",
                seq=self.seq,
                holds=tuple(one.status() for one in holds),
                orders_seq=self.followed,
            )
        )
        if fold:
            self.parts.intake.apply("a")
            self._publish()

    @rule(saves=st.booleans())
    def agent_dies(self, saves: bool) -> None:
        """Its ranks with it; the next one knows nothing of them."""
        if self.truth.process is not None:
            if saves:
                self.truth.save()
            self.truth.process = None
        self.truth.ended.clear()
        self.incarnation += 1
        self.seq = 0
        self._register()

    # --- the server ------------------------------------------------------------------------------

    @rule()
    def begins_a_round(self) -> None:
        if self.state.round is None and self.core < TOTAL:
            start = self.parts.orders.assign(JOB, {"a": (0,)}, "v100", self.now)
            self.state.round = LiveRound(0, self.now, 10.0, np.array([[JOB]]), {JOB: start})
            self.row.state = "running"
            self._publish()

    @rule()
    def ends_the_round(self) -> None:
        self.parts.clock.end_round(self.now)
        self._publish()

    @rule()
    def preempts(self) -> None:
        self.ends_the_round()
        self.parts.orders.stop(JOB, AttemptEnd.PREEMPTED)
        self._publish()

    @rule()
    def node_is_lost(self) -> None:
        self.ends_the_round()
        if self.truth.process is not None:
            self.truth.process = None
        self.truth.ended.clear()
        self.parts.nodes.mark_lost("a", "node lost")
        self.incarnation += 1
        self.seq = 0
        self._register()

    @rule()
    def server_is_killed(self) -> None:
        """All that is in memory beside the rows is gone; every change was committed."""
        attempts = [s.record for s in self.registry.live.get(JOB, ())]
        copies: Any = [
            msgspec.json.decode(msgspec.json.encode(s), type=AttemptRow) for s in attempts
        ]
        row = msgspec.json.decode(msgspec.json.encode(self.row), type=JobRow)
        row.acknowledged_steps = self.core
        self._serve(row, copies)
        self.seq = 0
        self._register()

    @rule(
        work=st.lists(st.tuples(st.integers(0, 60), *[st.booleans()] * 4), max_size=3),
        end=st.sampled_from(["killed", "agent", "node", "server", "preempted", "none"]),
        saves=st.booleans(),
        books=st.booleans(),
    )
    def trains(
        self,
        work: list[tuple[int, bool, bool, bool, bool]],
        end: str,
        saves: bool,
        books: bool,
    ) -> None:
        """A start, some work of it, and how it came out."""
        self.begins_a_round()
        self.follows()
        for steps, tells, stores, heard, reported in work:
            self.works(steps, tells)
            if stores:
                self.saves(heard)
            if reported:
                self.reports(fold=tells)
        if end == "killed":
            self.is_killed(saves)
        elif end == "agent":
            self.agent_dies(saves)
        elif end == "node":
            self.node_is_lost()
        elif end == "server":
            self.server_is_killed()
        elif end == "preempted":
            self.preempts()
        self.follows()
        if books:
            self.reports(fold=True)
            self.ends_the_round()

    # --- what holds ------------------------------------------------------------------------------

    @invariant()
    def nothing_is_taken_back(self) -> None:
        assert self.row.lost_steps >= self.lost
        self.lost = self.row.lost_steps
        process = self.truth.process
        now_lost = 0 if self.truth.count is None else self.truth.count[0]
        if process is None and self.truth.count is not None:
            now_lost += max(self.truth.count[1] - self.truth.saved, 0)
        assert self.row.lost_steps <= now_lost
        assert self.core < TOTAL or self.truth.completed, "it is not complete before it has ended"

    def teardown(self) -> None:
        """To its end, without more harm: all steps that were done are counted, once."""
        if not hasattr(self, "truth"):
            return
        for _ in range(8):
            if self.core == TOTAL:
                break
            self.ends_the_round()
            self.begins_a_round()
            self.follows()
            self.reports(fold=True)
            if self.truth.process is not None:
                self.truth.work(TOTAL)
                self.truth.save()
                self.truth.process.told = TOTAL
                self.reports(fold=True)
                self.truth.end(0, completed=True)
            self.reports(fold=True)
        self.ends_the_round()
        assert self.core == TOTAL
        exact = self.truth.executed - TOTAL
        if self.keeps_count:
            assert self.row.lost_steps == exact
        else:
            assert self.row.lost_steps <= exact


class AccountWithoutCount(Account):
    """The job's folder does not keep the count: what was heard is all that there is."""

    keeps_count = False

    @rule()
    def count_is_lost(self) -> None:
        if self.truth.process is None:
            self.truth.count = None

    @invariant()
    def nothing_is_taken_back(self) -> None:
        assert self.row.lost_steps >= self.lost
        self.lost = self.row.lost_steps
        assert self.core < TOTAL or self.truth.completed


LIMITS = settings(
    max_examples=100,
    stateful_step_count=15,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # a failure is short enough as it is
    suppress_health_check=list(HealthCheck),
)
TestAccount = Account.TestCase
TestAccount.settings = LIMITS
TestAccountWithoutCount = AccountWithoutCount.TestCase
TestAccountWithoutCount.settings = LIMITS
