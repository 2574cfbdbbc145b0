"""A server does not compile: another process does, and leaves it what it needs."""

import os
import subprocess
import sys
from pathlib import Path

from fairlead.model import jit

KERNELS = """
from fairlead.model import jit

@jit.kernel("i8(i8)")
def doubled(n):
    return 2 * n

@jit.kernel("i8(i8)")
def tripled(n):
    return 3 * n
"""
PROGRAM = """
from fairlead.model import jit
from fairlead.cluster.server.kernel_compiler import compile_in_child

compile_in_child(["some_kernels"])
print(jit.loading_s > 0)
from some_kernels import doubled, tripled
assert doubled(3) == 6 and tripled(3) == 9
"""


def compiled_here(folder: Path, kept: Path) -> tuple[bool, str]:
    """Whether a program that wants a kernel compiled it by itself, and what was said on stderr."""
    (folder / "some_kernels.py").write_text(KERNELS)
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if name != jit._NOTICE_SHOWN}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **environment,
            "NUMBA_CACHE_DIR": str(kept),
            "XDG_CACHE_HOME": str(kept),
            "PYTHONPATH": paths,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout == "True\n", ran.stderr


def test_another_process_compiles_what_is_not_kept(tmp_path: Path) -> None:
    here, message = compiled_here(tmp_path, tmp_path / "kept")
    assert not here
    assert message == "fairlead: compiling 2 kernels (once per installation) ...\n"
    assert compiled_here(tmp_path, tmp_path / "kept") == (False, "")


def test_where_nothing_can_be_kept_whoever_needs_it_compiles(tmp_path: Path) -> None:
    kept = tmp_path / "no directory"
    kept.write_text("")
    (tmp_path / "__pycache__").write_text("")
    here, message = compiled_here(tmp_path, kept)
    assert here
    assert message == "fairlead: compiling 2 kernels (once per installation) ...\n"


def test_it_ends_where_whoever_wanted_it_has_ended() -> None:
    command = [
        sys.executable,
        "-m",
        "fairlead.cluster.server.kernel_compiler",
        "1",
        "forwards",
        "no.such.module",
    ]
    assert subprocess.run(command, timeout=300).returncode == 0
