"""A note beside the machine code that numba keeps: every kernel's was there, made of the source of now.

To look at what is kept of each kernel takes numba and all modules that have kernels, more than a second of
CPU time, at each start of a server and of the process that solves for it. The note tells as much by the
names, times and sizes of files. Where it is wrong, a kernel is compiled when it is first called.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fairlead.model import jit

_MODEL = Path(jit.__file__).parent
_KEPT = "__pycache__"  # the folder beside a module in which numba keeps its machine code
_SUFFIXES = (".py", ".nbi", ".nbc")
_COMPILERS = ("numba", "llvmlite", "numpy")
_CPU = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU implementer")


def are_all_kept() -> bool:
    """Return whether the note says that the machine code of all kernels is kept; False where it says nothing
    of the files of now, or machine code is kept in another place than beside the modules."""
    state = _state()
    try:
        return state is not None and _note().read_text() == state
    except OSError:
        return False


def note_that_all_are_kept() -> None:
    """Write the note, where it can be written."""
    state = _state()
    if state is None:
        return
    note = _note()
    written = note.with_name(f"{note.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        note.parent.mkdir(exist_ok=True)
        written.write_text(state)
        written.replace(note)


def _note() -> Path:
    kind = f"{sys.implementation.cache_tag}-{sys.flags.optimize}"
    return _MODEL / _KEPT / f"all_kernels.{kind}.kept"


def _state() -> str | None:
    """Return a digest of all that the machine code depends on, and of the files that it is in; None where
    those are not the ones that numba would use."""
    if any(name.startswith("NUMBA_") for name in os.environ):
        return None
    digest = hashlib.sha256(f"{sys.version} {_processor()}".encode())
    try:
        for name in _COMPILERS:
            spec = find_spec(name)
            if spec is None or spec.origin is None:
                return None
            stat = os.stat(spec.origin)
            digest.update(f"{spec.origin} {stat.st_mtime_ns} {stat.st_size}\n".encode())
        for line in _files():
            digest.update(line.encode())
    except OSError:
        return None
    return digest.hexdigest()


def _files() -> Iterator[str]:
    """Path, time and size of each module that may have kernels, and of each file of machine code. Raises
    PermissionError where such files cannot be written: numba looks elsewhere then."""
    for package in jit.PACKAGES:
        for folder, folders, names in os.walk(_MODEL.parent / package.replace(".", "/")):
            folders.sort()
            if folder.endswith(_KEPT) and not os.access(folder, os.W_OK):
                raise PermissionError(folder)
            for name in sorted(names):
                if name.endswith(_SUFFIXES):
                    stat = os.stat(os.path.join(folder, name))
                    yield f"{folder}/{name} {stat.st_mtime_ns} {stat.st_size}\n"


def _processor() -> str:
    """What the first processor is and can: machine code is made for that."""
    lines = []
    with open("/proc/cpuinfo") as file:
        for line in file:
            if not line.strip():
                break
            if line.partition(":")[0].strip() in _CPU:
                lines.append(line)
    return "".join(lines)
