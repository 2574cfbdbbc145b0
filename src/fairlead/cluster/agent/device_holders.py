"""Processes that hold the devices for which an attempt waits. Locks can be inherited, so all processes are
checked."""

import signal
from collections.abc import Callable, Collection, Sequence

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.lock_holders import lock_holders
from fairlead.cluster.agent.running_attempts import SpawnedAttempt, SpawnerStorage, owner_of
from fairlead.cluster.agent.survivors import mark_of


class DeviceHolders:
    """Holders of devices, for one spawner. ``fail`` is called with an attempt that holds a device without a
    claim to it, and the reason."""

    def __init__(
        self, storage: SpawnerStorage, incarnation: str, fail: Callable[[SpawnedAttempt, str], None]
    ) -> None:
        """incarnation: of the agent."""
        self._storage = storage
        self._incarnation = incarnation
        self._fail = fail

    def obstacles(
        self, attempt: SpawnedAttempt, running: Sequence[SpawnedAttempt], helpers: Collection[int]
    ) -> list[str]:
        """Why its devices are held. Those who have no claim to them are ended.

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
        """Why a process holds the lock of a device, "" = it may, or it has just been ended."""
        owner = owner_of(holder, running)
        text = f"device {device} is not free: its lock is held by process {holder.pid}"
        if owner is None:
            if not proc.tag_of(holder.pid).startswith(mark_of(self._incarnation)):
                return f"{text}, which is no job's here"
            proc.kill_exactly(holder, signal.SIGKILL)
            return f"{text}, which an attempt that is over has left"
        if device in owner.claim.devices:
            return "" if owner.ending.kill_s is not None else f"{text} of job {owner.launch.job}"
        if owner.ending.kill_s is None:
            why = f"process {holder.pid} held the lock of device {device}, which is not the job's"
            self._fail(owner, why)
        return ""
