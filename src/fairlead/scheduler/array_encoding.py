"""Arrays in the journal: msgpack extensions of type 1.

The content is two characters for layout and dtype, the number of dimensions (u8), the shape (u32 each), then
the values (layout ``d``) or, where most of them are zero, the positions and values of the others (``z``).
Integers are stored in 32 bits where they fit. All numbers are little-endian.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import Ints
from fairlead.model.commands import EndJobs, StartRound
from fairlead.model.events import RoundEnded
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Bytes1, Floats1, Floats2, Ints1, Ints2

_NEGATIVE_ZERO = -9223372036854775808  # the bits of -0.0
_HEADER = 64  # bytes, enough for what stands before the values of an array
_SHAPES = [struct.Struct(f"<B{ndim}I") for ndim in range(5)]


class _Reported(NamedTuple):
    """The arrays of a ``RoundEnded``."""

    steps: Floats2
    finish_s: Floats1
    outcome: Ints2
    restart_s: Floats1


class _Started(NamedTuple):
    """The arrays of a ``StartRound``."""

    job_groups: Ints2
    slot: Ints1
    devices: Ints1
    offsets: Ints1
    kept: Bools1


class _Ended(NamedTuple):
    """The arrays of an ``EndJobs``."""

    jobs: Ints1
    end: Ints1
    end_s: Floats1


_FLOAT, _INT, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)
_REPORTED = (
    (_FLOAT, 2),
    (_FLOAT, 1),
    (_INT, 2),
    (_FLOAT, 1),
)  # dtypes and dimensions of ``_Reported``
_STARTED = (_INT, 2), (_INT, 1), (_INT, 1), (_INT, 1), (_BOOL, 1)
_ENDED = (_INT, 1), (_INT, 1), (_FLOAT, 1)


class _Shape(NamedTuple):
    """Type and shape of an array, without its values."""

    ndim: int  # 1 or 2
    rows: int
    columns: int  # 1 where ndim is 1
    real: bool  # 64-bit floats; else 64-bit integers


class _Layout(NamedTuple):
    """The layout in which an array is stored."""

    sparse: bool  # without zeros
    short: bool  # 32 bits per value
    values: int  # that are stored


def pack(array: NDArray[Any]) -> bytes:
    """The content of the extension for an array of 64-bit floats or integers or of truth values."""
    type_code = array.dtype.char
    shape = _SHAPES[array.ndim].pack(array.ndim, *array.shape)
    if type_code == "?":
        return b"d?" + shape + array.tobytes()
    real = type_code == "d"
    # A kernel takes arrays that can be written.
    bits = array.ravel() if array.flags.writeable else array.flatten()
    out = np.empty(8 * bits.size, np.uint8)
    found = _put_values(bits.view(np.int64) if real else bits, real, out)
    layout = b"z" if found & 2 else b"d"
    return layout + _stored_kind(type_code, bool(found & 1)) + shape + out[: found >> 2].tobytes()


def _stored_kind(type_code: str, short: bool) -> bytes:
    return b"i" if short else type_code.encode()


def unpack(data: bytes) -> NDArray[Any]:
    """The array of which this is the content. ValueError, TypeError or struct.error where it is of none."""
    dtype, ndim = np.dtype(chr(data[1])), data[2]
    shape = struct.unpack_from(f"<{ndim}I", data, 3)
    body = data[3 + 4 * ndim :]
    if data[:1] == b"d":
        array = np.frombuffer(body, dtype).reshape(shape)
    else:
        some = len(body) // (4 + dtype.itemsize)
        array = np.zeros(shape, dtype)
        array.ravel()[np.frombuffer(body, np.uint32, some)] = np.frombuffer(body[4 * some :], dtype)
    return array.astype(np.int64) if dtype.kind == "i" else array.copy()


def pack_report(event: RoundEnded, keys: NDArray[np.uint8]) -> bytes | None:
    """The arrays of a report in msgpack, each behind its key; None where they are not such as simulations
    have: C-contiguous, of 64 bits. keys: one after the other, in msgpack."""
    arrays = _Reported(event.steps, event.finish_s, event.outcome, event.restart_s)
    if not _are_plain(arrays, _REPORTED):
        return None
    size = event.steps.size + event.finish_s.size + event.outcome.size + event.restart_s.size
    out = np.empty(8 * size + len(arrays) * _HEADER, np.uint8)
    return out[: _put_report(arrays, keys, out)].tobytes()


def pack_start(command: StartRound, keys: NDArray[np.uint8]) -> bytes | None:
    """Return the packed start of a round; None for arrays that ``pack_report`` refuses, too."""
    arrays = _Started(
        command.job_groups, command.slot, command.devices, command.offsets, command.kept
    )
    if not _are_plain(arrays, _STARTED):
        return None
    size = command.job_groups.size + 2 * len(command.offsets) + command.devices.size
    out = np.empty(8 * size + len(command.kept) + len(arrays) * _HEADER, np.uint8)
    return out[: _put_start(arrays, keys, out)].tobytes()


def pack_ends(command: EndJobs, keys: NDArray[np.uint8]) -> bytes | None:
    """Return the packed ends of jobs; None for arrays that ``pack_report`` refuses, too."""
    arrays = _Ended(command.jobs, command.end, command.end_s)
    if not _are_plain(arrays, _ENDED):
        return None
    out = np.empty(8 * 3 * len(command.jobs) + len(arrays) * _HEADER, np.uint8)
    return out[: _put_ends(arrays, keys, out)].tobytes()


def _are_plain(arrays: tuple[NDArray[Any], ...], layout: tuple[tuple[Any, int], ...]) -> bool:
    """Return whether arrays are C-contiguous and have these dtypes and numbers of dimensions."""
    for array, (dtype, ndim) in zip(arrays, layout, strict=True):
        same = array.dtype is dtype or array.dtype == dtype
        if not same or array.ndim != ndim or not array.flags.c_contiguous:
            return False
    return True


@kernel("i8(_Reported, u1[::1], u1[::1])", allocates=False)
def _put_report(arrays: _Reported, keys: Bytes1, out: Bytes1) -> int:
    """Write arrays of a report, each behind its key; how many bytes."""
    at, key = _put_key(keys, 0, out, 0)
    at = _put_floats2(arrays.steps, out, at)
    at, key = _put_key(keys, key, out, at)
    at = _put_floats1(arrays.finish_s, out, at)
    at, key = _put_key(keys, key, out, at)
    at = _put_ints2(arrays.outcome, out, at)
    at, key = _put_key(keys, key, out, at)
    return _put_floats1(arrays.restart_s, out, at)


@kernel("i8(_Started, u1[::1], u1[::1])", allocates=False)
def _put_start(arrays: _Started, keys: Bytes1, out: Bytes1) -> int:
    """Write arrays of a round that begins, each behind its key; how many bytes."""
    at, key = _put_key(keys, 0, out, 0)
    at = _put_ints2(arrays.job_groups, out, at)
    at, key = _put_key(keys, key, out, at)
    at = _put_ints1(arrays.slot, out, at)
    at, key = _put_key(keys, key, out, at)
    at = _put_ints1(arrays.devices, out, at)
    at, key = _put_key(keys, key, out, at)
    at = _put_ints1(arrays.offsets, out, at)
    at, key = _put_key(keys, key, out, at)
    kept = arrays.kept
    at = _put_head(_Shape(1, len(kept), 1, False), 7 + len(kept), out, at)
    out[at - 6] = 63  # ?
    for one in kept:
        out[at] = one
        at += 1
    return at


@kernel("i8(_Ended, u1[::1], u1[::1])", allocates=False)
def _put_ends(arrays: _Ended, keys: Bytes1, out: Bytes1) -> int:
    """Write arrays of jobs that have left, each behind its key; how many bytes."""
    at, key = _put_key(keys, 0, out, 0)
    at = _put_ints1(arrays.jobs, out, at)
    at, key = _put_key(keys, key, out, at)
    at = _put_ints1(arrays.end, out, at)
    at, key = _put_key(keys, key, out, at)
    return _put_floats1(arrays.end_s, out, at)


@kernel("UniTuple(i8, 2)(u1[::1], i8, u1[::1], i8)", allocates=False)
def _put_key(keys: Bytes1, start: int, out: Bytes1, at: int) -> tuple[int, int]:
    """Write the key that begins at keys[start]; the next places in out and in keys."""
    length = 1 + (int(keys[start]) & 31)
    for i in range(length):
        out[at + i] = keys[start + i]
    return at + length, start + length


@kernel("i8(f8[:,::1], u1[::1], i8)", allocates=False)
def _put_floats2(array: Floats2, out: Bytes1, at: int) -> int:
    shape = _Shape(2, array.shape[0], array.shape[1], True)
    return _put_array(array.reshape(-1).view(np.int64), shape, out, at)


@kernel("i8(f8[::1], u1[::1], i8)", allocates=False)
def _put_floats1(array: Floats1, out: Bytes1, at: int) -> int:
    return _put_array(array.view(np.int64), _Shape(1, len(array), 1, True), out, at)


@kernel("i8(i8[:,::1], u1[::1], i8)", allocates=False)
def _put_ints2(array: Ints2, out: Bytes1, at: int) -> int:
    shape = _Shape(2, array.shape[0], array.shape[1], False)
    return _put_array(array.reshape(-1), shape, out, at)


@kernel("i8(i8[::1], u1[::1], i8)", allocates=False)
def _put_ints1(array: Ints1, out: Bytes1, at: int) -> int:
    return _put_array(array, _Shape(1, len(array), 1, False), out, at)


@kernel("i8(i8[::1], _Shape, u1[::1], i8)", allocates=False)
def _put_array(bits: Ints1, shape: _Shape, out: Bytes1, at: int) -> int:
    """Write an array as an extension; the next place in out."""
    layout = _layout_of(bits, shape.real)
    size = layout.values * ((4 if layout.short else 8) + (4 if layout.sparse else 0))
    start = _put_head(shape, 3 + 4 * shape.ndim + size, out, at)
    type_code = start - 4 * shape.ndim - 2
    out[type_code - 1] = 122 if layout.sparse else 100  # z, d
    out[type_code] = 105 if layout.short else 100 if shape.real else 108  # i, d, l
    return _put_body(bits, shape.real, layout, out[start:]) + start


@kernel("i8(_Shape, i8, u1[::1], i8)", allocates=False)
def _put_head(shape: _Shape, length: int, out: Bytes1, at: int) -> int:
    """Write msgpack's head of an extension of so many bytes, and the head of its content, as that of truth
    values' layout with the dtype left open; where the values begin."""
    if length == 8 or length == 16:
        out[at] = 215 if length == 8 else 216
        at += 1
    elif length < 256:
        out[at], out[at + 1] = 199, length
        at += 2
    elif length < 65536:
        out[at], out[at + 1], out[at + 2] = 200, length >> 8, length & 255
        at += 3
    else:
        out[at] = 201
        for i in range(4):
            out[at + 1 + i] = (length >> (24 - 8 * i)) & 255
        at += 5
    out[at], out[at + 1], out[at + 3] = 1, 100, shape.ndim
    at = _put_word(shape.rows, out, at + 4)
    return _put_word(shape.columns, out, at) if shape.ndim == 2 else at


