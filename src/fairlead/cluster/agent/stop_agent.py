"""Ending an agent from another process of its machine: for engines whose signals do not reach it."""

import os
import select
import signal
from pathlib import Path

from fairlead.cluster.agent.lock_holders import lock_holders
from fairlead.cluster.agent.state_directory import owner_of


def stop_agent(state: Path) -> bool:
    """End the agent of this machine and user that has the state directory, as SIGTERM does, and wait until
    it has ended: its jobs save first. Returns False where none runs."""
    owner = owner_of(state)
    if owner is None:
        return False
    try:
        handle = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return False
    try:
        has_lock = any(one.pid == owner.pid for one in lock_holders([state / "agent.lock"]))
        if not (
            has_lock and owner.lives
        ):  # in a copy of a state directory, or a pid that was used again
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        select.select([handle], [], [])
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
