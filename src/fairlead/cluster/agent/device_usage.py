"""The usage of the devices of a node and of their memory, as NVML says, or of simulated ones the processes of
their ranks: measured beside all else, for people."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pynvml
from msgspec.structs import replace

from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.process_usage import ProcessUsage, RankKey
from fairlead.cluster.protocol.messages import AttemptKey, AttemptStatus, DeviceUsage, Rank
from fairlead.cluster.shortage import Shortage

INTERVAL_S = 10.0  # between two measurements
TIMEOUT_S = 5.0  # that one is waited for


class UsageSampler:
    """Measures again and again; each measurement is told once. Without NVML, or where a device does not tell,
    nothing is. ``leaders``: returns the pids of ranks that run, to be set for simulated devices."""

    def __init__(self, devices: NodeDevices, nvml: Any = pynvml) -> None:
        self._indices = () if devices.simulated_devices else devices.indices
        self._nvml = nvml
        self._processes = ProcessUsage() if devices.simulated_devices else None
        self.leaders: Callable[[], Mapping[int, RankKey]] = dict
        self._news_of_ranks: dict[RankKey, DeviceUsage] = {}
        self._is_open = False
        self._shortage = Shortage()
        self._measuring = threading.Lock()  # held by a call that hangs in the driver, too
        self._news: dict[
            int, DeviceUsage
        ] = {}  # device of the node -> what nobody has been told yet

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            with contextlib.suppress(TimeoutError), self._shortage.outlasts():
                if self._indices:
                    self._news = await on_thread(self.measure, TIMEOUT_S)
                if self._processes is not None:
                    do = partial(self._processes.measure, dict(self.leaders()))
                    self._news_of_ranks = await on_thread(do, TIMEOUT_S)
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
        of_ranks, self._news_of_ranks = self._news_of_ranks, {}
        return with_usage(statuses, ranks(), news, of_ranks) if news or of_ranks else statuses


def with_usage(
    statuses: tuple[AttemptStatus, ...],
    ranks: Mapping[AttemptKey, tuple[Rank, ...]],
    usage: Mapping[int, DeviceUsage],
    of_ranks: Mapping[RankKey, DeviceUsage],
) -> tuple[AttemptStatus, ...]:
    """The statuses with the usage of the devices of their ranks. ranks: of attempts that run; usage: by
    device of the node; of_ranks: by attempt and rank, where the device itself has nothing to tell."""

    def of(key: AttemptKey) -> tuple[DeviceUsage, ...]:
        found = (
            (rank.rank, device, usage.get(device) or of_ranks.get((key, rank.rank)))
            for rank in ranks.get(key, ())
            for device in rank.devices
        )
        return tuple(
            replace(one, rank=rank, device=device) for rank, device, one in found if one is not None
        )

    return tuple(replace(one, usage=of((one.job, one.attempt))) for one in statuses)
