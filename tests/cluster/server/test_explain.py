"""What is said of a job is true of the state that it is said of: states are made, and sentences held against
them."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.cluster.front.recent_results import RecentResults
from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    ORPHANED,
    AttemptStatus,
    NodeReport,
    ParkedAttempt,
    Register,
)
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.decided_shares import DecidedShares
from fairlead.cluster.server.explain import explanation_facts, last_failure, stated
from fairlead.cluster.server.explain_placement import stands_still
from fairlead.cluster.server.explanation_source import DeviceUse
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.hysteresis import PreemptionState
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.throughputs import Throughputs

MINE, OTHER, THIRD = 1, 2, 3


class State:
    """A cluster in a state that is made up: all that reasons are read from."""

    def __init__(self, **nodes: int) -> None:
        self.now = 1_000.0
        self.fleet = Fleet(30.0, 0.01, lambda: self.now, lambda _: None)
        self.front = LocalFront(self.fleet)
        self.registry = JobRegistry()
        self.decided = DecidedShares()
        self.device_uses = RecentResults[DeviceUse](self.fleet.monotonic)
        self.policy, self.halted, self.commit_error = "las", "", ""
        self.scheduler = SimpleNamespace(data=SimpleNamespace(paused_jobs=set[int]()))
        self.bound_devices: dict[int, tuple[tuple[str, int], ...]] = {}
        self.admission = SimpleNamespace(why_waits=lambda _: "", why_held=lambda _: "")
        self.solves = SimpleNamespace(state="ok", began_s=None, without_pairs="")
        self.round = SimpleNamespace(end_s=self.now + 90.0, started_s=self.now - 10.0)
        self.early_s = 10.0
        self.costs = SimpleNamespace(is_applied=lambda: True, why_not_parked=lambda _: "")
        self.cluster = Cluster((Node("a", "v100", 2), Node("b", "k80", 2), Node("c", "h100", 1)))
        self._reports = 0
        for name, devices in (nodes or {"a": 2}).items():
            self.fleet.add(name, "v100", devices)
            self.fleet.register(
                Register(
                    node=name, incarnation=name, accelerator="v100", devices=devices, host="",
                    simulated_devices=True, holds=(), protocol=0,
                    version="0",
                )
            )  # fmt: skip

    def now_s(self) -> float:
        """The cluster's time."""
        return self.now

    @property
    def state(self) -> "State":
        """As what explanations are read from has it."""
        return self

    def job(self, job: int, tenant: str = "t") -> JobRow:
        """A job in the system."""
        spec = JobSpec(command=("true",), total_steps=1_000)
        row = JobRow(
            id=job, name="", tenant=tenant, user="u", spec=spec, submitted_s=0.0, total_steps=1e3
        )
        self.registry.jobs[job] = row
        return row

    def start(self, job: int, devices: tuple[int, ...], node: str = "a", **held: Any) -> Attempt:
        """A start of it, and what its node says of that: nothing without fields."""
        row = self.registry.jobs.get(job) or self.job(job)
        row.attempt += 1
        attempt = AttemptRow(
            job=job, attempt=row.attempt, node=node, accelerator="v100", devices=devices,
            began_s=self.now - 20.0,
        )  # fmt: skip
        start = Attempt(row, attempt, ranks_on({node: devices}), 1.0, 0.0, ordered=True)
        self.registry.add(start)
        if held:
            message = AttemptStatus(job=job, attempt=row.attempt, **held)
            self.say(node, message)
        return start

    def say(self, node: str, *messages: AttemptStatus, **more: Any) -> None:
        """The node reports this, with what it reported before."""
        self._reports += 1
        before = tuple(self.fleet.nodes[node].observed.holds.values())
        self.fleet.publish()
        self.front.report(
            NodeReport(
                node=node, incarnation=node, seq=self._reports, holds=(*before, *messages), **more
            )
        )

    def decide(self, share: dict[int, float], packed: bool = False, **table: Any) -> None:
        """What the core decided last: job -> share of the time on v100."""
        jobs = sorted(self.registry.jobs)
        n, slots = len(jobs), (SlotType("v100"),)
        kinds = tuple((f"k{job}", 1) for job in jobs)
        self.decided = DecidedShares(
            self.now, slots, packed, True, np.array(jobs), np.ones(n, np.int64), np.arange(n),
            np.column_stack([np.arange(n), np.full(n, -1)]),
            np.array([[share.get(job, 0.0)] for job in jobs]),
            np.array([int(job in share) for job in jobs]),
            Throughputs(slots, job_types(*kinds), np.ones((n, 1)), table.get("pair")),
        )  # fmt: skip

    def told(self, state: str = "waiting", tenant: str | None = None, **fields: Any) -> str:
        """All that is said of the job."""
        known = {"rates": {"v100": 1.0}, "user_estimates": {}}
        job = view(id=MINE, state=state, **(known | fields))
        return " ".join(explanation_facts(self, job, (), tenant))  # type: ignore[arg-type]


