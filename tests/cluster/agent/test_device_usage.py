"""How busy the devices of a node are, as NVML says."""

import asyncio
import subprocess
import sys
import threading
from contextlib import ExitStack
from types import SimpleNamespace

from fairlead.cluster.agent.device_usage import UsageSampler, with_usage
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.process_usage import ProcessUsage, RankKey
from fairlead.cluster.protocol.messages import AttemptStatus, DeviceUsage, Rank

GIB = 1 << 30
LIMIT_S = 60.0


class NvmlError(Exception):
    pass


class Nvml:
    """Devices 4 and 6 of the machine, as NVML would tell of them."""

    NVMLError = NvmlError

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.parts: set[int] = set()  # of devices (MIG): without utilisation
        self.is_there = True
        self.asked, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.is_there:
            raise NvmlError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self.asked.set()
        self.goes_on.wait()
        if index in self.lost:
            raise NvmlError("GPU is lost")
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=handle * GIB, total=16 * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if handle in self.parts:
            raise NvmlError("Not Supported")
        return SimpleNamespace(gpu=10 * handle, memory=1)


def sampler(nvml: Nvml, *, simulated: bool = False) -> UsageSampler:
    return UsageSampler(NodeDevices("v100", (4, 6), simulated), nvml)


def usage(busy: float, used: int) -> DeviceUsage:
    return DeviceUsage(busy=busy, memory_bytes=used * GIB, memory_total_bytes=16 * GIB)


def test_devices_tell_how_busy_and_how_full_they_are() -> None:
    nvml = Nvml()
    gpus = sampler(nvml)
    assert gpus.measure() == {0: usage(0.4, 4), 1: usage(0.6, 6)}
    nvml.parts = {6}
    assert gpus.measure()[1] == usage(-1.0, 6)
    nvml.lost = {4}
    assert list(gpus.measure()) == [1]


def test_without_nvml_nothing_is_told_and_nothing_fails() -> None:
    nvml = Nvml()
    assert sampler(nvml, simulated=True).measure() == {}
    nvml.is_there = False
    gpus = sampler(nvml)
    assert gpus.measure() == {}
    nvml.is_there = True  # the driver was loaded later
    assert set(gpus.measure()) == {0, 1}


def test_while_the_driver_hangs_no_second_call_is_made() -> None:
    nvml = Nvml()
    nvml.goes_on.clear()
    gpus = sampler(nvml)
    hangs = threading.Thread(target=gpus.measure, daemon=True)
    hangs.start()
    assert nvml.asked.wait(LIMIT_S)
    assert gpus.measure() == {}
    nvml.goes_on.set()
    hangs.join()
    assert set(gpus.measure()) == {0, 1}


def test_each_measurement_is_told_once_of_the_ranks_that_have_the_devices() -> None:
    async def scenario() -> None:
        gpus = sampler(Nvml())
        running = asyncio.ensure_future(gpus.run())
        ranks = (Rank(rank=3, devices=(1,)),)
        statuses = tuple(
            AttemptStatus(job=job, attempt=attempt, state="running")
            for job, attempt in ((7, 1), (8, 2))
        )
        async with asyncio.timeout(LIMIT_S):
            while not (told := gpus.add_news(statuses, lambda: {(7, 1): ranks})[0].usage):
                await asyncio.sleep(0)
        assert told == (
            DeviceUsage(
                rank=3, device=1, busy=0.6, memory_bytes=6 * GIB, memory_total_bytes=16 * GIB
            ),
        )
        assert gpus.add_news(statuses, lambda: {(7, 1): ranks}) == statuses
        running.cancel()

    asyncio.run(scenario())


def test_only_devices_that_tell_are_told_of() -> None:
    statuses = (AttemptStatus(job=1, attempt=1, state="running"),)
    ranks = {(1, 1): (Rank(rank=0, devices=(0, 1)),)}
    (status,) = with_usage(statuses, ranks, {1: usage(0.5, 1)}, {})
    assert [one.device for one in status.usage] == [1]


def test_ranks_on_simulated_devices_are_as_busy_as_their_processes() -> None:
    script = "import sys, time\nblock = bytearray(50 << 20)\nprint(flush=True)\n"
    busy = script + "while True:\n    pass"
    idle = script + "sys.stdin.read()"
    found: dict[RankKey, DeviceUsage] = {}
    with ExitStack() as stack:
        leaders: dict[int, RankKey] = {}
        for rank, text in enumerate((busy, idle)):
            process = stack.enter_context(
                subprocess.Popen(
                    (sys.executable, "-c", text), start_new_session=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            leaders[process.pid] = (7, 1), rank
        measured = ProcessUsage()
        assert measured.measure(leaders) == {}, "there is nothing to compare with yet"
        while not found or not found[(7, 1), 0].busy:
            found = measured.measure(leaders)
    assert found[(7, 1), 1].busy < found[(7, 1), 0].busy <= 1.0
    assert all(50 << 20 <= one.memory_bytes < one.memory_total_bytes for one in found.values())
    statuses = (AttemptStatus(job=7, attempt=1, state="running"),)
    ranks = {(7, 1): (Rank(rank=0, devices=(1,)), Rank(rank=1, devices=(0,)))}
    (status,) = with_usage(statuses, ranks, {}, found)
    assert [(one.rank, one.device) for one in status.usage] == [(0, 1), (1, 0)]
