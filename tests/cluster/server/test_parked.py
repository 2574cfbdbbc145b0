"""Which attempts go on with what is parked, and what is of no use any more."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cluster.server_nodes import EngineNodes, engine_nodes
from tests.cluster.server_parts import AttemptParts, add_node, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    AttemptStatus,
    NodeReport,
    Orders,
    ParkedAttempt,
    Rank,
)
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.server.lost_work import lost_by_drain, lost_by_pause
from fairlead.cluster.server.parked import ParkedPrograms, ProgramDevices, parked_on, unpark_useless
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import DevicesBound
from fairlead.model.job import JobId

JOB = 7


class Cluster:
    """Two nodes, and a job whose attempt 3 saved last."""

    def __init__(self, simulated: bool = True) -> None:
        self.fleet = Fleet(10.0, 0.01, lambda: 100.0, lambda _: None)
        self.front = LocalFront(self.fleet)
        self.state: ClusterState = cluster_state(self.fleet, lambda: 100.0)
        self.parts = AttemptParts(self.state)
        self.row = JobRow(
            id=JOB, name="", tenant="t", user="u", spec=JobSpec(command=("x",), total_steps=100),
            submitted_s=0.0, total_steps=100.0, acknowledged_total=100.0, state="preempted",
            attempt=3, saved_by=3, saved_step=40,
        )  # fmt: skip
        self.state.registry.jobs[JOB] = self.row
        self.seq = 0
        for name in ("a", "b"):
            add_node(self.fleet, name, 2, simulated_devices=simulated)
        self.fleet.publish()

    def report(self, node: str, *parked: ParkedAttempt) -> None:
        self.seq += 1
        self.front.report(
            NodeReport(node=node, incarnation=f"{node}.1", seq=self.seq, holds=(), parked=parked)
        )

    def resumes(self, placement: dict[str, tuple[int, ...]]) -> int:
        return self.parts.orders.assign(JOB, placement, "v100", 100.0).resumes

    def unparked(self, node: str) -> tuple[tuple[int, int], ...]:
        unpark_useless(self.state)
        self.fleet.publish()
        return self.fleet.orders(node).unpark


def parked(attempt: int = 3, *devices: int, first: int = 0) -> ParkedAttempt:
    ranks = tuple(Rank(rank=first + i, devices=(d,)) for i, d in enumerate(devices or (0,)))
    return ParkedAttempt(job=JOB, attempt=attempt, ranks=ranks, memory_bytes=5, age_s=1.0)


@pytest.mark.parametrize(
    ("attempt", "placement", "expected"),
    [
        (3, {"a": (0,)}, 3),
        (3, {"a": (1,)}, 3),
        (3, {"b": (0,)}, 0),
        (3, {"a": (0, 1)}, 0),
        (2, {"a": (0,)}, 0),
    ],
    ids=["same device", "other device", "other node", "more ranks", "older than the checkpoint"],
)
def test_a_start_goes_on_with_what_is_parked_there(
    attempt: int, placement: dict[str, tuple[int, ...]], expected: int
) -> None:
    cluster = Cluster()
    cluster.report("a", parked(attempt))
    assert cluster.resumes(placement) == expected


def test_a_process_stays_on_its_real_device() -> None:
    for device, expected in ((0, 3), (1, 0)):
        cluster = Cluster(simulated=False)
        cluster.report("a", parked(3, 0))
        assert cluster.resumes({"a": (device,)}) == expected


def test_a_gang_goes_on_as_a_whole_or_starts() -> None:
    for both, expected in ((True, 3), (False, 0)):
        cluster = Cluster()
        cluster.report("a", parked(3, 0))
        if both:
            cluster.report("b", parked(3, 1, first=1))
        assert cluster.resumes({"a": (0,), "b": (1,)}) == expected


def _nothing(_: Cluster) -> None: ...


def _elsewhere(cluster: Cluster) -> None:
    cluster.resumes({"b": (0,)})


def _goes_on(cluster: Cluster) -> None:
    assert cluster.resumes({"a": (0,)}) == 3


def _cannot_be_ordered_yet(cluster: Cluster) -> None:
    cluster.resumes({"b": (0,)})
    cluster.parts.orders.stop(JOB, AttemptEnd.MOVED)
    cluster.resumes({"a": (0,)})  # behind the one on b


def _set(**fields: Any) -> Any:
    def change(cluster: Cluster) -> None:
        for name, value in fields.items():
            setattr(cluster.row, name, value)

    return change


@pytest.mark.parametrize(
    ("what", "useless"),
    [
        (_nothing, False),
        (_goes_on, False),
        (_elsewhere, True),
        (_cannot_be_ordered_yet, False),
        (_set(state="paused"), True),
        (_set(state="cancelled"), True),
        (_set(saved_by=5), True),
        (_set(state="waiting"), False),
    ],
)
def test_what_will_not_go_on_is_ended(what: Any, useless: bool) -> None:
    cluster = Cluster()
    cluster.report("a", parked())
    what(cluster)
    assert cluster.unparked("a") == (((JOB, 3),) if useless else ())
    cluster.report("a")
    assert cluster.unparked("a") == (), "it is said no more"
    assert parked_on(cluster.fleet, JOB) == {}


def test_a_job_that_is_not_known_is_ended() -> None:
    cluster = Cluster()
    del cluster.state.registry.jobs[JOB]
    cluster.report("a", parked())
    assert cluster.unparked("a") == ((JOB, 3),)


def _suspended() -> Cluster:
    cluster = Cluster()
    cluster.row.spec = JobSpec(command=("x",), total_steps=100, unmanaged=True, park="stop")
    return cluster


def test_a_program_that_is_stopped_as_it_is_stays_on_its_devices() -> None:
    for device, expected in ((0, 3), (1, 0)):
        cluster = _suspended()
        cluster.report("a", parked(3, 0))
        assert cluster.resumes({"a": (device,)}) == expected


def test_a_node_that_registers_says_what_is_parked_there() -> None:
    cluster = Cluster()
    add_node(cluster.fleet, "a", 2, simulated_devices=True, parked=(parked(3, 0),))
    assert cluster.resumes({"a": (0,)}) == 3


def test_what_is_parked_of_an_attempt_whose_end_is_not_booked_yet_stays() -> None:
    """Of a program without the iterator, what is parked counts as saved from then on only."""
    cluster = Cluster()
    cluster.resumes({"a": (0,)})
    cluster.report("a", parked(4))
    assert cluster.unparked("a") == ()


def test_a_program_that_is_no_longer_parked_starts_from_zero() -> None:
    """What it had done was in its memory alone: it counts as lost with its next attempt."""
    cluster = _suspended()
    cluster.row.steps = 40.0
    programs = ParkedPrograms(cluster.state, cluster.parts.steps)
    cluster.report("a", parked())
    programs.poll()
    assert cluster.row.steps == 40
    cluster.report("a")
    programs.poll()
    assert (cluster.row.steps, cluster.row.reached_step) == (0, 40)
    attempt = cluster.parts.orders.assign(JOB, {"b": (0,)}, "v100", 100.0)
    attempt.statuses["b"] = AttemptStatus(job=JOB, attempt=4, state="running", ran_s=1.0)
    cluster.parts.intake.begin_unmanaged(attempt)
    assert (cluster.row.steps, cluster.row.lost_steps, cluster.row.reached_step) == (0, 40, 0)


def test_a_program_that_goes_on_keeps_what_it_has_done() -> None:
    cluster = _suspended()
    cluster.row.steps = 40.0
    programs = ParkedPrograms(cluster.state, cluster.parts.steps)
    cluster.report("a", parked())
    programs.poll()
    assert cluster.resumes({"a": (0,)}) == 3
    cluster.report("a")
    programs.poll()
    assert cluster.row.steps == 40


def test_who_pauses_a_parked_program_is_told_what_is_lost() -> None:
    cluster = _suspended()
    cluster.row.steps = 1234.0
    assert lost_by_pause(cluster.state, cluster.row, {}) == []
    cluster.report("a", parked())
    (told,) = lost_by_pause(cluster.state, cluster.row, {})
    assert told == f"job {JOB}: its 1,234 steps are lost: its program was parked, and is ended"
    assert cluster.resumes({"a": (0,)}) == 3
    assert lost_by_pause(cluster.state, cluster.row, {}) == [told], "it has not gone on yet"


def test_what_is_left_of_a_gang_is_ended() -> None:
    cluster = _suspended()
    programs = ParkedPrograms(cluster.state, cluster.parts.steps)
    cluster.report("a", parked(3, 0))
    cluster.report("b", parked(3, 1, first=1))
    programs.poll()
    assert cluster.unparked("a") == ()
    cluster.report("b")
    programs.poll()
    assert cluster.unparked("a") == ((JOB, 3),)


def test_who_drains_a_node_is_told_of_the_programs_that_are_parked_there() -> None:
    cluster = _suspended()
    cluster.row.steps = 40.0
    cluster.report("a", parked())
    (told,) = lost_by_drain(cluster.state, "a", {})
    assert told.startswith(f"job {JOB}: its 40 steps are lost: its program was parked, and starts")
    assert lost_by_drain(cluster.state, "b", {}) == []


def test_after_a_restart_of_the_server_an_attempt_is_still_said_to_go_on_where_it_did() -> None:
    cluster = _suspended()
    cluster.report("a", parked())
    attempt = cluster.parts.orders.assign(JOB, {"a": (0,)}, "v100", 100.0)
    told = AttemptStatus(job=JOB, attempt=4, state="running", ran_s=1.0, resumed=True)
    for resumes in (3, 0):  # which a server of an earlier version did not write down
        attempt.resumes = resumes
        attempt.statuses["a"] = told
        cluster.parts.intake.begin_unmanaged(attempt)
        assert cluster.row.origin == "resumed where attempt 3 was parked"


class _Bound:
    """A core that knows the job."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        fields: dict[str, Any] = {"unmanaged": True, "park": "stop", "scale_factor": 2}
        cluster.row.spec = msgspec.structs.replace(cluster.row.spec, **fields)
        self.known: dict[int, tuple[tuple[str, int], ...]] = {}
        data: Any = SimpleNamespace(
            bound_jobs=SimpleNamespace(devices=self.known),
            ledger={JobId(JOB)},
            paused_jobs=set[int](),
        )
        core: Any = SimpleNamespace(data=data)
        cluster.state.scheduler = core
        self.suspends = True
        self.binder = ProgramDevices(cluster.state, lambda _: self.suspends)

    def told(self) -> list[tuple[tuple[str, int], ...]]:
        """What the core is told, which it knows from then on."""
        self.cluster.fleet.publish()
        self.cluster.state.events.clear()
        self.binder.tell()
        events = [one for one in self.cluster.state.events if isinstance(one, DevicesBound)]
        self.known.update({one.job: one.devices for one in events})
        return [one.devices for one in events]