def view(**fields: object) -> JobView:
    """A job that ran on v100."""
    plain = {
        "id": 1, "name": "", "tenant": "t", "user": "u", "family": "", "scale_factor": 1,
        "weight": 1.0, "state": "running", "total_steps": 100.0, "steps": 0.0, "saved_step": 0,
        "submitted_s": 0.0, "started_s": None, "ended_s": None, "node": "", "accelerator": "",
        "devices": (), "attempt": 0, "starts": 1, "preemptions": 0, "failures": 0, "run_s": 0.0,
        "lost_steps": 0.0, "overhead_s": 0.0, "rates": {}, "measured_rate": 6.8, "slo_s": None,
        "reason": "", "measured_on": "v100", "user_estimates": {"v100": 10.0},
    }  # fmt: skip
    return msgspec.convert(plain | fields, JobView)


TRAINS: dict[str, Any] = {
    "state": "running", "step": 500, "loaded_step": 0, "ran_s": 50.0, "step_age_s": 0.1
}  # fmt: skip


def test_devices_of_others_that_train_are_said_to_be_held_by_them() -> None:
    state = State()
    state.job(MINE)
    state.start(OTHER, (0,), **TRAINS)
    state.start(THIRD, (1,), **TRAINS)
    state.decide({MINE: 0.5, OTHER: 0.75, THIRD: 0.75})
    told = state.told()
    assert "2 devices held by jobs 2, 3 in training" in told
    assert "free" not in told
    assert "decided anew in 1 min 30 s" in told
    assert "gives it 0.50 of the time on v100" in told


def test_who_hangs_starts_stops_or_finishes_is_not_said_to_train() -> None:
    state = State(a=5)
    state.job(MINE)
    state.start(2, (0,), **TRAINS | {"step_age_s": 100.0})
    state.start(3, (1,))
    state.start(4, (2,), **TRAINS).stopping = "preempted"
    state.start(5, (3,), **TRAINS | {"completed": True})
    told = state.told()
    assert "1 device held by job 2 without a step for long, perhaps hanging" in told
    assert "1 device held by job 3 still starting" in told
    assert "1 device held by job 4 told to stop and not ended yet" in told
    assert "1 device held by job 5 past the last step and not ended yet" in told
    assert "1 device of v100 is free" in told
    assert "in training" not in told


def test_a_gang_keeps_what_it_was_given_while_a_part_of_it_goes_on() -> None:
    """It was said to be free, and was given to nobody."""
    state = State(a=1, b=1)
    state.job(MINE)
    row = state.job(OTHER)
    record = AttemptRow(
        job=OTHER, attempt=1, node="a,b", accelerator="v100", devices=(0, 0), began_s=state.now
    )
    gang = Attempt(row, record, ranks_on({"a": (0,), "b": (0,)}), 1.0, 0.0, ordered=True)
    state.registry.add(gang)
    gang.gone.add("b")
    told = state.told()
    assert "2 devices held by job 2 still starting" in told
    assert "free" not in told
    gang.stopping = "preempted"
    told = state.told()
    assert "1 device of v100 is free" in told
    assert "1 device held by job 2 told to stop and not ended yet" in told


