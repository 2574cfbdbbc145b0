import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.small import TABLE, core, job

from fairlead.cluster.server.solver import Solver, SolveTimeoutError
from fairlead.errors import SolveError
from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Solve
from fairlead.model.events import JobsSubmitted
from fairlead.model.plan import PlannerAnswer
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.settings import DEFAULT

LONG_S = 180.0  # for a slow machine


def asks(policy: str = "las_aware") -> tuple[Scheduler, Solve]:
    """A scheduler with a few jobs, and the solve that it asks for."""
    scheduler = core(Cluster.of({"fast": 2, "slow": 2}), TABLE, policy)
    jobs = tuple(job(i, 0.0, 1000.0 * (i + 1)).job for i in range(7))
    (solve,) = (c for c in scheduler.handle(JobsSubmitted(0.0, jobs)) if isinstance(c, Solve))
    return scheduler, solve


def submit(solver: Solver, solve: Solve, policy: str = "las_aware") -> "Future[PlannerAnswer]":
    return solver.submit(policy, 0, DEFAULT, solve.snapshot, solve.state)


def error(answer: "Future[PlannerAnswer]") -> str:
    problem = answer.exception(LONG_S)
    assert isinstance(problem, SolveError)
    return str(problem)


@pytest.fixture(scope="module")
def solver() -> Iterator[Solver]:
    """One for all tests: each leaves it able to solve."""
    with Solver(limit_s=LONG_S) as started:
        yield started


@pytest.mark.parametrize("policy", ["las_aware", "makespan_packed", "finish_time_aware"])
def test_the_answer_is_that_of_a_solve_in_this_process(solver: Solver, policy: str) -> None:
    scheduler, solve = asks(policy)
    answer = submit(solver, solve, policy).result(LONG_S)
    here = scheduler.data.planning.planner.solve(solve.snapshot, solve.state)
    assert isinstance(answer, Allocation)
    assert isinstance(here, Allocation)
    assert np.array_equal(answer.job_groups, here.job_groups)
    assert np.array_equal(answer.share, here.share)
    assert answer.report == here.report


def test_what_the_scheduler_changes_later_does_not_matter(solver: Solver) -> None:
    _, solve = asks()
    expected = submit(solver, solve).result(LONG_S)
    os.kill(_pid(solver), signal.SIGSTOP)
    answer = submit(solver, solve)
    solve.snapshot.weight[:] = 99.0
    solve.snapshot.rate[:] = 0.0
    os.kill(_pid(solver), signal.SIGCONT)
    share = answer.result(LONG_S)
    assert isinstance(share, Allocation)
    assert isinstance(expected, Allocation)
    assert np.array_equal(share.share, expected.share)


def test_a_policy_that_is_not_known_or_fails_is_an_error_and_the_next_solve_works(
    solver: Solver,
) -> None:
    _, solve = asks()
    assert error(submit(solver, solve, "no_such")).startswith("policy 'no_such': no such policy")
    broken = solver.submit("las_aware", 0, DEFAULT, None, None)  # type: ignore[arg-type]
    assert error(broken).startswith("las_aware: AttributeError: 'NoneType' object")
    pid = solver.pid
    submit(solver, solve).result(LONG_S)
    assert solver.pid == pid


def test_a_child_that_is_killed_is_replaced(solver: Solver) -> None:
    _, solve = asks()
    submit(solver, solve).result(LONG_S)
    os.kill(_pid(solver), signal.SIGSTOP)
    answer = submit(solver, solve)
    os.kill(_pid(solver), signal.SIGKILL)
    assert error(answer) == "the solver's process was killed by signal 9 (out of memory?)"
    submit(solver, solve).result(LONG_S)
    os.kill(_pid(solver), signal.SIGTERM)  # while nobody waits for it
    psutil.Process(_pid(solver)).wait(LONG_S)


def test_a_solve_can_be_given_up(solver: Solver) -> None:
    _, solve = asks()
    submit(solver, solve).result(LONG_S)
    os.kill(_pid(solver), signal.SIGSTOP)
    answer = submit(solver, solve)
    until = time.monotonic() + LONG_S
    while solver.busy_s is None:
        assert time.monotonic() < until, "the solver does not begin"
        time.sleep(0.01)
    assert solver.give_up("the policy has changed")
    assert error(answer) == "the policy has changed"
    assert not isinstance(answer.exception(), SolveTimeoutError)
    submit(solver, solve).result(LONG_S)
    assert solver.busy_s is None
    solver.give_up()  # nothing is under way: nothing happens
    submit(solver, solve).result(LONG_S)


def test_a_solve_that_takes_too_long_is_an_error_and_the_next_one_works() -> None:
    _, solve = asks()
    with Solver(limit_s=LONG_S) as solver:
        submit(solver, solve).result(LONG_S)
        solver.limit_s = 0.2
        os.kill(_pid(solver), signal.SIGSTOP)
        answer = submit(solver, solve)
        assert error(answer) == "no answer within 0.2 s"
        assert isinstance(answer.exception(), SolveTimeoutError)
        solver.limit_s = LONG_S
        submit(solver, solve).result(LONG_S)


def test_stopping_ends_a_solve_and_those_that_wait() -> None:
    _, solve = asks()
    solver = Solver().start()
    submit(solver, solve).result(LONG_S)
    pid = _pid(solver)
    os.kill(pid, signal.SIGSTOP)
    answers = [submit(solver, solve), submit(solver, solve)]
    solver.stop()
    assert [error(answer) for answer in answers] == ["the server stops"] * 2
    assert not psutil.pid_exists(pid)
    with pytest.raises(SolveError, match="not running"):
        submit(solver, solve)
    solver.stop()


def test_stopping_at_once_leaves_nothing() -> None:
    before = psutil.Process().children()
    threads = threading.active_count()
    Solver().start().stop()
    assert psutil.Process().children() == before
    assert threading.active_count() == threads


SERVER = """
import sys, time
from fairlead.cluster.server.solver import Solver
from tests.cluster.server.test_solver import asks, submit
_, solve = asks()
solver = Solver().start()
submit(solver, solve).result()
print(solver.pid, flush=True)
time.sleep(600)
"""


def test_no_child_outlives_a_server_that_is_killed() -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, cwd=root
    ) as server:
        assert server.stdout is not None
        child = psutil.Process(int(server.stdout.readline()))
        child.suspend()  # as good as busy: it does not see that its socket is closed
        server.kill()
    child.wait(LONG_S)


def _pid(solver: Solver) -> int:
    pid = solver.pid
    assert pid is not None
    return pid
