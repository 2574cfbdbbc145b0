"""The devices of a node: found by NVML, given, or simulated."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pynvml

from fairlead.errors import ConfigError
from fairlead.model.option_text import split_option

_MAX_DEVICES = 4096
_NOISE = re.compile(r"nvidia|tesla|geforce|quadro|graphics|laptop gpu|generation|ada$")
_MEMORY = re.compile(r"(\d+)\s*gb")


@dataclass(frozen=True)
class NodeDevices:
    """Devices of one accelerator type."""

    accelerator: str
    indices: tuple[int, ...]  # NVML's number of each; for simulated devices 0, 1, ...
    simulated_devices: bool


def device_types(spec: str, simulated_devices: bool = False) -> list[str]:
    """Return the spec of each accelerator type, for ``find_devices``: ``v100=2,k80=1`` names two, and so does
    ``nvml`` where NVML finds two. Raises ConfigError."""
    if spec not in ("", "nvml"):
        specs = [part.strip() for part in spec.split(",")]
        types = [parse_devices(part)[0] for part in specs]
        for position, one in enumerate(types):
            if one in types[:position]:
                raise ConfigError(f"--devices {spec}: {one} is given twice")
        return specs
    counts = Counter(accelerator_type(name) for _, name in ([] if simulated_devices else _nvml()))
    if len(counts) < 2:
        return [spec]
    return [f"{accelerator}={count}" for accelerator, count in sorted(counts.items())]


def find_devices(spec: str, simulated_devices: bool = False) -> NodeDevices:
    """Return the devices of this node. spec: ``v100=4``, or ``nvml`` or "" for all that NVML finds;
    simulated_devices: devices without hardware. Of
    devices with names that NVML does not know the first are taken.

    Raises ConfigError where there are none, several types, or fewer than the spec names.
    """
    if spec in ("", "nvml"):
        if simulated_devices:
            raise ConfigError(
                "--simulated-devices needs to know what to pretend: add --devices, as v100=4"
            )
        return _all_of(_nvml())
    accelerator, count = parse_devices(spec)
    found = [] if simulated_devices else _nvml()
    if not found:
        return NodeDevices(accelerator, tuple(range(count)), simulated_devices=True)
    named = [one for one in found if accelerator_type(one[1]) == accelerator]
    found = named or found
    if len(found) < count:
        raise ConfigError(
            f"--devices {spec}: NVML finds {len(found)} such device(s) here; --simulated-devices pretends "
            "others"
        )
    return NodeDevices(
        accelerator, tuple(index for index, _ in found[:count]), simulated_devices=False
    )


def parse_devices(text: str) -> tuple[str, int]:
    """``v100=4``: one accelerator type and how many."""
    name, number = split_option(text)
    accelerator = name.strip()
    if number is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", accelerator):
        raise ConfigError(f"--devices: expected nvml or TYPE=NUMBER as v100=4, got {text!r}")
    if (
        not number.strip().isascii()
        or not number.strip().isdigit()
        or not 1 <= int(number) <= _MAX_DEVICES
    ):
        raise ConfigError(
            f"--devices {text}: the number must be 1 to {_MAX_DEVICES}, got {number!r}"
        )
    return accelerator, int(number)


def accelerator_type(name: str) -> str:
    """From NVML's name, as the built-in catalogue calls it: ``NVIDIA H100 80GB HBM3`` -> ``h100``,
    ``NVIDIA A100-SXM4-40GB`` -> ``a100-40`` (of that one there are two), ``NVIDIA GeForce RTX 3090`` ->
    ``rtx-3090``."""
    text = _NOISE.sub(" ", name.lower())
    memory = _MEMORY.search(text)
    words = re.findall(r"[a-z0-9]+", _MEMORY.sub(" ", text))
    chosen = [w for w in words if not re.fullmatch(r"(sxm|pcie|pg|hbm|nvl)\w*", w)]
    chosen = chosen[:2] if chosen and chosen[0] in ("rtx", "gtx", "titan") else chosen[:1]
    size = [memory[1]] if memory and chosen == ["a100"] else []
    return "-".join([*chosen, *size]) or "gpu"


def _all_of(found: Sequence[tuple[int, str]]) -> NodeDevices:
    if not found:
        raise ConfigError("NVML finds no devices here; name them, as --devices v100=4")
    types = sorted({accelerator_type(name) for _, name in found})
    if len(types) > 1:
        raise ConfigError(
            f"this host has devices of several types ({', '.join(types)}): name one, as {types[0]}=1"
        )
    return NodeDevices(types[0], tuple(index for index, _ in found), simulated_devices=False)


def _nvml() -> list[tuple[int, str]]:
    """(index, name) of all devices that CUDA_VISIBLE_DEVICES allows."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
            found.append((index, _text(name), _text(uuid)))
    except pynvml.NVMLError as problem:
        raise ConfigError(f"NVML: {problem}") from None
    finally:
        pynvml.nvmlShutdown()
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(found: Sequence[tuple[int, str, str]], spec: str | None) -> list[tuple[int, str]]:
    """Those of (index, name, UUID) that CUDA_VISIBLE_DEVICES names, by index or by UUID."""
    if spec is None:
        return [(index, name) for index, name, _ in found]
    chosen = []
    for entry in filter(None, (part.strip() for part in spec.split(","))):
        match = [
            (index, name)
            for index, name, uuid in found
            if entry == str(index) or (not entry.isdigit() and uuid.startswith(entry))
        ]
        if not match:
            raise ConfigError(f"CUDA_VISIBLE_DEVICES: NVML knows no device {entry!r}")
        chosen.append(match[0])
    return chosen


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