def test_what_the_agent_says_of_a_hang_is_said_first() -> None:
    stall = "no step for 92 s, usual 0.2 s; rank 0 is in fails.py:15 (train)"
    state = State(a=3)
    state.start(MINE, (0,), **TRAINS | {"step_age_s": 9.0, "stall": stall})
    state.start(OTHER, (1,), state="starting", wait_s=0.0, stall="no first step for 600 s")
    told = state.told("running", node="a", accelerator="v100", devices=(0,))
    assert told.startswith(f"It stands still, and may hang: {stall}. It holds 1 x v100 of a.")
    assert "runs on" not in told
    assert stands_still(state, MINE)  # type: ignore[arg-type]
    assert stands_still(state, OTHER)  # type: ignore[arg-type]
    state.job(THIRD)
    waits = view(id=THIRD, state="waiting", rates={"v100": 1.0}, user_estimates={})
    told = " ".join(explanation_facts(state, waits))  # type: ignore[arg-type]
    assert "2 devices held by jobs 1, 2 without a step for long, perhaps hanging" in told
    assert "in training" not in told
    assert "still starting" not in told


def test_a_directory_that_does_not_answer_is_told_of_the_job_that_saves_there() -> None:
    state, problem = State(a=3), "checkpoint directory '/nfs/x': no answer for 40 s"
    state.start(MINE, (0,), **TRAINS | {"directory_problem": problem})
    told = state.told("running", node="a", accelerator="v100", devices=(0,))
    assert f"Node a says: {problem}." in told
    assert "is unhealthy" not in told


def test_a_job_that_is_told_to_stop_or_finishes_does_not_hang() -> None:
    state = State(a=3)
    state.start(MINE, (0,), **TRAINS | {"stall": "no step"}).stopping = "preempted"
    state.start(OTHER, (1,), **TRAINS | {"finishing": True, "step_age_s": 1e4})
    state.start(THIRD, (2,), **TRAINS)
    assert not any(stands_still(state, job) for job in (MINE, OTHER, THIRD, 9))  # type: ignore[arg-type]


def test_a_device_that_is_passed_on_is_held_once() -> None:
    state = State(a=4)
    state.job(MINE)
    state.start(70, (0, 1), **TRAINS | {"wait_s": 0.0}).stopping = "preempted"
    state.start(49, (0, 1), state="starting")  # waits for the devices of 70
    state.start(73, (2,))  # its node has not taken it up
    state.start(71, (2, 3), **TRAINS | {"wait_s": 0.0}).stopping = "preempted"
    told = state.told()
    assert (
        "4 devices held by jobs 70, 71 told to stop and not ended yet (next: jobs 49, 73)" in told
    )
    assert "starting" not in told
    assert "free" not in told


def test_a_pair_holds_its_devices_once() -> None:
    state = State(a=2)
    state.job(MINE)
    state.start(OTHER, (0, 1), **TRAINS)
    state.start(THIRD, (0, 1), **TRAINS)
    assert "2 devices held by jobs 2, 3 in training" in state.told()


def test_a_device_that_the_job_itself_has_to_give_up_is_said_to_go_to_another() -> None:
    state = State(a=1)
    state.start(MINE, (0,), **TRAINS).stopping = "preempted"
    state.start(OTHER, (0,), state="starting")
    told = state.told("preempted")
    assert "Its attempt 1 is being stopped (preempted), and holds 1 x v100 of a until" in told
    assert "No device of v100 is free." in told


def test_free_devices_are_said_to_be_free() -> None:
    state = State()
    state.job(MINE)
    told = state.told()
    assert "2 devices of v100 are free, and no other job holds any" in told
    assert "or earlier, for there is room" in told
    state.early_s = float("inf")
    assert "in 1 min 30 s." in state.told()


