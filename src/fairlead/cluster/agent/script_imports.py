"""The packages that a job's script imports, of those that are worth preparing and safe to.

Not whatever it imports: modules beside the script are the user's, and change; packages that start threads,
or read variables of the job as they are imported, would not be in a fork what they are in a process of
their own. So there is a list, and the prepared process looks at itself besides (``zygote``).
"""

import ast
import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.zygote import (
    can_fork,
    missing,
    script_of,
)

# Slow to import, without threads or a GPU until they are used, and read nothing of the environment but what
# ``VARIABLES_READ_ON_IMPORT`` names.
FORKABLE_PACKAGES = frozenset(
    {"torch", "torchvision", "torchaudio", "numpy", "scipy", "pandas", "sklearn", "timm", "einops"}
)
_IMPORTED_WITH = {"torch": ("torch._dynamo",)}  # what its optimizers import as they are made
VARIABLES_READ_ON_IMPORT = (
    *("PYTHON", "LD_", "TORCH", "PYTORCH", "NPY_", "NUMEXPR_", "SCIPY_", "SKLEARN_", "PANDAS_"),
    *(
        "OMP_",
        "MKL_",
        "KMP_",
        "OPENBLAS_",
        "GOTO_",
        "BLIS_",
        "MALLOC_",
        "CUDA_",
        "NCCL_",
        "TRITON_",
    ),
)  # how names of variables begin; a job that sets one is exec'd
_MAX_BYTES = 1 << 20  # bytes of a script
_MAX_SCRIPTS = 1000  # scripts that are remembered
_FIND_S = 30.0

Script = tuple[str, int, int]  # path, time of change, size


def find_imports(source: bytes) -> list[str]:
    """Installed ones of the known packages that a script imports at its top level, sorted. Raises
    SyntaxError, ValueError, RecursionError or MemoryError for what Python cannot read."""
    roots: set[str] = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            roots.add(statement.module.partition(".")[0])
    imported = [
        name for root in roots & FORKABLE_PACKAGES for name in (root, *_IMPORTED_WITH.get(root, ()))
    ]
    return sorted(name for name in imported if not missing(name))


def find_script(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, variables: Mapping[str, str]
) -> Script | None:
    """The script of a command; None = there is none, or the job had better be exec'd. own: variables that
    the job sets."""
    if any(name.startswith(VARIABLES_READ_ON_IMPORT) for name in variables):
        return None
    script = script_of(argv)
    if not script or script[0] == "-m" or not can_fork(argv, dict(env), cwd):
        return None
    path = Path(cwd) / script[0]
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_mtime_ns, found.st_size


class ScriptImports:
    """Remembers scripts; each is looked at once, by a process of its own: reading strangers' code may end
    the interpreter that does so."""

    def __init__(self, prepare: Callable[[str], object]) -> None:
        """prepare: called with modules, comma-separated, as soon as those of a script are known."""
        self._prepare = prepare
        self._known: dict[Script, str] = {}
        self._tasks: dict[Script, asyncio.Task[None]] = {}

    def of(self, key: Script | None) -> str:
        """Modules, comma-separated; "" = none, not known yet, or the job had better be exec'd."""
        if key is None:
            return ""
        if key in self._known:
            return self._known[key]
        if key not in self._tasks and key[2] <= _MAX_BYTES:
            self._tasks[key] = asyncio.create_task(self._read_imports(key))
        return ""

    async def _read_imports(self, key: Script) -> None:
        try:
            modules = await _find(key[0])
            if len(self._known) >= _MAX_SCRIPTS:
                self._known.clear()
            self._known[key] = modules
            if modules:
                self._prepare(modules)
        finally:
            self._tasks.pop(key, None)


async def _find(path: str) -> str:
    """Return the modules that a script imports, comma-separated; "" where nobody can tell."""
    try:
        # Of the first thread's children those that end are taken for orphans: see ``adopted``.
        return await on_thread(partial(_run_finder, path), 2 * _FIND_S)
    except OSError:  # a TimeoutError is one, too
        return ""


def _run_finder(path: str) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=_FIND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.decode().strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        print(",".join(find_imports(file.read(_MAX_BYTES))))
