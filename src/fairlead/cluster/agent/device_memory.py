"""The memory of a node's devices, as NVML tells: whether a program may stay on its devices while the next one
runs there."""

from collections.abc import Collection
from typing import Any

import pynvml

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.protocol.messages import Assignment


class DeviceMemory:
    """What jobs had on the devices of a node is known once they have left them."""

    def __init__(self, indices: tuple[int, ...], nvml: Any = pynvml) -> None:
        """indices: device of the node -> device of NVML."""
        self._indices = indices
        self._nvml = nvml
        self._needs: dict[int, int] = {}  # job -> most bytes that it had on one device

    def fits(
        self, attempt: NodeAttempt, leaders: Collection[int], followers: Collection[Assignment]
    ) -> bool:
        """Whether what the processes of an attempt have on its devices fits there beside what the next jobs
        need. False where that is not known. leaders: pids of its ranks; followers: what runs next on the
        node."""
        devices = {device for rank in attempt.assignment.ranks for device in rank.devices}
        pids = {one.pid for one in proc.below(leaders)}
        try:
            self._nvml.nvmlInit()
            found = {device: self._read(device, pids) for device in devices}
        except self._nvml.NVMLError:
            return False
        mine = [own for own, _ in found.values()]
        if None in mine:
            return False
        job = attempt.key[0]
        self._needs[job] = max(self._needs.get(job, 0), *(own or 0 for own in mine))
        return all(self._has_room(device, free, followers) for device, (_, free) in found.items())

    def _has_room(self, device: int, free: int, followers: Collection[Assignment]) -> bool:
        needs = [
            # What is parked there as it is has its memory already.
            0 if one.suspend and one.resumes else self._needs.get(one.job)
            for one in followers
            if any(device in rank.devices for rank in one.ranks)
        ]
        return bool(needs) and None not in needs and sum(need or 0 for need in needs) <= free

    def _read(self, device: int, pids: Collection[int]) -> tuple[int | None, int]:
        """(bytes that these processes have on a device, None = it does not tell; bytes that are free)."""
        handle = self._nvml.nvmlDeviceGetHandleByIndex(self._indices[device])
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        own = [one.usedGpuMemory for one in running if one.pid in pids]
        return None if None in own else sum(own), memory.free