def test_a_job_that_starts_is_named_where_a_round_waits_for_it() -> None:
    state = State(a=1, b=1)
    state.job(MINE)
    state.start(OTHER, (0,), state="starting")
    assert "or earlier, for there is room" in state.told()
    state.costs.is_applied = lambda: False
    assert (
        "in 1 min 30 s, or earlier, once job 2 has trained for as long as its start took, or was "
        "ordered a round's length ago" in state.told()
    )


def test_devices_of_nodes_that_may_not_be_used_are_not_free() -> None:
    state = State(a=2, b=3, c=4)
    state.job(MINE)
    state.fleet.nodes["a"].drained = True
    state.fleet.nodes["b"].suspect = True
    state.fleet.nodes["c"].lost = True
    told = state.told()
    assert "No device of v100 is free" in told
    for part in (
        "2 devices on nodes that are drained",
        "3 devices",
        "suspect",
        "4 devices",
        "lost",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("solve", "began_s", "words"),
    [
        (
            "failed: no memory",
            None,
            "It has no share of the time yet: the solve failed: no memory.",
        ),
        (
            "under way for 3.0 s",
            997.0,
            "It has no share of the time yet: a solve is under way for 3.0 s.",
        ),
        ("ok", None, "It joined after the last decision, and takes part in the next."),
    ],
)
def test_why_there_is_no_share_yet(solve: str, began_s: float | None, words: str) -> None:
    state = State()
    state.start(OTHER, (0,), **TRAINS)
    state.decide({OTHER: 1.0})
    state.job(MINE)
    state.solves.state, state.solves.began_s = solve, began_s
    assert words in state.told(starts=0)


def test_a_share_of_nothing_is_not_a_share_that_is_still_to_come() -> None:
    state = State()
    state.job(MINE)
    state.start(OTHER, (0,), **TRAINS)
    state.decide({MINE: 0.0, OTHER: 1.0})
    assert "Policy las gives it no share of the time now." in state.told()
    state.decide({OTHER: 1.0})
    assert "It joined after the last solve, and is part of the next." in state.told()


def test_shares_are_said_to_be_of_the_policy_that_has_decided() -> None:
    state = State()
    state.job(MINE)
    state.decide({MINE: 0.5})
    state.decided = dataclasses.replace(state.decided, policy="las_packed")
    until = "0.50 of the time on v100, until policy las has decided"
    assert f"Policy las_packed gives it {until}." in state.told()


def test_a_share_of_a_type_without_a_rate_is_said_to_be_of_no_use() -> None:
    state = State()
    state.job(MINE)
    state.decide({MINE: 0.5})
    waits = view(id=MINE, state="waiting", rates={"v100": 0.0, "k80": 1.0}, user_estimates={})
    told = " ".join(explanation_facts(state, waits))  # type: ignore[arg-type]
    assert "gives it 0.50 of the time on v100, where it cannot run." in told