def test_the_core_is_told_where_a_program_runs_and_is_parked() -> None:
    cluster = Cluster()
    bound = _Bound(cluster)
    assert bound.told() == []
    cluster.report("a", parked(3, 1))
    assert bound.told() == [], "of one rank of two: it cannot go on"
    cluster.report("b", parked(3, 0, first=1))
    assert bound.told() == [(("a", 1), ("b", 0))]
    assert bound.told() == [], "it is told once"
    cluster.fleet.nodes["b"].drained = True
    assert bound.told() == [()], "it is not to go on there"


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_program_that_runs_is_bound_if_it_can_be_parked(goes_on: bool) -> None:
    cluster = Cluster()
    bound = _Bound(cluster)
    bound.suspends = goes_on
    attempt = cluster.parts.orders.assign(JOB, {"a": (0, 1)}, "v100", 100.0)
    assert bound.told() == ([(("a", 0), ("a", 1))] if attempt.ordered and goes_on else [])
    cluster.parts.orders.stop(JOB, AttemptEnd.PREEMPTED)
    assert bound.told() == [], "it is about to be parked"
    attempt.lost = True
    assert bound.told() == ([()] if goes_on else [])


def test_a_program_is_bound_to_where_it_is_parked_while_its_node_is_silent_for_a_moment() -> None:
    cluster = Cluster()
    bound = _Bound(cluster)
    cluster.row.steps = 40.0
    cluster.report("a", parked(3, 0, 1))
    attempt = cluster.parts.orders.assign(JOB, {"a": (0, 1)}, "v100", 100.0)
    assert bound.told() == [(("a", 0), ("a", 1))]
    assert attempt.resumes == 3
    attempt.lost = True  # its node said nothing, and it was withdrawn before it went on
    assert bound.told() == [], "it is still bound"
    assert attempt.resumable_steps() == 40, "nothing is lost"
    cluster.report("a")
    assert bound.told() == [()], "it went on, and is lost with that"