@kernel("i8(i8, u1[::1], i8)", allocates=False)
def _put_word(value: int, out: Bytes1, at: int) -> int:
    """Write the low 32 bits of a value; the next place."""
    out[at] = value & 255
    out[at + 1] = (value >> 8) & 255
    out[at + 2] = (value >> 16) & 255
    out[at + 3] = (value >> 24) & 255
    return at + 4


@kernel("i8(i8[::1], b1, u1[::1])", allocates=False)
def _put_values(bits: Ints, real: bool, out: Bytes1) -> int:
    """Write the values of an array. bits: of 64-bit floats (real) or integers; out: 8 bytes for each value.
    Returns 4 times the number of bytes, + 2 where zeros were left out, + 1 where integers fit 32 bits."""
    layout = _layout_of(bits, real)
    size = _put_body(bits, real, layout, out)
    return 4 * size + (2 if layout.sparse else 0) + (1 if layout.short else 0)


@kernel("_Layout(i8[::1], b1)", allocates=False)
def _layout_of(bits: Ints1, real: bool) -> _Layout:
    short, some = not real, 0
    for value in bits:
        if value != 0 and not (real and value == _NEGATIVE_ZERO):
            some += 1
            if value >= 2147483648 or value < -2147483648:
                short = False
    sparse = 2 * some < len(bits)
    return _Layout(sparse, short, some if sparse else len(bits))


@kernel("i8(i8[::1], b1, _Layout, u1[::1])", allocates=False)
def _put_body(bits: Ints1, real: bool, layout: _Layout, out: Bytes1) -> int:
    """Write positions, if zeros are left out, and values; how many bytes."""
    at, place = (4 * layout.values if layout.sparse else 0), 0
    for i in range(len(bits)):
        value = bits[i]
        if layout.sparse:
            if value == 0 or (real and value == _NEGATIVE_ZERO):
                continue
            place = _put_word(i, out, place)
        at = _put_word(value, out, at)
        if not layout.short:
            at = _put_word(value >> 32, out, at)
    return at