def test_a_job_that_waits_for_what_it_is_owed_is_told_how_much_and_until_when() -> None:
    state = State(a=1)
    state.job(MINE)
    state.start(OTHER, (0,), **TRAINS)
    state.decide({MINE: 0.9, OTHER: 0.1})
    assert "hysteresis" not in state.told()
    preemption = PreemptionState(
        time_s=state.now, hysteresis=40.0, accelerator=np.array([0]), free=np.array([0]),
        can_run=np.ones((2, 1), np.bool_), scale=np.ones(2, np.int64),
        share=np.array([[0.9], [0.1]]), owed_s=np.array([[20.0], [0.0]]),
        start_s=np.full(2, 200.0), running_on=np.array([-1, 0]), stays=np.zeros(2, np.bool_),
        new=np.zeros(2, np.bool_), anew_s=np.full(2, np.inf),
    )  # fmt: skip
    state.decided = dataclasses.replace(state.decided, preemption=preemption)
    assert (
        "Jobs that run keep their devices until another is owed 40 times what a start costs more than "
        "they are (preemption hysteresis): of v100 it is owed 20 s, and is preferred when that is "
        "3 min 20 s, in about 3 min 20 s if nothing changes." in state.told()
    )
    state.round.end_s = state.now + 300.0
    assert "of v100 it is owed enough to be preferred at the next decision." in state.told()
    preemption = dataclasses.replace(preemption, stays=np.array([False, True]))
    state.decided = dataclasses.replace(state.decided, preemption=preemption)
    assert "those on v100 are about to be done or are left alone for now." in state.told()
    free = State(a=2)
    free.job(MINE)
    free.start(OTHER, (0,), **TRAINS)
    free.decide({MINE: 0.9, OTHER: 0.1})
    free.decided = dataclasses.replace(free.decided, preemption=preemption)
    assert "hysteresis" not in free.told()


def test_a_round_that_waits_for_starts_says_so() -> None:
    state = State()
    state.job(MINE)
    state.start(OTHER, (0,))
    state.round.end_s = state.now - 12.0
    assert "has been over for 12 s and has not ended yet." in state.told()
    state.costs.is_applied = lambda: False
    assert "has been over for 12 s and has not ended yet: job 2 still starting" in state.told()


def test_a_job_with_devices_is_said_to_do_what_it_does() -> None:
    place: dict[str, Any] = {"node": "a", "accelerator": "v100", "devices": (0,)}
    state = State()
    start = state.start(MINE, (0,))
    assert "It was ordered 20 s ago, and a has not taken it up yet." in state.told(
        "running", **place
    )
    state = State()
    state.start(OTHER, (0,), **TRAINS).stopping = "preempted"
    state.start(MINE, (0,), state="starting")
    assert "It waits for devices held by job 2 told to stop and not ended yet." in state.told(
        "running", **place
    )
    state = State()
    state.start(MINE, (0,), **TRAINS)
    assert "It runs on 1 x v100 of a." in state.told("running", **place)
    for k80, told in ((1.0, ""), (1.04, ""), (0.5, ", where it is 2.0 times as fast as on k80")):
        rates = {"v100": 1.0, "k80": k80}  # equal ones are also what stands for rates not known
        assert f"It runs on 1 x v100 of a{told}." in state.told("running", **place, rates=rates)
    rates = {"v100": 1.0, "h100": 2.0}
    for devices, told in ((1, ", though h100 would be 2.0 times as fast"), (2, "")):
        faster = state.told("running", **place, rates=rates, scale_factor=devices)
        assert f"It runs on 1 x v100 of a{told}." in faster, "there is one h100"
    state.fleet.nodes["a"].suspect = True
    told = state.told("running", **place)
    assert told.startswith(
        "It ran on 1 x v100 of a when that was last heard of: node a has been silent"
    )
    assert "its leases are over, and unless it is back its jobs start elsewhere in 31 s" in told
    state = State()
    state.start(MINE, (0,), **TRAINS | {"step_age_s": 100.0})
    told = state.told("running", **place)
    assert told.startswith(
        "It stands still, and may hang: no step for 1 min 40 s. It holds 1 x v100 of"
    )
    state = State()
    start = state.start(MINE, (0,), **TRAINS)
    start.stopping = "moved"
    told = state.told("running", **place)
    assert "Its attempt 1 is being stopped (moved), and holds " in told
    assert "runs on" not in told


