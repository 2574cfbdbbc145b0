"""The state of a loader as JSON: plain data, tensors and arrays, to the last bit and without pickle.

What JSON has no word for is an object with one key that begins with ``$``.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from fairlead.errors import ConfigError

SCALARS = (bool, int, float, str, type(None))
PREFIX = b'{"fairlead_state": 1, "value": '


def encode_state(value: Any, owner: str) -> bytes:
    """The bytes of a state. Raises ConfigError with the place of what cannot be kept; owner: whose it is."""
    return PREFIX + json.dumps(_encoded(value, owner)).encode() + b"}"


def is_state(data: bytes) -> bool:
    """Return whether ``encode_state`` wrote it."""
    return data.startswith(PREFIX)


def decode_state(data: bytes) -> Any:
    """The state that ``encode_state`` was given."""
    return _decoded(json.loads(data)["value"])


def _encoded(value: Any, path: str) -> Any:
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list:
        return [_encoded(one, f"{path}[{i}]") for i, one in enumerate(value)]
    if isinstance(value, dict):
        return _encoded_dict(value, path)
    if isinstance(value, tuple):
        return {"$tuple": [_encoded(one, f"{path}[{i}]") for i, one in enumerate(value)]}
    if kind in (set, frozenset):
        return {"$set": [_encoded(one, path) for one in sorted(value, key=repr)]}
    if kind in (bytes, bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    return _encoded_array(value, path)


def _encoded_dict(value: dict[Any, Any], path: str) -> Any:
    if all(type(key) is str and key[:1] != "$" for key in value):
        return {key: _encoded(one, f"{path}[{key!r}]") for key, one in value.items()}
    return {
        "$dict": [
            [_encoded(key, path), _encoded(one, f"{path}[{key!r}]")] for key, one in value.items()
        ]
    }


def _encoded_array(value: Any, path: str) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor) and not value.is_sparse:
        flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        data = base64.b64encode(bytes(flat.tolist())).decode()
        return {"$tensor": [str(value.dtype), list(value.shape), data]}
    if numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject:
        return {"$scalar": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    if numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        data = base64.b64encode(value.tobytes()).decode()
        return {"$array": [value.dtype.str, list(value.shape), data]}
    raise ConfigError(
        f"{path}: a {type(value).__module__}.{type(value).__qualname__} cannot be saved without pickle; "
        "give plain data (numbers, text, lists, dictionaries), tensors or arrays"
    )


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key,) = value
        if key[:1] == "$":
            return _DECODE[key](value[key])
    return {key: _decoded(one) for key, one in value.items()}


def _tensor(parts: list[Any]) -> Any:
    import torch

    dtype = getattr(torch, parts[0].rpartition(".")[2])
    data = torch.tensor(list(base64.b64decode(parts[2])), dtype=torch.uint8)
    return data.view(dtype).reshape(parts[1]) if len(data) else torch.empty(parts[1], dtype=dtype)


def _array(parts: list[Any]) -> Any:
    import numpy

    return numpy.frombuffer(base64.b64decode(parts[2]), dtype=parts[0]).reshape(parts[1]).copy()


def _scalar(parts: list[Any]) -> Any:
    import numpy

    return numpy.frombuffer(base64.b64decode(parts[1]), dtype=parts[0])[0]


_DECODE: dict[str, Any] = {
    "$tuple": lambda value: tuple(_decoded(value)),
    "$set": lambda value: set(_decoded(value)),
    "$bytes": base64.b64decode,
    "$dict": lambda value: {_decoded(key): _decoded(one) for key, one in value},
    "$tensor": _tensor,
    "$array": _array,
    "$scalar": _scalar,
}