def _ordered_to_go_on() -> tuple[Cluster, Attempt]:
    """A program that was parked at step 40 and is ordered to go on, while its node is silent."""
    cluster = _suspended()
    cluster.row.steps = cluster.row.acknowledged_steps = 40.0
    cluster.report("a", parked())
    attempt = cluster.parts.orders.assign(JOB, {"a": (0,)}, "v100", 100.0)
    assert attempt.resumes == 3
    return cluster, attempt


@pytest.mark.parametrize(
    "heard", [False, True], ids=["its node said nothing", "it was over at once"]
)
def test_a_given_up_start_that_never_began_loses_nothing_of_a_parked_program(heard: bool) -> None:
    cluster, attempt = _ordered_to_go_on()
    row, parts = cluster.row, cluster.parts
    attempt.stop(AttemptEnd.PREEMPTED, "node a is suspect")
    if heard:
        attempt.statuses["a"] = AttemptStatus(job=JOB, attempt=4, state="ended", exit_code=0)
    parts.ends.part_over("a", attempt)
    assert (row.steps, row.lost_steps, row.lost_device_s) == (40, 0, 0)
    assert (attempt.record.to_step, attempt.record.lost_steps) == (40, 0)
    following = parts.orders.assign(JOB, {"a": (0,)}, "v100", 100.0)
    assert (following.resumes, following.record.from_step) == (3, 40)
    told = AttemptStatus(job=JOB, attempt=5, state="running", wait_s=0.1, ran_s=2.0, resumed=True)
    following.statuses["a"] = told
    parts.intake.begin_unmanaged(following)
    assert (following.done(), row.lost_steps) == (42, 0)


