"""A server that starts looks at a note instead of at all that is kept of each kernel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.model import jit

SOURCE = Path(jit.__file__).parents[1]
COMPILE = """
import sys
from fairlead.cluster.server import kept_kernels
from fairlead.cluster.server.kernel_compiler import compile_in_child
from fairlead.model import jit

jit.PACKAGES = ("model.some",)
print(kept_kernels.are_all_kept(), compile_in_child(jit.modules_with_kernels()), end=" ")
print("numba" in sys.modules)
"""
KERNEL = """
from fairlead.model import jit

@jit.kernel("i8(i8)")
def doubled(n):
    return 2 * n
"""
NOTED = "True 0 False"
LOOKED = "False 0 True"


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the package without machine code, and with one more kernel."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("__init__.py", "errors.py", "client", "cluster", "model"):
        source, copy = SOURCE / name, tmp_path / "fairlead" / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=ignored)
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(source, copy)
    some = tmp_path / "fairlead" / "model" / "some"
    some.mkdir()
    (some / "__init__.py").touch()
    (some / "kernels.py").write_text(KERNEL)
    return tmp_path


def compiled(installation: Path, **environment: str) -> str:
    """Whether the note says that all is kept, how many kernels had to be compiled, and whether numba was
    imported to find out."""
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env={**os.environ, "PYTHONPATH": str(installation), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_what_has_been_compiled_is_not_looked_at_again(installation: Path) -> None:
    assert compiled(installation) == "False 1 True"
    assert compiled(installation) == NOTED


@pytest.mark.parametrize("what", ["source", "machine code", "index", "place"])
def test_the_note_says_nothing_of_other_files(installation: Path, what: str) -> None:
    compiled(installation)
    some = installation / "fairlead" / "model" / "some"
    match what:
        case "source":
            (some / "kernels.py").write_text(f"{KERNEL}\n")
            assert compiled(installation) == "False 1 True"
        case "machine code":
            for path in (some / "__pycache__").glob("*.nbc"):
                path.unlink()
            assert compiled(installation).startswith("False")
        case "index":
            for path in (some / "__pycache__").glob("*.nbi"):
                path.unlink()
            assert compiled(installation) == "False 1 True"
        case "place":
            elsewhere = str(installation / "kept")
            assert compiled(installation, NUMBA_CACHE_DIR=elsewhere) == "False 1 True"
            assert compiled(installation, NUMBA_CACHE_DIR=elsewhere) == LOOKED
    assert compiled(installation) == NOTED
