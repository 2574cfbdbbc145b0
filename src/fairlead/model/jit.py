"""Compiled loops. numba compiles a kernel when it is first called, for the types in its signature, or when
``prepare`` is, and keeps the machine code beside the module or, where that cannot be written, in the user's
cache; where neither can be, it is compiled anew in each process. numba itself is imported no earlier.

While another process compiles (``interpret_while``) a kernel that is not kept yet runs as the Python function
that it is, with the same results."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import update_wrapper
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])

PACKAGES = (
    "analysis.report",
    "estimation",
    "model",
    "policies",
    "scheduler",
    "simulator",
)  # have kernels
# Are the types of what a kernel is given compared with its signature at each call, where records are among
# it? They are in the tests.
CHECK_RECORDS = bool(os.environ.get("FAIRLEAD_CHECK_RECORDS"))
COMPILING = "(once per installation)"  # in the line that says so
_kernels: list["_Kernel"] = []
_loading = False
loading_s = 0.0  # that this process has spent on compiling kernels, or on fetching kept ones
_lock = threading.RLock()
_announced = True  # has somebody been told that code is compiled, or is nobody to be told?
# Set once somebody has been told: processes that this one starts are of the same command.
_NOTICE_SHOWN = "FAIRLEAD_TOLD_OF_COMPILING"
# The process id of who compiles for this process and those that it starts.
_COMPILER = "FAIRLEAD_COMPILER_PID"
LOOK_AGAIN_S = 3.0  # between two looks whether an interpreted kernel has been compiled, and by whom
# Solvers would take minutes, and NumPy's sums and powers are not to the bit those of compiled code.
_ALWAYS_COMPILED = "fairlead.policies."


class _Kernel:
    """A function that is compiled at its first call."""

    def __init__(
        self,
        function: Callable[..., object],
        signatures: list[str],
        *,
        inline: str,
        allocates: bool,
    ) -> None:
        self.function, self.signatures = function, signatures
        self.inline, self.allocates = inline, allocates
        self._dispatcher: Any = None  # numba's, not compiled yet
        self._compiled: Any = None
        self._entry: Any = None  # what a call from Python goes to
        self._looked_s = -LOOK_AGAIN_S  # monotonic; for machine code of another process
        update_wrapper(self, function)
        _kernels.append(self)

    def __call__(self, *args: Any) -> Any:
        if self._entry is None:
            if _COMPILER in os.environ and self._is_interpreted():
                return self._interpret(args)
            self.compiled()
        return self._entry(*args)

    def is_interpretable(self) -> bool:
        """Return whether its Python function may stand in for its machine code."""
        return not self.function.__module__.startswith(_ALWAYS_COMPILED) and self.is_cacheable()

    def _is_interpreted(self) -> bool:
        """Return whether another process is to compile it, and has not yet, as of the last look."""
        now = time.monotonic()
        if now - self._looked_s >= LOOK_AGAIN_S:
            if not self.is_interpretable() or self.is_cached() or not is_interpreting():
                return False
            self._looked_s = now
        return True

    def _interpret(self, args: tuple[Any, ...]) -> Any:
        """Call the Python function; returns what the machine code would, of the same types."""
        from fairlead.model.jit_records import as_compiled

        return as_compiled(self.function(*args), self.signatures[0])

    @property
    def dispatcher(self) -> Any:
        """The numba dispatcher of the function; asking for it compiles nothing."""
        if self._dispatcher is None:
            import numba  # a second of CPU time, which most commands can do without

            njit: Any = numba.njit  # typed in some of its versions, not in others
            made = njit(inline=self.inline, _nrt=self.allocates)(self.function)
            with suppress(RuntimeError):  # nowhere to keep it
                made.enable_caching()
                file = made._cache._cache_file
                file._source_stamp = (file._source_stamp, self.depends_on())
            self._dispatcher = made
        return self._dispatcher

    def depends_on(self) -> tuple[object, ...]:
        """Return what numba ignores when it judges whether machine code is of today's source.
        That is the fields of records, and the kernels of other files, which are part of the machine code."""
        from fairlead.model.jit_records import fields_of_records

        known = self.function.__globals__
        called = [known.get(name) for name in self.function.__code__.co_names]
        kernels = [one for one in called if isinstance(one, _Kernel) and one is not self]
        sources = [os.stat(one.function.__code__.co_filename) for one in kernels]
        return (
            fields_of_records(" ".join(self.signatures), known),
            tuple((stat.st_mtime_ns, stat.st_size) for stat in sources),
            tuple(one.depends_on() for one in kernels),
        )

    def is_cached(self) -> bool:
        """Return whether this process or another has compiled it before, and kept it for all of its
        signatures, for this processor, and for the bytecode that this interpreter makes of it (``python -O``
        makes other)."""
        if self._compiled is not None:
            return True
        made = self.dispatcher
        try:
            kept = made._cache._cache_file._load_index()
            codegen = made.targetctx.codegen()
            return all(
                made._cache._index_key(one, codegen) in kept for one in self._resolved_signatures()
            )
        except Exception:  # unpickling the index of a disk that was full raises anything
            return False

    def is_cacheable(self) -> bool:
        """Return whether its machine code may be written somewhere."""
        return hasattr(self.dispatcher._cache, "_cache_file")

    def compiled(self) -> Any:
        """The machine code, from the cache if it is there."""
        global _loading, loading_s
        with _lock:
            if self._compiled is None:
                self._announce()
                outermost, began = not _loading, time.perf_counter()
                _loading = True
                try:
                    self._compile()
                finally:
                    if outermost:
                        _loading = False
                        loading_s += time.perf_counter() - began
        return self._compiled

    def _resolved_signatures(self) -> list[Any]:
        from fairlead.model.jit_records import resolve_signature  # loads NumPy

        return [resolve_signature(one, self.function.__globals__) for one in self.signatures]

    def _compile(self) -> None:
        known = self.function.__globals__
        kernels = self._called()
        made = self.dispatcher
        # numba looks up what a function calls among its globals, and knows nothing of this class.
        known.update({name: one.compiled() for name, one in kernels.items()})
        try:
            for signature in self._resolved_signatures():
                _compile_signature(made, signature)
        finally:
            known.update(kernels)
        made.disable_compile()
        self._compiled = made
        self._entry = made if CHECK_RECORDS else self._unchecked(known)

    def _called(self) -> dict[str, "_Kernel"]:
        """The kernels that the function calls, by name; also those that are called in ones of its module
        which become part of it."""
        known = self.function.__globals__
        found: dict[str, _Kernel] = {}
        for name in self.function.__code__.co_names:
            one = known.get(name)
            if isinstance(one, _Kernel):
                found[name] = one
                if one.inline == "always" and one.function.__globals__ is known:
                    found |= one._called()
        return found

    def _unchecked(self, known: dict[str, Any]) -> Any:
        """The machine code itself where arrays come in records: to look at the types of their fields costs
        numba more than many a kernel does."""
        from fairlead.model.jit_records import takes_records

        if len(self.signatures) > 1 or not takes_records(self.signatures[0], known):
            return self._compiled
        (overload,) = self._compiled.overloads.values()
        return overload.entry_point

    def _announce(self) -> None:
        global _announced
        if not _announced and not self.is_cached():
            _announced = True
            _print_once("compiling kernels")


def _compile_signature(dispatcher: Any, signature: Any) -> None:
    """Compile for a signature, without what is kept where that is damaged or names a record that is gone, and
    without keeping it where that fails (a full disk)."""
    try:
        dispatcher.compile(signature)
    except Exception:  # also what a damaged file raises when it is unpickled
        try:
            dispatcher._cache.flush()
            dispatcher.compile(signature)
        except OSError:
            dispatcher._cache.disable()
            dispatcher.compile(signature)


def kernel(
    signature: str | list[str], inline: str = "never", allocates: bool = True
) -> Callable[[F], F]:
    """Compile a function for numba's signature(s), in which records of arrays stand by the names of their
    classes (``fairlead.model.jit_records``). Results are those of plain Python: no fast-math.

    allocates: False states that the function makes no array, calls no kernel that returns one, and returns
    none. Then numba counts no references to the arrays that it is given, which costs more than the arithmetic
    in loops over the fields of records."""
    signatures = [signature] if isinstance(signature, str) else signature

    def compile_(function: F) -> F:
        return cast(F, _Kernel(function, signatures, inline=inline, allocates=allocates))

    return compile_


def announce() -> None:
    """Say so on stderr, once per command, where kernels have to be compiled: for a program that somebody
    watches."""
    global _announced
    _announced = False


def prepare() -> int:
    """Compile those kernels of all modules that have been imported that are not kept from before; how many.
    A line on stderr says so beforehand, unless one has been said."""
    missing = missing_kernels()
    announce_all(len(missing))
    for one in missing:
        one.compiled()
    return len(missing)


def missing_kernels() -> list["_Kernel"]:
    """The kernels of imported modules that are not kept, nor compiled in this process: first those that a
    server interprets meanwhile."""
    missing = [one for one in _kernels if not one.is_cached()]
    return sorted(missing, key=lambda one: not one.is_interpretable())


def announce_all(missing: int, how: str = "") -> None:
    """Say on stderr that so many kernels are compiled now, unless it has been said. how: more words."""
    global _announced
    if missing:
        _announced = True
        _print_once(f"compiling {missing} kernels{how}")


def interpret_while(compiler: int) -> None:
    """Interpret kernels that are not kept while a process lives that compiles them, here and in the processes
    that this one starts from now on. What is not kept when it ends is compiled where it is called.

    compiler: its process id."""
    os.environ[_COMPILER] = str(compiler)


def is_interpreting() -> bool:
    """Return whether kernels that are not kept are interpreted."""
    compiler = os.environ.get(_COMPILER)
    if compiler is None:
        return False
    try:
        os.kill(int(compiler), 0)
    except ProcessLookupError:
        del os.environ[_COMPILER]
        return False
    except PermissionError:  # it is another user's, and lives
        pass
    return True


def needs_compilation() -> bool:
    """Return whether a kernel of an imported module is not kept, though it could be."""
    return any(one.is_cacheable() and not one.is_cached() for one in _kernels)


def modules_with_kernels() -> list[str]:
    """All modules that may have kernels."""
    names = []
    for package in PACKAGES:
        path = import_module(f"fairlead.{package}").__path__
        names += [one.name for one in walk_packages(path, f"fairlead.{package}.")]
    return names


def _renew_lock() -> None:
    """Renew the lock in a process that was just forked: its holder is not in this process."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _print_once(what: str) -> None:
    """Say it on stderr, unless this process, or one that has started it, has."""
    if not os.environ.get(_NOTICE_SHOWN):
        os.environ[_NOTICE_SHOWN] = "1"
        print(f"fairlead: {what} {COMPILING} ...", file=sys.stderr, flush=True)