def test_a_restarted_server_has_a_program_go_on_that_it_had_ordered_to(tmp_path: Path) -> None:
    there = (ParkedAttempt(job=0, attempt=1, ranks=(Rank(rank=0, devices=(0,)),), age_s=1.0),)

    def ordered(cluster: EngineNodes) -> Orders:
        node = cluster.node("one")
        cluster.silence(node)  # what is parked there is said at each report, by this test
        node.register(parked=there)
        return cluster.until(lambda: (o := node.say(parked=there)).desired and o)  # type: ignore[no-any-return]

    with engine_nodes(tmp_path) as cluster:
        assert cluster.submit(unmanaged=True, park="stop") == 0
        row = cluster.service.engine.state.registry.jobs[0]

        def as_if_parked() -> None:
            row.attempt = row.saved_by = 1
            row.steps = 40.0

        cluster.do(as_if_parked)
        assert [one.resumes for one in ordered(cluster).desired] == [1]
    with engine_nodes(tmp_path) as cluster:
        found = ordered(cluster)
        assert [(one.attempt, one.resumes) for one in found.desired] == [(2, 1)]
        assert found.unpark == ()


def test_a_program_that_went_on_and_was_ended_is_lost() -> None:
    cluster, attempt = _ordered_to_go_on()
    attempt.stop(AttemptEnd.STOPPED)
    attempt.statuses["a"] = AttemptStatus(
        job=JOB, attempt=4, state="ended", exit_code=0, wait_s=0.1, ran_s=2.0, resumed=True
    )
    cluster.parts.ends.part_over("a", attempt)
    assert (cluster.row.steps, cluster.row.lost_steps) == (0, 42)


