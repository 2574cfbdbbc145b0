"""All that a PyTorch script has to keep, in one object::

from fairlead.client.torch import TrainingState

state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler)
batches = state.iterator(loader, epochs=3)
for epoch in batches.epochs():
    for x, y in batches:
        ...
    scheduler.step()
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from fairlead.client.iterator import Iterator
from fairlead.client.json_state import decode_state, encode_state, is_state
from fairlead.client.lease import Lease
from fairlead.client.parked_tensors import ParkedTensors
from fairlead.client.random_state import (
    capture_random,
    derive_seed,
    generator_states,
    is_generator,
    restore_generators,
    restore_random,
    seed_random,
)
from fairlead.client.rank_environment import read_rank_environment
from fairlead.client.script_state import Position
from fairlead.client.torch_elastic import ElasticLoader, LocalBatch
from fairlead.errors import CheckpointError, ConfigError

__all__ = ["ElasticLoader", "LocalBatch", "TrainingState"]

FORMAT = 1
RANK_GRADIENTS = "fairlead_gradients"  # in what a rank other than 0 keeps for itself
ENCODED_STATE = "fairlead_state"  # the one key of what stands for a value that PyTorch would pickle


class TrainingState:
    """Saves and loads the objects that it is given by name, and the random generators of the process.

    Objects are models (also in DistributedDataParallel, DataParallel or ``torch.compile``; their weights have
    the names of the model itself), optimizers, learning rate schedulers, gradient scalers, averaged models,
    metrics and all else that has ``state_dict`` and ``load_state_dict``; generators (PyTorch's, NumPy's,
    Python's); and dictionaries of plain data, which are changed in place.

    map_location: where tensors are read to; the objects bring them to their own devices.
    weights_only: read without pickle. What cannot be read so is refused when it is saved.
    keep_gradients: keep those that are there of the models' and optimizers' parameters, as much again as the
        weights, so that a script that accumulates them may be moved between any two batches.
    """

    def __init__(
        self,
        *,
        map_location: Any = "cpu",
        weights_only: bool = True,
        keep_gradients: bool = True,
        **objects: Any,
    ) -> None:
        self._map_location = map_location
        self._weights_only = weights_only
        self._keep_gradients = keep_gradients
        self._synced = [one for one in objects.values() if isinstance(one, DistributedDataParallel)]
        self._gradients_differ = (
            False  # ranks had other gradients than rank 0 when they were loaded
        )
        self._loaded_random = ""  # rank 0's, of the checkpoint
        self._objects = {name: _bare(name, one) for name, one in objects.items()}
        self._parked = ParkedTensors()
        if not objects:
            raise ConfigError("TrainingState: expected at least one object, such as model=model")

    def iterator(self, loader: Any, **options: Any) -> Iterator[Any]:
        """A ``fairlead.Iterator`` over this loader that keeps this state; options: as there."""

        def load(path: Path) -> None:
            self.load(path)
            self._load_rank_state(batches.lease)

        batches: Iterator[Any] = Iterator(
            loader, load=load, save=self.save, **{**self._hooks(), **options}
        )
        batches.rank_state = self._rank_state
        return batches

    def lease(self, **options: Any) -> Lease:
        """A ``fairlead.Lease`` that keeps this state, for loops without a loader; options: as there."""
        lease = Lease(
            load=lambda path: self._load_rank(path, lease),
            save=self.save,
            **{**self._hooks(), **options},
        )
        lease.position = self._random_position
        return lease

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file."""
        objects = {name: _state_of(one) for name, one in self._objects.items()}
        if self._weights_only:
            objects = {name: _safe(state, name) for name, state in objects.items()}
        random = encode_state(capture_random(), "random").decode()
        state = {"format": FORMAT, "objects": objects, "random": random}
        if self._keep_gradients:
            state["gradients"] = _gradients(self._objects)
        torch.save(state, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read the state from a file. Raises CheckpointError where it is that of other objects."""
        state = torch.load(path, map_location=self._map_location, weights_only=self._weights_only)
        saved = state["objects"]
        for name in sorted({*saved, *self._objects}):
            if name not in saved or name not in self._objects:
                where = "TrainingState" if name in saved else "the checkpoint"
                raise CheckpointError(
                    f"{os.fspath(path)}: {where} has no {name!r}; both must hold the same objects"
                )
        for name, one in self._objects.items():
            _restore(one, _unsafe(saved[name]))
        if self._keep_gradients and "gradients" in state:
            _restore_gradients(self._objects, state["gradients"])
        self._loaded_random = state["random"]
        if read_rank_environment(os.environ).rank == 0:  # whose they are
            restore_random(decode_state(state["random"].encode()))

    def park(self) -> None:
        """Move all tensors of the objects, and gradients, to the memory of the host, in place, and free what
        PyTorch has reserved of the devices. Raises ParkError where much is left there that belongs to none
        of the objects."""
        self._parked.move(_tensors(self._objects))

    def resume(self) -> None:
        """Move them back to where they were."""
        self._parked.move_back()

    def _hooks(self) -> dict[str, Any]:
        return {"on_park": self.park, "on_resume": self.resume}

    def _load_rank(self, path: Path, lease: Lease) -> None:
        self.load(path)
        if is_state(lease.loaded.loader_state):
            restore_random(decode_state(lease.loaded.loader_state))
        self._load_rank_state(lease)

    def _random_position(self) -> Position:
        """The generators of each rank, for its own part of a checkpoint."""
        state = {**capture_random(), **self._rank_state()}
        return Position(loader_state=encode_state(state, "random"))

    def _rank_state(self) -> dict[str, Any]:
        """The gradients of a rank other than 0, where they may not be those of rank 0."""
        if not self._keep_gradients or read_rank_environment(os.environ).rank == 0:
            return {}
        gradients = _gradients(self._objects)
        for one in [] if self._gradients_differ else self._synced:
            if one.require_forward_param_sync and not one.parameters_to_ignore:  # not in no_sync
                equal = {id(weight) for weight in one.parameters()}
                named = _parameters(self._objects)
                gradients = {n: g for n, g in gradients.items() if id(named[n]) not in equal}
        if not gradients:
            return {}
        file = io.BytesIO()
        torch.save(gradients, file)
        return {RANK_GRADIENTS: file.getvalue()}

    def _load_rank_state(self, lease: Lease) -> None:
        """What this rank kept for itself, behind what rank 0 saved for all of them."""
        saved = lease.loaded.loader_state
        if lease.rank and not is_state(
            saved
        ):  # it was not there: its numbers are those of no other rank
            seed_random(derive_seed(self._loaded_random, lease.rank), devices=True)
        if not self._keep_gradients:
            return
        if lease.loaded.world_size != lease.world_size:
            self._check_reduced(lease)
        elif gradients := _rank_gradients(saved, self._map_location):
            self._gradients_differ = True
            for name, weight in _parameters(self._objects).items():
                if name in gradients:
                    weight.grad = gradients[name].to(weight.device)

    def _check_reduced(self, lease: Lease) -> None:
        """The checkpoint is of another number of ranks. Raises CheckpointError where they had gradients of
        their own: rank 0's, which all have now, are not the mean of them."""
        common = _gradients(self._objects)
        for rank, saved in enumerate(lease.states_of_ranks()):
            gradients = _rank_gradients(saved, "cpu")
            if all(name in common and _equal(one, common[name]) for name, one in gradients.items()):
                continue
            raise CheckpointError(
                f"the checkpoint has gradients of rank {rank} that are not yet "
                f"those of all {lease.loaded.world_size} ranks, and this job has {lease.world_size} now: "
                "accumulate within a step, or leave them out with "
                "TrainingState(keep_gradients=False, ...) if each step begins with zero_grad"
            )


def _tensors(objects: dict[str, Any]) -> list[torch.Tensor]:
    """Return all tensors that the objects hold, also in the states of optimizers and in dictionaries, and the
    gradients of their parameters."""
    found: list[torch.Tensor] = []
    for one in objects.values():
        if isinstance(one, torch.nn.Module):
            found += [*one.parameters(), *one.buffers()]
        elif isinstance(one, torch.optim.Optimizer):
            found += _tensors_in([list(one.state.values()), one.param_groups])
        elif not is_generator(one):
            found += _tensors_in(one if type(one) is dict else vars(one))
    return [*found, *_gradients(objects).values()]


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in _tensors_in(one)]
    return []


def _parameters(objects: dict[str, Any]) -> dict[str, torch.nn.Parameter]:
    """All that may have gradients, each once, by names in models or places in optimizers."""
    found: dict[int, tuple[str, torch.nn.Parameter]] = {}
    for name, one in objects.items():
        if isinstance(one, torch.nn.Module):
            for key, weight in one.named_parameters():
                found.setdefault(id(weight), (f"{name}.{key}", weight))
    for name, one in objects.items():
        if isinstance(one, torch.optim.Optimizer):
            weights = [weight for group in one.param_groups for weight in group["params"]]
            for i, weight in enumerate(weights):
                found.setdefault(id(weight), (f"{name}[{i}]", weight))
    return dict(found.values())


def _gradients(objects: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the gradients of the parameters that have one, by the parameter's name."""
    named = _parameters(objects)
    return {name: weight.grad for name, weight in named.items() if weight.grad is not None}


def _rank_gradients(saved: bytes, map_location: Any) -> dict[str, torch.Tensor]:
    """Return the gradients in what a rank kept for itself, by the parameter's name."""
    state = decode_state(saved) if is_state(saved) else {}
    if RANK_GRADIENTS not in state:
        return {}
    file = io.BytesIO(state[RANK_GRADIENTS])
    return dict(torch.load(file, map_location=map_location, weights_only=True))


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    first, second = (each.to_dense() if each.is_sparse else each for each in (one, other.cpu()))
    return bool(torch.equal(first, second))


def _restore_gradients(objects: dict[str, Any], saved: dict[str, torch.Tensor]) -> None:
    for name, weight in _parameters(objects).items():
        weight.grad = saved[name].to(weight.device) if name in saved else None


def _bare(name: str, one: Any) -> Any:
    """The object without what is wrapped around it. Raises ConfigError for one that has no state."""
    while True:
        if isinstance(one, (DistributedDataParallel, DataParallel)):
            one = one.module
        elif isinstance(getattr(one, "_orig_mod", None), torch.nn.Module):
            one = one._orig_mod
        else:
            break
    if _is_sharded(one):
        raise ConfigError(
            f"{name}: its weights are spread over the ranks (FSDP), of which each has to save its part; "
            "use fairlead.Iterator with save_ranks='all' and your own load and save"
        )
    has_state = hasattr(one, "state_dict") and hasattr(one, "load_state_dict")
    if has_state or is_generator(one) or type(one) is dict:
        return one
    raise ConfigError(
        f"{name}: a {type(one).__name__} has no state_dict and load_state_dict; expected an object that "
        "has, a random generator or a dictionary"
    )


def _is_sharded(one: Any) -> bool:
    if not isinstance(one, torch.nn.Module):
        return False
    modules = {type(module).__name__ for module in one.modules()}
    weights = {type(weight).__name__ for weight in one.parameters()}
    return "FullyShardedDataParallel" in modules or "DTensor" in weights


def _state_of(one: Any) -> Any:
    if is_generator(one):
        (state,) = generator_states([one])
        return {ENCODED_STATE: encode_state(state, "generator").decode()}
    return dict(one) if type(one) is dict else one.state_dict()


def _restore(one: Any, state: Any) -> None:
    if is_generator(one):
        restore_generators([one], [state])
    elif type(one) is dict:
        one.clear()
        one.update(state)
    else:
        one.load_state_dict(state)
        if isinstance(one, torch.optim.Optimizer):
            one._opt_called = True  # else schedulers warn that it was not


SAFE_TYPES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.Size,
    torch.dtype,
    torch.device,
)


def _safe(value: Any, path: str) -> Any:
    """Return the state in types that PyTorch reads without pickle. Raises ConfigError if that is
    impossible."""
    kind = type(value)
    if kind in SAFE_TYPES or isinstance(value, torch.Tensor):
        return value
    if kind in (list, tuple, set):
        return kind(_safe(one, f"{path}[{i}]") for i, one in enumerate(value))
    if isinstance(value, dict):
        safe = {key: _safe(one, f"{path}[{key!r}]") for key, one in value.items()}
        return safe if kind is not OrderedDict else _like(value, safe)
    return {ENCODED_STATE: encode_state(value, path).decode()}


def _like(value: Any, safe: dict[Any, Any]) -> Any:
    """An ordered dictionary with the attributes of another, such as the versions of a model's parts."""
    same = OrderedDict(safe)
    vars(same).update(vars(value))
    return same


def _unsafe(value: Any) -> Any:
    """The other way round."""
    if isinstance(value, dict):
        if len(value) == 1 and ENCODED_STATE in value:
            return decode_state(value[ENCODED_STATE].encode())
        for key, one in value.items():
            value[key] = _unsafe(one)
        return value
    if type(value) in (list, tuple):
        return type(value)(_unsafe(one) for one in value)
    return value