@pytest.mark.parametrize(
    ("code", "how"), [(0, " with exit code 0"), (3, " with exit code 3"), (None, "")]
)
def test_an_end_that_is_told_and_not_booked_is_said_to_be_one(code: int | None, how: str) -> None:
    """It was said to be past its last step, and its code behind the training loop to run."""
    state = State(a=2)
    plain = JobSpec(command=("true",), total_steps=8, unmanaged=True)
    state.job(MINE).spec = plain
    state.commit_error = "the disk is full"
    ended: dict[str, Any] = {
        "state": "ended",
        "ran_s": 6.0,
        "exit_code": code,
        "completed": code == 0,
    }
    state.start(MINE, (0,), **ended)
    told = state.told("running", node="a", accelerator="v100", devices=(0,))
    assert "no end of an attempt is booked: the disk is full." in told
    assert f"Its processes on a have ended{how}, which is not booked yet." in told
    assert not [false for false in ("loop", "runs on", "run on", "steps are done") if false in told]
    state.job(OTHER)
    waits = view(id=OTHER, state="waiting", rates={"v100": 1.0}, user_estimates={})
    told = " ".join(explanation_facts(state, waits))  # type: ignore[arg-type]
    assert "1 device held by job 1 ended, which is not booked yet" in told


def test_an_attempt_that_was_told_to_stop_and_is_over_holds_nothing_until_it_has_ended() -> None:
    state = State()
    state.start(MINE, (0,), state="ended", exit_code=-15).stopping = "preempted"
    told = state.told("preempted")
    assert "is being stopped (preempted); it is over on a, which is not booked yet." in told
    assert "until it has ended" not in told


def test_a_part_of_a_gang_that_has_ended_badly_is_not_said_to_have_ended_well() -> None:
    """Its node has told so, and the server has not taken it over."""
    state = State(a=1, b=1)
    row = state.job(MINE)
    record = AttemptRow(
        job=MINE, attempt=1, node="a,b", accelerator="v100", devices=(0, 0), began_s=state.now
    )
    gang = Attempt(row, record, ranks_on({"a": (0,), "b": (0,)}), 1.0, 0.0, ordered=True)
    state.registry.add(gang)
    state.say("a", AttemptStatus(job=MINE, attempt=1, state="ended", exit_code=3))
    state.say("b", AttemptStatus(job=MINE, attempt=1, state="running"))
    told = state.told("running", node="a,b", accelerator="v100", devices=(0, 0))
    assert "Its ranks on a have ended with exit code 3; others run on 1 x v100 of b." in told
    assert "It is complete" not in told


@pytest.mark.parametrize(
    ("saved_by", "end", "then"),
    [
        (
            3,
            AttemptEnd.PREEMPTED,
            "in 300 MB of memory, and can go on there at once, from step 77.",
        ),
        (
            3,
            AttemptEnd.RESTORED,
            "in 300 MB of memory, and can go on there at once, where it was parked.",
        ),
        (2, AttemptEnd.PREEMPTED, "in 300 MB of memory."),
    ],
)
def test_no_step_is_told_of_what_is_parked_that_may_be_of_another(
    saved_by: int, end: AttemptEnd, then: str
) -> None:
    """A restored server told the step of its backup."""
    state = State()
    state.job(MINE).saved_by = saved_by
    held = ParkedAttempt(job=MINE, attempt=3, ranks=(), memory_bytes=300_000_000, age_s=10.0)
    state.say("a", parked=(held,))
    ended = AttemptView(
        job=MINE, attempt=3, node="a", accelerator="v100", devices=(0,), began_s=0.0, ended_s=100.0,
        from_step=0.0, to_step=77.0, why="", wait_s=0.0, start_s=0.0, load_s=0.0, save_s=0.0,
        stop_s=0.0, lost_steps=0.0, end=end,
    )  # fmt: skip
    waits = view(id=MINE, state="preempted", steps=77.0, rates={"v100": 1.0}, user_estimates={})
    told = explanation_facts(state, waits, [ended])  # type: ignore[arg-type]
    (parked,) = (sentence for sentence in told if "parked" in sentence)
    assert parked == f"It has been parked on a for 10 s, {then}"


def test_a_job_that_is_not_tried_again_yet_says_so_whatever_is_free() -> None:
    state = State()
    state.job(MINE)
    state.registry.jobs[MINE].avoids = ("b",)
    told = state.told(retry_in_s=12.0, reason="failed: exit code 3")
    assert "failed: exit code 3" in told
    assert "free" not in told
    assert "off b" in told