def _gang_that_went_on_on_one_node() -> tuple[Cluster, Attempt]:
    """A gang that was parked at step 40 as of attempt 3, and was preempted as attempt 4 when only node a had
    let its rank go on; b had been silent, and never begins that attempt."""
    cluster = _suspended()
    row = cluster.row
    row.spec = msgspec.structs.replace(row.spec, scale_factor=2)
    row.steps = row.acknowledged_steps = 40.0
    row.parked_from = 2  # its second attempt began it, the third went on with it
    cluster.report("a", parked(3, 0))
    cluster.report("b", parked(3, 1, first=1))
    attempt = cluster.parts.orders.assign(JOB, {"a": (0,), "b": (1,)}, "v100", 100.0)
    assert attempt.resumes == 3
    attempt.statuses["a"] = AttemptStatus(
        job=JOB, attempt=4, state="ended", exit_code=0, wait_s=0.1, ran_s=2.0, resumed=True,
        released=True, reason="preempted",
    )  # fmt: skip
    attempt.stop(AttemptEnd.PREEMPTED)
    cluster.report("a", parked(4, 0))
    return cluster, attempt


@pytest.mark.parametrize("first", [True, False])
def test_a_gang_of_which_a_node_has_ended_goes_on_on_the_other(first: bool) -> None:
    """Its progress is that of the ranks that still run, and nothing is lost when these are parked."""
    cluster = _suspended()
    row = cluster.row
    row.spec = msgspec.structs.replace(row.spec, scale_factor=2)
    row.saved_by = row.attempt = 0
    attempt = cluster.parts.orders.assign(JOB, {"a": (0,), "b": (1,)}, "v100", 100.0)
    ended, runs = ("a", "b") if first else ("b", "a")
    status = AttemptStatus(job=JOB, attempt=1, state="ended", exit_code=0, wait_s=0.1, ran_s=2.0)
    attempt.statuses[ended] = status
    on = AttemptStatus(job=JOB, attempt=1, state="running", wait_s=0.1, ran_s=30.0)
    attempt.statuses[runs] = on
    assert attempt.progress() == 30 * attempt.rate
    assert f"its {30 * attempt.rate:.0f} steps are lost" in lost_by_pause(cluster.state, row, {})[0]
    attempt.stop(AttemptEnd.PREEMPTED)
    cluster.report(ended, parked(1, 0 if ended == "a" else 1, first=0 if ended == "a" else 1))
    cluster.report(runs, parked(1, 0 if runs == "a" else 1, first=0 if runs == "a" else 1))
    done = {"state": "ended", "exit_code": 0, "terminated": True, "released": True}
    attempt.statuses[runs] = msgspec.structs.replace(on, **done)
    cluster.parts.ends.part_over(ended, attempt)
    cluster.parts.ends.part_over(runs, attempt)
    assert (row.steps, row.lost_steps, row.saved_by) == (30 * attempt.rate, 0, 1)
    following = cluster.parts.orders.assign(JOB, {"a": (0,), "b": (1,)}, "v100", 100.0)
    assert following.resumes == 1
    through = AttemptStatus(job=JOB, attempt=2, state="ended", exit_code=0, resumed=True)
    following.statuses[ended] = through
    following.statuses[runs] = msgspec.structs.replace(on, attempt=2, ran_s=5.0, resumed=True)
    assert following.has_begun
    assert following.progress() == 35 * attempt.rate


@pytest.mark.parametrize("heard", [False, True], ids=["it was not told", "it was withdrawn"])
def test_a_gang_that_went_on_on_one_node_only_is_parked_again_as_a_whole(heard: bool) -> None:
    cluster, attempt = _gang_that_went_on_on_one_node()
    row, parts = cluster.row, cluster.parts
    programs = ParkedPrograms(cluster.state, parts.steps)
    programs.poll()
    assert cluster.unparked("a") == cluster.unparked("b") == ()
    if heard:
        attempt.statuses["b"] = AttemptStatus(job=JOB, attempt=4, state="ended")
    parts.ends.part_over("a", attempt)
    parts.ends.part_over("b", attempt)
    programs.poll()
    assert (row.steps, row.lost_steps, row.saved_by) == (40, 0, 4)
    assert cluster.unparked("a") == cluster.unparked("b") == ()
    following = parts.orders.assign(JOB, {"a": (0,), "b": (1,)}, "v100", 100.0)
    assert (following.resumes, following.record.from_step) == (4, 40)
    assert cluster.unparked("a") == cluster.unparked("b") == ()
    cluster.report("a")  # both went on, and stopped again
    cluster.report("b")
    programs.poll()
    cluster.report("a", parked(5, 0))
    cluster.report("b", parked(5, 1, first=1))
    for name in ("a", "b"):
        following.statuses[name] = msgspec.structs.replace(attempt.statuses["a"], attempt=5)
    following.stop(AttemptEnd.PREEMPTED)
    for name in ("a", "b"):
        parts.ends.part_over(name, following)
    programs.poll()
    assert (row.steps, row.lost_steps, row.saved_by, row.parked_from) == (42, 0, 5, 2)


