"""The process that solves for a live server; ``solver.Solver`` starts it.

It reads tasks from a socket, answers each with a ``PlannerAnswer`` or the sentence of an error, and
ends with that socket or with its parent. The policies are imported before the first task.
"""

import os
import traceback
from multiprocessing.connection import Connection
from typing import NamedTuple

from fairlead.cluster.server import kept_kernels
from fairlead.errors import FairleadError
from fairlead.model import jit
from fairlead.model.child_signals import end_with_parent
from fairlead.model.plan import Planner, PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.scheduler.mechanism import planner_calls
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.setup import planner_of

READY = "ready"
NICENESS = 10


class SolveTask(NamedTuple):
    """A problem to be solved, and the planner that solves it."""

    policy: str
    seed: int
    profile: MechanismSettings
    snapshot: Snapshot
    state: PlannerState


class _Planners:
    """The planner in use; another one is made when the policy changes."""

    def __init__(self) -> None:
        self._made_of: tuple[str, int, MechanismSettings] | None = None
        self._planner: Planner

    def solve(self, task: SolveTask) -> PlannerAnswer:
        key = task.policy, task.seed, task.profile
        if key != self._made_of:
            policy = registry.make(task.policy, seed=task.seed, profile=task.profile.name)
            self._planner = planner_of(policy, *key)
            self._made_of = key
        return planner_calls.solve(self._planner, task.snapshot, task.state)


def main(fd: int, parent: int) -> None:
    """Serve until the socket is closed. fd: of the socket; parent: process id of who started this."""
    end_with_parent(parent)  # whose thread that started this lives as long as the server
    os.nice(NICENESS)  # on a full core leases are renewed first
    os.dup2(2, 1)  # what a policy prints is no answer to anybody
    # While they are interpreted a solve compiles what it needs.
    if not jit.is_interpreting() and not kept_kernels.are_all_kept():
        jit.prepare()  # where no compiled kernels can be kept; else the server has seen to it
    planners = _Planners()
    with Connection(fd) as socket:
        socket.send(READY)
        while True:
            try:
                task: SolveTask = socket.recv()
            except (EOFError, OSError):
                return
            socket.send(_answer(planners, task))


def _answer(planners: _Planners, task: SolveTask) -> PlannerAnswer | str:
    try:
        return planners.solve(task)
    except FairleadError as problem:
        return str(problem)
    except Exception as problem:
        traceback.print_exc()
        status_text = str(problem).partition("\n")[0]
        return f"{task.policy}: {type(problem).__name__}" + (
            f": {status_text}" if status_text else ""
        )
