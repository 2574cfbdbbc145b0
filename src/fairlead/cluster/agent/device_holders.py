"""Processes that hold the devices for which an attempt waits. Locks can be inherited, so all processes are
checked."""

import signal
import time
from collections.abc import Callable, Collection, Sequence

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.device_claim import SpawnerStorage
from fairlead.cluster.agent.lock_holders import lock_holders
from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.running_attempts import SpawnedAttempt, owner_of
from fairlead.cluster.agent.survivors import find_survivors, mark_of

_SEARCH_S = 1.0  # before and between looks at who they are
_MAX_NAMED = 3  # of them, in a reason


class DeviceHolders:
    """Holders of devices, for one spawner. ``fail`` is called with an attempt that holds a device without a
    claim to it, and the reason."""

    def __init__(
        self,
        storage: SpawnerStorage,
        agent: AgentFiles,
        fail: Callable[[SpawnedAttempt, str], None],
    ) -> None:
        self._storage = storage
        self._agent = agent
        self._fail = fail

    def search(
        self,
        attempt: SpawnedAttempt,
        why: str,
        running: Sequence[SpawnedAttempt],
        helpers: Collection[int],
    ) -> tuple[str, bool]:
        """Return why its devices are not free, now and then, and whether something of the node is in the way;
        "" = nothing is to be told. What ended just now takes a moment; then whoever holds them is looked for
        among all processes: ended if it is an attempt's that has no claim to them, else told of. why: as
        known."""
        now, due_s = time.monotonic(), attempt.claim.search_s
        if due_s is not None and now < due_s:
            return "", False
        attempt.claim.search_s = now + _SEARCH_S
        if due_s is None:
            return why, False
        return "; ".join(self.obstacles(attempt, running, helpers)[:_MAX_NAMED]), True

    def obstacles(
        self, attempt: SpawnedAttempt, running: Sequence[SpawnedAttempt], helpers: Collection[int]
    ) -> list[str]:
        """Return why its devices are held. Those who have no claim to them are ended.

        running: attempts that have their devices; helpers: pids of the spawner's own processes.
        """
        files = attempt.claim.lock_files(self._storage)
        found = [(one, files[path]) for one, path in lock_holders(files).items()]
        text = [
            self._judge(one, device, running)
            for one, device in found
            if one.pid not in helpers  # for a moment, as they start ranks
        ]
        return [why for why in text if why]

    def _judge(self, holder: proc.Process, device: int, running: Sequence[SpawnedAttempt]) -> str:
        """Return why a process holds the lock of a device, "" = it may, or it has just been ended."""
        owner = owner_of(holder, running)
        text = f"device {device} is not free: its lock is held by process {holder.pid}"
        if owner is None:
            if not proc.tag_of(holder.pid).startswith(mark_of(self._agent.incarnation)):
                return f"{text}{self._judge_stranger(holder, device)}"
            proc.kill_exactly(holder, signal.SIGKILL)
            return f"{text}, which an attempt that is over has left"
        if device in owner.claim.devices:
            return "" if owner.ending.kill_s is not None else f"{text} of job {owner.launch.job}"
        if owner.ending.kill_s is None:
            why = f"process {holder.pid} held the lock of device {device}, which is not the job's"
            self._fail(owner, why)
        return ""

    def _judge_stranger(self, holder: proc.Process, device: int) -> str:
        """Return what to say of a process that no attempt of this agent has started. One of another agent of
        this machine is ended, unless that attempt has the same device: it has got the lock from another
        job."""
        for node, records in self._agent.records_of_others():
            if (record := find_survivors(records).get(holder)) is None:
                continue
            whose = f", which is of job {record.job} on node {node}"
            if str(self._storage.devices.path(device)) in record.locks:
                return whose
            proc.kill_exactly(holder, signal.SIGKILL)
            return f"{whose}, without having been given the device: it was ended"
        return ", which is no job's here"
