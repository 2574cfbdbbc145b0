"""The end of ranks' orphans: processes that are now the spawner's children, whatever they did to hide."""

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.running_attempts import SpawnedAttempt


def reap_orphans(
    living: Sequence[SpawnedAttempt], helpers: Iterable[int], tokens: Iterable[str]
) -> list[int]:
    """Kill the children of this process that belong to no attempt. Orphans have become our children, so all
    strays hang below these. Returns their pids.

    living: attempts that have ranks; helpers: pids of the spawner's own processes; tokens: of further
    processes that are to live.
    """
    spared = {pid for attempt in living for pid in attempt.processes.leaders} | set(helpers)
    sessions = {session for attempt in living for session in attempt.processes.sessions}
    attempts = {attempt.tag: attempt for attempt in living}
    known = {proc.token_tag(token) for token in tokens}
    orphans = []
    for pid in proc.children():
        found = None if pid in spared else proc.process(pid)
        if found is None or found.state in "ZX" or found.session in sessions:
            continue
        tag = proc.tag_of(pid)
        attempt = attempts.get(tag)
        if tag not in known and (attempt is None or not attempt.may_be_of(pid)):
            orphans.append(pid)
    for pid in orphans:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)  # our child, not waited for: its pid is its own
    return orphans