def test_a_gang_of_which_one_node_has_lost_its_part_is_gone() -> None:
    cluster, attempt = _gang_that_went_on_on_one_node()
    cluster.report("b")
    for name in ("a", "b"):
        cluster.parts.ends.part_over(name, attempt)
    assert cluster.row.steps == 0
    assert cluster.unparked("a") == ((JOB, 4),)


def test_the_part_of_a_gang_that_never_went_on_is_missed_when_it_ends() -> None:
    cluster, attempt = _gang_that_went_on_on_one_node()
    programs = ParkedPrograms(cluster.state, cluster.parts.steps)
    for name in ("a", "b"):
        cluster.parts.ends.part_over(name, attempt)
    programs.poll()
    assert cluster.row.steps == 40
    cluster.report("b")
    programs.poll()
    assert (cluster.row.steps, cluster.row.saved_by) == (0, 0)
    assert cluster.unparked("a") == ((JOB, 4),)


def test_what_is_parked_of_a_program_that_began_anew_since_is_no_part_of_it() -> None:
    """It began anew on other nodes while this one was silent: what is parked here would not fit the rest."""
    cluster = _suspended()
    cluster.row.parked_from = cluster.row.saved_by = 3
    cluster.row.spec = msgspec.structs.replace(cluster.row.spec, scale_factor=2)
    cluster.report("a", parked(3, 0))
    cluster.report("b", parked(2, 1, first=1))
    assert cluster.resumes({"a": (0,), "b": (1,)}) == 0
    assert cluster.unparked("b") == ((JOB, 2),)


def test_an_attempt_that_began_a_program_anew_is_noted() -> None:
    cluster = _suspended()
    cluster.row.parked_from, cluster.row.saved_by = 2, 3
    attempt = cluster.parts.orders.assign(JOB, {"a": (0,)}, "v100", 100.0)
    attempt.statuses["a"] = AttemptStatus(
        job=JOB, attempt=4, state="ended", exit_code=0, wait_s=0.1, ran_s=2.0, released=True
    )
    attempt.stop(AttemptEnd.PREEMPTED)
    cluster.parts.ends.part_over("a", attempt)
    assert (cluster.row.saved_by, cluster.row.parked_from) == (4, 4)


@pytest.mark.parametrize("park", ["stop", False])
def test_a_gang_one_node_of_which_is_suspect_is_parked_where_it_can_be(
    tmp_path: Path, park: Any
) -> None:
    """Its other nodes are told what they are told of a preemption: it need not lose what it has done."""
    with engine_nodes(tmp_path, 600.0, lease_s=60.0) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2, unmanaged=True, park=park)
        cluster.until(lambda: all(node.leased & node.statuses.keys() for node in nodes))
        for node in nodes:
            node.run(job, 1, wait_s=0.0, ran_s=5.0)
        cluster.until(lambda: cluster.job(job).state == "running")
        attempt = cluster.service.engine.state.registry.newest(job)
        assert attempt is not None
        cluster.silence(nodes[1])
        cluster.until(lambda: cluster.view("b").state == "suspect")
        cluster.do(lambda: cluster.service.engine.state.disable("b"))  # as before a decision
        cluster.until(lambda: attempt.stopping)
        assert attempt.end() == (AttemptEnd.STOPPED, "node b is suspect")
        fleet = cluster.service.engine.state.fleet
        expected = "preempted" if park else "node b is suspect"
        cluster.until(lambda: fleet.orders("a").reasons.get(job) == expected)


def test_other_jobs_are_bound_to_nothing() -> None:
    cluster = Cluster()
    bound = _Bound(cluster)
    cluster.row.spec = msgspec.structs.replace(cluster.row.spec, unmanaged=False, park=True)
    cluster.parts.orders.assign(JOB, {"a": (0, 1)}, "v100", 100.0)
    assert bound.told() == []
