"""The health of a node's devices by NVML: which answer, and which have had errors that stay."""

from collections.abc import Sequence
from typing import Any

import pynvml

# Errors after which a device is not fit for work: (a double-bit error, a page that cannot be retired, links,
# off the bus, contained and uncontained memory errors, failed row remapping, the firmware that does not
# answer). Others are what jobs do to themselves.
FATAL_XIDS = frozenset((48, 64, 74, 79, 94, 95, 119, 120, 140))


class GpuHealth:
    """``problems`` may be called again and again, from one thread at a time."""

    def __init__(self, indices: Sequence[int], nvml: Any = pynvml) -> None:
        """indices: NVML's number of each device of the node."""
        self.dead: tuple[int, ...] = ()  # devices of the node, counted from 0, as of the last call
        self._indices = tuple(indices)
        self._nvml = nvml
        self._open = False
        self._events: Any = None
        self._xids: dict[int, int] = {}  # device -> the last fatal one

    def problems(self) -> list[str]:
        """A sentence for each device that is not well."""
        try:
            if not self._open:
                self._nvml.nvmlInit()
                self._open = True
        except self._nvml.NVMLError as problem:
            self.dead = tuple(range(len(self._indices)))
            return [f"NVML does not answer: {problem}"]
        found: list[str] = []
        dead: list[int] = []
        for device, index in enumerate(self._indices):
            why = self._problem(index)
            if why is not None:
                dead.append(device)
                found.append(f"device {device}: {why}")
        self._poll_xids()
        for device, xid in sorted(self._xids.items()):
            if device not in dead:
                dead.append(device)
                found.append(f"device {device}: Xid {xid}")
        self.dead = tuple(sorted(dead))
        return found

    def _problem(self, index: int) -> str | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as problem:
            return f"does not answer: {problem}"
        try:
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        except nvml.NVMLError:
            return None  # no ECC here
        return f"{errors} uncorrected memory errors" if errors else None

    def _poll_xids(self) -> None:
        """Take note of errors that the driver has told since the last call."""
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for index in self._indices:
                    nvml.nvmlDeviceRegisterEvents(
                        nvml.nvmlDeviceGetHandleByIndex(index),
                        nvml.nvmlEventTypeXidCriticalError,
                        self._events,
                    )
            while True:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                index = nvml.nvmlDeviceGetIndex(event.device)
                if event.eventData in FATAL_XIDS and index in self._indices:
                    self._xids[self._indices.index(index)] = int(event.eventData)
        except nvml.NVMLError:
            return  # nothing more, or not told here
