"""Tensors of a parked PyTorch job: out of the memory of its devices, and back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_MAX_LEFT = 64 << 20  # bytes that others of the process may keep on a device while it is parked


class ParkError(RuntimeError):
    """A process cannot give its devices back."""


class ParkedTensors:
    """Tensors that were moved to the memory of the host, each with its device. Those that are there anyway
    are left alone."""

    def __init__(self) -> None:
        self._moved: list[tuple[torch.Tensor, torch.device]] = []

    def move(self, tensors: Iterable[torch.Tensor]) -> None:
        """Move them, in place: whoever has one of these objects has the same one afterwards, with the same
        bits. Raises ParkError if more than 64 MiB of other tensors are left on a device."""
        known: set[int] = set()
        for tensor in tensors:
            if tensor.device.type not in ("cpu", "meta") and id(tensor) not in known:
                known.add(id(tensor))
                self._moved.append((tensor, tensor.device))
                tensor.data = _on_host(tensor.data)
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        left = sum(map(torch.cuda.memory_allocated, range(torch.cuda.device_count())))
        if left > _MAX_LEFT:
            raise ParkError(
                f"{left >> 20} MiB of device memory are in tensors that TrainingState does not know of"
            )

    def move_back(self) -> None:
        """Move them back to their devices."""
        for tensor, device in self._moved:
            tensor.data = tensor.data.to(device, non_blocking=True)
        self._moved = []
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in pinned memory of the host, which is read and written without another copy; where there
    is not so much of that, in ordinary memory."""
    try:
        copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
    except RuntimeError:
        return tensor.cpu()
    copy.copy_(tensor)
    return copy
