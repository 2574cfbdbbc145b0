"""The random generators of a process: their states, as plain data; and those that objects keep to themselves.

PyTorch and NumPy take part when the script has imported them.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from types import FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

MAX_OBJECTS = 2000  # looked at when generators are searched for
MAX_ITEMS = 64  # of a container; larger ones are data


def capture_random(devices: bool = True) -> dict[str, Any]:
    """The states of the global generators of Python, NumPy and PyTorch; devices: of all GPUs too."""
    states: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = _numpy(), _torch()
    if numpy is not None:
        states["numpy"] = numpy.random.get_state()
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        if devices and torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
            states["cuda_own"] = _own_device()
    return states


def restore_random(states: dict[str, Any]) -> None:
    """The other way round. A device that this process does not have is passed over; the one that is the
    rank's own goes on where its own one was, which may have had another number."""
    if "python" in states:
        random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])  # noqa: NPY002
    if "torch" in states:
        import torch

        torch.set_rng_state(states["torch"])
        if "cuda" in states and torch.cuda.is_available():
            own = _own_device()
            taken = by_device(states["cuda"], states.get("cuda_own", own), own)
            for index, state in enumerate(taken[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(state, index)


def by_device(states: list[Any], own_before: int, own: int) -> list[Any]:
    """Return the states of all devices for a process whose own device had another number before: the two
    change places."""
    found = [*states]
    if own != own_before < len(found):
        found += [states[own_before]] * (own + 1 - len(found))
        found[own], found[own_before] = states[own_before], found[own]
    return found


def _own_device() -> int:
    """Return the number of this rank's own GPU among those that its processes see."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdecimal() else 0


def seed_random(seed: int, *, devices: bool = False) -> None:
    """Seed the global generators; devices: those of all GPUs too."""
    random.seed(seed)
    numpy, torch = _numpy(), _torch()
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFF_FFFF)
    if torch is not None:
        if devices:
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)


def derive_seed(*parts: Any) -> int:
    """A number below 2^63 that depends on nothing but the parts."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def fingerprint(states: Any) -> str:
    """Return a digest that is equal only for equal states."""
    digest = hashlib.sha256()
    waiting = [states]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [part for name in sorted(one) for part in (name, one[name])]
        elif isinstance(one, (list, tuple)) and not (one and isinstance(one[0], int)):
            waiting += one
        else:
            digest.update(repr(one.tolist() if hasattr(one, "tolist") else one).encode())
    return digest.hexdigest()


def capture_start(generators: Sequence[Any]) -> dict[str, Any]:
    """All that decides what is drawn from here on in this process, GPUs excepted."""
    return {
        "random": capture_random(devices=False),
        "generators": generator_states(generators),
    }


def restore_start(generators: Sequence[Any], start: dict[str, Any]) -> None:
    """The other way round."""
    restore_random(start["random"])
    restore_generators(generators, start["generators"])


class RandomStream:
    """A sequence of the global generators that is in force within its ``with`` block only, so that what is
    drawn there and what is drawn elsewhere do not depend on each other."""

    def __init__(self, seed: int) -> None:
        self._inner: dict[str, Any] | None = None
        self._outer: dict[str, Any] = {}
        self._seed = seed

    def __enter__(self) -> None:
        self._outer = capture_random(devices=False)
        if self._inner is None:
            seed_random(self._seed)
        else:
            restore_random(self._inner)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._inner = capture_random(devices=False)
        restore_random(self._outer)


def find_generators(*owners: Any) -> list[Any]:
    """The generator objects that these objects, or what they hold, keep; always in the same order.

    Also those at the top level of the modules in which the classes are defined.
    """
    found: list[Any] = []
    seen: set[int] = set()
    waiting = list(owners)
    while waiting and len(seen) < MAX_OBJECTS:
        one = waiting.pop(0)
        if id(one) in seen or isinstance(one, (str, bytes, int, float, ModuleType)):
            continue
        seen.add(id(one))
        if is_generator(one):
            found.append(one)
        else:
            waiting += _values_within(one)
    return found


def is_generator(one: Any) -> bool:
    """A generator object of Python, NumPy or PyTorch whose state can be read."""
    if isinstance(one, random.Random):
        return not isinstance(one, random.SystemRandom)
    numpy, torch = _numpy(), _torch()
    if numpy is not None and isinstance(one, (numpy.random.Generator, numpy.random.RandomState)):
        return True
    return torch is not None and isinstance(one, torch.Generator)


def generator_states(generators: Sequence[Any]) -> list[Any]:
    """Return the states of generators as plain data."""
    return [_state_of(one) for one in generators]


def restore_generators(generators: Sequence[Any], states: Sequence[Any]) -> None:
    """The other way round."""
    for one, state in zip(generators, states):
        if isinstance(one, random.Random):
            one.setstate(state)
        elif hasattr(one, "bit_generator"):
            one.bit_generator.state = state
        else:
            one.set_state(state)


def seed_generators(generators: Sequence[Any], seed: int) -> None:
    """Seed each of them differently."""
    for index, one in enumerate(generators):
        seed_of_index = derive_seed(seed, index)
        if hasattr(one, "manual_seed"):
            one.manual_seed(seed_of_index)
        elif hasattr(one, "bit_generator"):
            one.bit_generator.state = type(one.bit_generator)(seed_of_index).state
        else:
            one.seed(seed_of_index & 0xFFFF_FFFF)


def _state_of(one: Any) -> Any:
    if isinstance(one, random.Random):
        return one.getstate()
    if hasattr(one, "bit_generator"):
        return one.bit_generator.state
    return one.get_state()


def _values_within(one: Any) -> Iterator[Any]:
    """Yield the objects that an object holds and that may hold generators in turn."""
    if isinstance(one, dict):
        if len(one) <= MAX_ITEMS:
            yield from one.values()
        return
    if isinstance(one, (list, tuple, set)):
        if len(one) <= MAX_ITEMS:
            yield from one
        return
    if isinstance(one, partial):
        yield from (one.func, one.args, one.keywords)
        return
    if isinstance(one, MethodType):
        yield from (one.__self__, one.__func__)
        return
    if isinstance(one, FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell))
        yield from one.__defaults__ or ()
        yield from _top_level(one.__module__)
        return
    if isinstance(one, type) or type(one).__module__ in {"torch", "numpy", "builtins"}:
        return
    attributes = getattr(one, "__dict__", None)
    if isinstance(attributes, dict):
        yield from attributes.values()
    yield from _top_level(type(one).__module__)


def _top_level(name: str) -> Iterator[Any]:
    if name.partition(".")[0] in {"torch", "torchdata", "numpy", "random"}:
        return
    for value in (
        list(vars(sys.modules.get(name, object())).values()) if name in sys.modules else []
    ):
        if is_generator(value):
            yield value


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _numpy() -> Any:
    return sys.modules.get("numpy") if "numpy.random" in sys.modules else None


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None
