"""Ending an agent from another process of its machine: for engines whose signals do not reach it."""

import signal
import time
from pathlib import Path

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.lock_holders import lock_holders
from fairlead.cluster.agent.state_directory import owner_of

_POLL_S = 0.05


def stop_agent(state: Path) -> bool:
    """End the agent of this machine and user that has the state directory, as SIGTERM does, and wait until
    it has ended: its jobs save first. Returns False where none runs."""
    owner = owner_of(state)
    if owner is None:
        return False
    has_lock = any(one.pid == owner.pid for one in lock_holders([state / "agent.lock"]))
    agent = proc.process(owner.pid)
    if (
        agent is None or not has_lock or not owner.lives
    ):  # in a copy of a state directory, or a pid that was used again
        return False
    proc.kill_exactly(agent, signal.SIGTERM)
    while (now := proc.process(agent.pid)) == agent and now.state not in "ZX":
        time.sleep(_POLL_S)
    return True
