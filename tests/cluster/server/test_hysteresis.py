"""When a waiting job takes its turn is told as it then comes to be."""

from dataclasses import replace

import numpy as np
import pytest
from tests.small import TABLE, job

from fairlead.cluster.server.hysteresis import PreemptionState, PreemptionTime, next_preemption
from fairlead.model.cluster import Cluster
from fairlead.model.commands import StartRound
from fairlead.model.job import RestartCosts
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup, build
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth

ROUND_S = 360.0
COSTS = RestartCosts(60.0)


@pytest.mark.parametrize("weight", [1.0, 5.0])
def test_a_turn_comes_with_the_first_round_after_it_is_told_to(weight: float) -> None:
    what = Setup(
        version="0", cluster=Cluster.of({"fast": 1}, 1), throughputs=TABLE, policy="las",
        settings=DEFAULT, seed=0, restart_costs=COSTS,
    )  # fmt: skip
    core = build(what)
    two = [job(0, 0.0, 1e7, 1), job(1, 0.0, 1e7, 1)]
    two[1] = replace(two[1], job=replace(two[1].job, weight=weight))
    backend = SimBackend(
        two, what.cluster, TABLE, core.data.planning.planner.solve, GroundTruth(COSTS)
    )
    told: list[tuple[float, PreemptionTime]] = []
    turns = 0
    runs = -1
    while turns < 12 and (event := backend.next()) is not None:
        for command in core.handle(event):
            backend.perform(command)
            if not isinstance(command, StartRound) or not len(command.job_groups):
                continue
            now_s, before = command.time_s, runs
            runs = int(command.job_groups[0, 0])
            if before >= 0 and runs != before:
                turns += 1
                for then_s, turn in told[1:] if turns > 2 else ():
                    assert turn.at_s <= now_s + 1e-6, (then_s, turn)
                    assert now_s - turn.at_s <= ROUND_S + 1e-6, (then_s, turn)
                told = []
            preemption = PreemptionState.of(core, now_s)
            assert preemption is not None
            found = next_preemption(preemption, 1 - runs)
            assert found is not None
            told.append((now_s, found))
    assert turns == 12


def test_who_is_left_to_finish_is_not_waited_for_by_the_clock() -> None:
    preemption = PreemptionState(
        time_s=100.0, hysteresis=40.0, accelerator=np.array([0]), free=np.array([0]),
        can_run=np.ones((3, 1), np.bool_), scale=np.array([1, 2, 1]),
        share=np.array([[0.5], [0.25], [0.25]]), owed_s=np.array([[10.0], [0.0], [30.0]]),
        start_s=np.full(3, 40.0), running_on=np.array([-1, 0, 0]),
        stays=np.array([False, True, False]), new=np.zeros(3, np.bool_),
        anew_s=np.full(3, np.inf),
    )  # fmt: skip
    # 10 + t/2 exceeds 40, and 40 + 30 - 3t/4
    assert next_preemption(preemption, 0) == PreemptionTime(0, 10.0, 40.0, 160.0)
    alone = replace(preemption, stays=np.array([False, True, True]))
    found = next_preemption(alone, 0)
    assert found is not None
    assert found.at_s == np.inf
    fresh = replace(preemption, new=np.array([True, False, False]))
    assert next_preemption(fresh, 0) == PreemptionTime(0, 10.0, 18.0, 116.0)
    assert next_preemption(replace(preemption, share=np.zeros((3, 1))), 0) is None
    assert next_preemption(replace(preemption, can_run=np.zeros((3, 1), np.bool_)), 0) is None


def test_free_devices_need_not_be_taken_from_anybody() -> None:
    waits = PreemptionState(
        time_s=100.0, hysteresis=40.0, accelerator=np.array([0, 1]), free=np.array([2, 2]),
        can_run=np.array([[True, False], [True, True]]), scale=np.array([3, 1]),
        share=np.array([[0.5, 0.5], [0.5, 0.5]]), owed_s=np.zeros((2, 2)), start_s=np.full(2, 60.0),
        running_on=np.array([-1, 0]), stays=np.zeros(2, np.bool_), new=np.zeros(2, np.bool_),
        anew_s=np.full(2, np.inf),
    )  # fmt: skip
    found = next_preemption(waits, 0)  # one device more is enough: 3t/2 exceeds 60
    assert found == PreemptionTime(0, 0.0, 60.0, 140.0)
    assert next_preemption(replace(waits, free=np.array([3, 2])), 0) == PreemptionTime(
        0, 0.0, 0.0, 100.0
    )


@pytest.mark.parametrize("policy", ["las", "las_packed"])
@pytest.mark.parametrize("slow", [1, 0], ids=["two types", "one type"])
def test_turns_of_a_core_are_on_its_slots(policy: str, slow: int) -> None:
    cluster = Cluster.of({"fast": 2} | ({"slow": slow} if slow else {}), 1)
    what = Setup(
        version="0", cluster=cluster, throughputs=TABLE, policy=policy,
        settings=DEFAULT, seed=0, restart_costs=COSTS,
    )  # fmt: skip
    core = build(what)
    jobs = [job(number, 0.0, 1e7, 1 + number % 2) for number in range(6)]
    backend = SimBackend(
        jobs, what.cluster, TABLE, core.data.planning.planner.solve, GroundTruth(COSTS)
    )
    seen = 0
    while seen < 20 and (event := backend.next()) is not None:
        for command in core.handle(event):
            backend.perform(command)
            if not isinstance(command, StartRound) or not len(command.job_groups):
                continue
            state = PreemptionState.of(core, command.time_s)
            assert state is not None
            slots = len(state.accelerator)
            assert state.can_run.shape == state.share.shape == (len(state.scale), slots)
            for group in range(len(state.scale)):
                turn = next_preemption(state, group)
                assert turn is None or 0 <= turn.slot < slots
                seen += turn is not None
    assert seen
