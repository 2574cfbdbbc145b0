"""Records of arrays that kernels take as one argument.

A record is a ``NamedTuple``. Its fields are arrays of the types below, each of which names numba's type as
well, ``int``, ``float``, ``bool``, or other records. A kernel's signature names the record by its class,
which must be known in the module of the kernel. numba converts nothing inside a record: an int is no float
there.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import Bools, Floats, Ints

# C-contiguous arrays of one, two and three dimensions
Floats1: TypeAlias = Annotated[Floats, "f8[::1]"]
Floats2: TypeAlias = Annotated[Floats, "f8[:,::1]"]
Floats3: TypeAlias = Annotated[Floats, "f8[:,:,::1]"]
Ints1: TypeAlias = Annotated[Ints, "i8[::1]"]
Ints2: TypeAlias = Annotated[Ints, "i8[:,::1]"]
ShortInts1: TypeAlias = Annotated[Ints, "i4[::1]"]  # 32 bits
ShortInts2: TypeAlias = Annotated[Ints, "i4[:,::1]"]
Bools1: TypeAlias = Annotated[Bools, "b1[::1]"]
Bools2: TypeAlias = Annotated[Bools, "b1[:,::1]"]
Bytes1: TypeAlias = Annotated[NDArray[np.uint8], "u1[::1]"]

_SCALARS = {int: "i8", float: "f8", bool: "b1"}
_TYPES = {name: kind for kind, name in _SCALARS.items()}


def doubled(column: Any) -> Any:
    """Return a copy of an array with twice as many rows, zero after the old ones."""
    return np.concatenate([column, np.zeros_like(column)])


def resolve_signature(signature: str, known: Mapping[str, Any]) -> Any:
    """numba's signature of a text in which records stand by their names in ``known``, the kernel's globals;
    the text itself where there is no record in it."""
    named = {name: known.get(name) for name in re.findall(r"[A-Za-z_]\w*", signature)}
    records = {name: _record_type(one) for name, one in named.items() if _is_record(one)}
    if not records:
        return signature
    return _evaluate(signature, records)


def fields_of_records(signature: str, known: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the names and types of the fields of all records in a signature, and of the records in these."""
    named = [known.get(name) for name in re.findall(r"[A-Za-z_]\w*", signature)]
    return tuple(_fields_of(one) for one in named if _is_record(one))


def _fields_of(record: Any) -> tuple[object, ...]:
    hints = get_type_hints(record, include_extras=True)
    return tuple(
        (name, _fields_of(hint) if _is_record(hint) else repr(hint)) for name, hint in hints.items()
    )


def as_compiled(found: Any, signature: str) -> Any:
    """Return what a kernel of this signature returns where its Python function returned ``found``: no scalars
    of NumPy, and a float where the signature says so."""
    kind = _TYPES.get(signature.partition("(")[0].strip())
    return _without_scalars(found) if kind is None else kind(found)


def _without_scalars(found: Any) -> Any:
    if isinstance(found, np.generic):
        return found.item()
    if isinstance(found, tuple):
        values = [_without_scalars(one) for one in found]
        return found._make(values) if _is_record(type(found)) else tuple(values)  # type: ignore[attr-defined]
    return found


def takes_records(signature: str, known: Mapping[str, Any]) -> bool:
    """Return whether a kernel takes records, and has one signature."""
    _, _, arguments = signature.rpartition("(")
    return any(_is_record(known.get(one.strip())) for one in arguments.rstrip(")").split(","))


def _is_record(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, tuple) and hasattr(one, "_fields")


def _record_type(record: Any) -> Any:
    import numba

    hints = get_type_hints(record, include_extras=True)
    make: Any = numba.types.BaseTuple.from_types
    return make([_field_type(hint) for hint in hints.values()], record)


def _field_type(hint: Any) -> Any:
    if _is_record(hint):
        return _record_type(hint)
    return _evaluate(_SCALARS[hint] if hint in _SCALARS else hint.__metadata__[0], {})


def _evaluate(text: str, records: Mapping[str, Any]) -> Any:
    """Return numba's object for the text of a signature or a type, evaluated as numba does itself."""
    import numba

    return eval(text, {}, {**vars(numba.types), **records})