def test_what_is_past_is_told_with_its_time() -> None:
    attempt = AttemptView(
        job=1, attempt=1, node="a", accelerator="v100", devices=(0,), began_s=0.0, ended_s=100.0,
        from_step=0.0, to_step=5.0, why="node lost", wait_s=0.0, start_s=0.0, load_s=0.0,
        save_s=0.0, stop_s=0.0, lost_steps=0.0, end=AttemptEnd.NODE_LOST,
    )  # fmt: skip
    waits = view(state="preempted", reason="node lost")
    assert (
        last_failure(waits, [attempt], 1_300.0) == "Its last attempt ended 20 min ago: node lost."
    )
    later = msgspec.structs.replace(attempt, attempt=2, ended_s=200.0, why="", end=AttemptEnd.MOVED)
    assert last_failure(waits, [attempt, later], 1_300.0) == ""
    again = msgspec.structs.replace(attempt, attempt=2, ended_s=None, why="", end=None)
    assert last_failure(view(state="running", reason="node lost"), [attempt, again], 1_300.0) == ""


def test_jobs_of_other_tenants_are_not_named_to_users() -> None:
    state = State()
    state.job(MINE)
    state.job(OTHER, "others")
    state.start(OTHER, (0,), **TRAINS | {"step_age_s": 100.0})
    assert "held by job 2 without" in state.told()
    told = state.told(tenant="t")
    assert "held by 1 job without" in told
    assert "job 2" not in told


def test_why_a_job_is_in_no_pair() -> None:
    state = State()
    state.job(MINE)
    state.job(OTHER)
    state.decide({MINE: 0.5, OTHER: 0.5}, packed=True)
    assert "It is in no pair: no rates of jobs beside each other are known" in state.told()
    for both, words in (
        ([[0.0, 0.0], [0.0, 0.0]], "nothing is known of how fast it is beside others"),
        ([[0.6, 0.6], [0.0, 0.0]], "of none of the jobs with as many devices is it known"),
        ([[0.4, 0.4], [0.4, 0.4]], "taking turns does as well"),
        ([[0.8, 0.8], [0.8, 0.8]], "would get 1.60 of what one gets alone"),
    ):
        state.decide({MINE: 0.5, OTHER: 0.5}, packed=True, pair=np.array(both)[:, :, None])
        assert words in state.told(starts=0)
    state.decide({MINE: 0.5, OTHER: 0.5})
    assert "pair" not in state.told()


def test_the_owner_is_told_how_far_off_the_stated_rate_was() -> None:
    assert stated(view()) == "You said 10 steps/s on v100, measured 6.8."


@pytest.mark.parametrize(
    "fields",
    [
        {"user_estimates": {}},
        {"user_estimates": {"k80": 10.0}},
        {"measured_rate": None},
        {"measured_rate": 9.5},
        {"measured_on": ""},
    ],
)
def test_nothing_is_said_where_nothing_is_off_or_known(fields: dict[str, object]) -> None:
    assert stated(view(**fields)) == ""


def test_a_job_left_out_of_decisions_on_purpose_has_not_just_joined() -> None:
    state = State()
    state.job(MINE)
    assert "It took no part in the last decision" in state.told(starts=1)
    state.scheduler.data.paused_jobs.add(MINE)
    assert "decision" not in state.told(starts=1)


@pytest.mark.parametrize("held", [TRAINS, {}], ids=["trained", "was starting"])
def test_devices_of_jobs_on_silent_nodes_are_said_to_be_held_there(held: dict[str, Any]) -> None:
    state = State(a=1, b=1)
    state.job(MINE)
    state.start(OTHER, (0,), **held)
    state.start(THIRD, (0,), node="b", **TRAINS)
    state.fleet.nodes["a"].suspect = True
    told = state.told()
    assert "1 device held by job 2 on nodes that are silent" in told
    assert "1 device held by job 3 in training" in told
    assert "still starting" not in told


