"""How busy the devices of a node are, and how full, as NVML says: measured beside all else, for people."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pynvml
from msgspec.structs import replace

from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.protocol.messages import AttemptKey, AttemptStatus, DeviceUsage, Rank
from fairlead.cluster.shortage import Shortage

INTERVAL_S = 10.0  # between two measurements
TIMEOUT_S = 5.0  # that one is waited for


class UsageSampler:
    """Measures again and again; each measurement is told once. Without NVML, or where a device does not tell,
    nothing is."""

    def __init__(self, devices: NodeDevices, nvml: Any = pynvml) -> None:
        self._indices = () if devices.simulated_devices else devices.indices
        self._nvml = nvml
        self._is_open = False
        self._shortage = Shortage()
        self._measuring = threading.Lock()  # held by a call that hangs in the driver, too
        self._news: dict[
            int, DeviceUsage
        ] = {}  # device of the node -> what nobody has been told yet

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            if self._indices:
                with contextlib.suppress(TimeoutError), self._shortage.outlasts():
                    self._news = await on_thread(self.measure, TIMEOUT_S)
            await asyncio.sleep(INTERVAL_S)

    def measure(self) -> dict[int, DeviceUsage]:
        """Device of the node -> its usage now, of those that tell it."""
        if not self._measuring.acquire(blocking=False):
            return {}
        try:
            if not self._is_open:
                self._nvml.nvmlInit()
                self._is_open = True
            found = ((device, self._usage(index)) for device, index in enumerate(self._indices))
            return {device: usage for device, usage in found if usage is not None}
        except self._nvml.NVMLError:
            return {}
        finally:
            self._measuring.release()

    def _usage(self, index: int) -> DeviceUsage | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:
            return None
        try:
            busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except nvml.NVMLError:
            busy = -1.0  # it is not told of a part of a device (MIG), for example
        return DeviceUsage(
            busy=min(float(busy), 1.0), memory_bytes=memory.used, memory_total_bytes=memory.total
        )

    def add_news(
        self,
        statuses: tuple[AttemptStatus, ...],
        ranks: Callable[[], Mapping[AttemptKey, tuple[Rank, ...]]],
    ) -> tuple[AttemptStatus, ...]:
        """The statuses, with what was measured since the last call. ranks: of attempts that run."""
        news, self._news = self._news, {}
        return with_usage(statuses, ranks(), news) if news else statuses


def with_usage(
    statuses: tuple[AttemptStatus, ...],
    ranks: Mapping[AttemptKey, tuple[Rank, ...]],
    usage: Mapping[int, DeviceUsage],
) -> tuple[AttemptStatus, ...]:
    """The statuses with the usage of the devices of their ranks. ranks: of attempts that run; usage: by
    device of the node."""

    def of(key: AttemptKey) -> tuple[DeviceUsage, ...]:
        return tuple(
            replace(usage[device], rank=rank.rank, device=device)
            for rank in ranks.get(key, ())
            for device in rank.devices
            if device in usage
        )

    return tuple(replace(one, usage=of((one.job, one.attempt))) for one in statuses)