def test_devices_of_jobs_on_nodes_not_heard_of_since_a_restart_are_said_to_be_held_there() -> None:
    state = State(a=1)
    state.job(MINE)
    state.start(OTHER, (0,))
    state.fleet.nodes["a"].observed.seen = 0.0
    assert "1 device held by job 2 on nodes that are silent" in state.told()


def test_of_an_attempt_that_is_stopped_on_a_silent_node_the_silence_is_told() -> None:
    state = State(a=1)
    state.start(MINE, (0,), **TRAINS).stopping = "preempted"
    assert "silent" not in state.told("preempted")
    state.fleet.nodes["a"].suspect = True
    told = state.told("preempted")
    assert "Its attempt 1 is being stopped (preempted)" in told
    assert "Node a has been silent for" in told


def test_a_job_that_its_agent_ends_is_not_said_to_be_starting() -> None:
    state = State(a=1)
    state.start(MINE, (0,), **TRAINS | {"state": "stopping", "reason": ORPHANED})
    told = state.told("running", node="a", accelerator="v100", devices=(0,))
    assert told.startswith(
        f"It is being ended on 1 x v100 of a: {ORPHANED}. It starts again when all of its processes have "
        "ended."
    )
    assert "begun to train" not in told


def test_a_program_that_is_parked_is_said_to_wait_for_its_own_devices() -> None:
    state = State(a=1, b=1)
    state.job(MINE)
    state.start(OTHER, (0,), **TRAINS)
    state.bound_devices[MINE] = (("a", 0), ("b", 0))
    state.decide({MINE: 0.5, OTHER: 0.5})
    told = state.told()
    assert "It goes on with devices 0 of a and 0 of b (1 of 2 held by others now): others" in told
    del state.bound_devices[MINE]
    assert "It goes on with" not in state.told()


def test_a_program_that_is_parked_is_told_what_it_must_be_owed() -> None:
    state = State(a=1)
    state.job(MINE)
    state.bound_devices[MINE] = (("a", 0),)
    assert "It goes on with device 0 of a (free now)." in state.told()
    state.start(OTHER, (0,), **TRAINS)
    state.decide({MINE: 0.5, OTHER: 0.5})
    preemption = PreemptionState(
        time_s=state.now, hysteresis=40.0, accelerator=np.array([0]), free=np.array([0]),
        can_run=np.ones((2, 1), np.bool_), scale=np.ones(2, np.int64),
        share=np.full((2, 1), 0.5), owed_s=np.array([[20.0], [0.0]]),
        start_s=np.array([1.0, 98.0]), running_on=np.array([-1, 0]), stays=np.zeros(2, np.bool_),
        new=np.zeros(2, np.bool_), anew_s=np.array([30.0, np.inf]),
    )  # fmt: skip

    def told(**more: Any) -> str:
        changed = dataclasses.replace(preemption, **more)
        state.decided = dataclasses.replace(state.decided, preemption=changed)
        return state.told()

    others = "(1 of 1 held by others now): others leave them once it is owed 1 min 38 s"
    anew = "it begins anew on other devices once it is owed 30 s, what it would lose by that."
    assert others in told()
    assert f"{anew} It is owed 20 s, and enough in about 20 s if nothing changes." in told()
    assert "enough in about 10 s" in told(start_s=np.array([1.0, 25.0])), "they leave before that"
    enough = "It is owed 20 s, which is enough; it goes on with the next decision for which nobody"
    assert enough in told(anew_s=np.array([15.0, np.inf])), "and others may be owed as much"
    assert f"others keep them for now; {anew}" in told(start_s=np.array([1.0, 1e9]))
    state.bound_devices[OTHER] = (("a", 0),)
    assert "(1 of 1 held by others now): programs of the same devices take turns." in told()
