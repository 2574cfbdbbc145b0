"""Kernels are compiled when they are first called, and kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.model import jit

PROGRAM = """
import sys
from fairlead.model import jit

@jit.kernel("i8(i8)")
def doubled(n):
    return 2 * n

@jit.kernel("i8(i8)")
def more(n):
    return doubled(n) + 1

assert "numba" not in sys.modules
exec(sys.argv[1])
"""
FOUND = "assert more(4) == 9 and doubled(3) == 6"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(PROGRAM)
    return path


def stderr_of(program: Path, then: str) -> str:
    """What a program with two kernels says on stderr. They are kept in a directory beside it."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(program.parent / "kept")}
    environment.pop(
        jit._NOTICE_SHOWN, None
    )  # of a command that another test has run in this process
    ran = subprocess.run(
        [sys.executable, str(program), then],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def test_a_kernel_that_calls_another_is_compiled_at_its_first_call(program: Path) -> None:
    assert stderr_of(program, FOUND) == ""


def test_whoever_watches_is_told_once_per_installation(program: Path) -> None:
    then = f"jit.announce(); {FOUND}"
    assert stderr_of(program, then) == "fairlead: compiling kernels (once per installation) ...\n"
    assert stderr_of(program, then) == ""


def test_a_command_says_it_once_whatever_it_does_and_starts(program: Path) -> None:
    again = "import subprocess; subprocess.run([sys.executable, sys.argv[0], 'jit.prepare()'])"
    elsewhere = "import os; os.environ['NUMBA_CACHE_DIR'] += '-2'"
    then = f"jit.announce(); doubled(3); jit.prepare(); {elsewhere}; {again}"
    assert stderr_of(program, then) == "fairlead: compiling kernels (once per installation) ...\n"


def test_what_is_kept_is_not_compiled_again(program: Path) -> None:
    first = stderr_of(program, "assert jit.prepare() == 2")
    assert first == "fairlead: compiling 2 kernels (once per installation) ...\n"
    assert stderr_of(program, f"assert jit.prepare() == 0; {FOUND}") == ""


@pytest.mark.parametrize("what", ["fields", "kernel"])
def test_what_changes_in_another_file_is_compiled_again(tmp_path: Path, what: str) -> None:
    """numba itself looks at a kernel's own file alone."""
    other, kernels = tmp_path / "other.py", tmp_path / "kernels.py"
    text = "from typing import NamedTuple\nfrom fairlead.model import jit\n\n"
    text += "class Pair(NamedTuple):\n    {0}: float\n    {1}: float\n\n"
    text += '@jit.kernel("f8(f8)")\ndef scaled(x):\n    return {2} * x\n'
    kernels.write_text(
        "import sys\nfrom fairlead.model import jit\nfrom other import Pair, scaled\n\n"
        '@jit.kernel("f8(Pair)")\ndef first(of):\n    return scaled(of.a)\n\nexec(sys.argv[1])\n'
    )
    then = "found = first(Pair(a=1.0, b=10.0)); assert found == {0}, found"
    other.write_text(text.format("a", "b", 2))
    stderr_of(kernels, then.format(2.0))
    other.write_text(text.format(*(("b", "a", 2) if what == "fields" else ("a", "b", 300))))
    stderr_of(kernels, then.format(2.0 if what == "fields" else 300.0))


def test_what_names_a_record_that_is_gone_is_compiled_again(tmp_path: Path) -> None:
    """An index of kept kernels refers to records by module and name."""
    records, kernels = tmp_path / "records.py", tmp_path / "kernels.py"
    record = "from typing import NamedTuple\nfrom fairlead.model.jit_records import Floats1\n\n"
    record += "class {0}(NamedTuple):\n    value: Floats1\n"
    use = "import sys\nimport numpy as np\nfrom fairlead.model import jit\nfrom records import {0}\n\n"
    use += '@jit.kernel("f8({0})")\ndef total(of):\n    return of.value.sum()\n\n'
    use += "exec(sys.argv[1])\n"
    for name in ("Old", "New"):
        records.write_text(record.format(name))
        kernels.write_text(use.format(name))
        assert stderr_of(kernels, f"assert total({name}(np.ones(3))) == 3.0") == ""


@pytest.mark.parametrize("damage", [b"", b"\xff" * 200, None], ids=["empty", "garbage", "cut"])
def test_a_damaged_index_is_made_anew(program: Path, damage: bytes | None) -> None:
    """numba writes it without a sync: a power cut leaves such files."""
    stderr_of(program, "jit.prepare()")
    for index in (program.parent / "kept").rglob("*.nbi"):
        kept = index.read_bytes()
        index.write_bytes(kept[: len(kept) // 2] if damage is None else damage)
    assert stderr_of(program, FOUND) == ""
    assert stderr_of(program, "assert jit.prepare() == 0") == ""


def test_what_is_kept_for_another_processor_or_bytecode_is_not_taken_for_kept(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation on a shared file system serves machines of several kinds."""
    stderr_of(program, "jit.prepare()")
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    stderr_of(program, "assert jit.needs_compilation() and jit.prepare() == 2")
    monkeypatch.delenv("NUMBA_CPU_NAME")
    stderr_of(program, "assert not jit.needs_compilation()")  # one kind does not displace the other
    text = program.read_text()
    program.write_text(text.replace("    return 2 * n", "    assert n\n    return 2 * n"))
    stderr_of(program, "jit.prepare()")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")  # leaves assertions out
    stderr_of(program, "assert jit.prepare() == 1")


def test_a_kernel_is_compiled_where_nothing_can_be_written(program: Path) -> None:
    full = "from numba.core.caching import IndexDataCacheFile as kept\n"
    full += "def refuse(*_): raise OSError(28, 'No space left on device')\n"
    full += "kept._save_index = kept._save_data = refuse\n"
    assert stderr_of(program, full + FOUND) == ""


def test_all_modules_with_kernels_are_imported_without_any_extra() -> None:
    """A server imports them all at its first start, to compile what they have."""
    names = [
        "gymnasium",
        "ray",
        "torch",
        "torchdata",
        "lightning",
        "transformers",
        "cvxpy",
        "hypothesis",
    ]
    code = (
        "import sys; from importlib import import_module; from fairlead.model import jit; "
        f"sys.modules.update(dict.fromkeys({names!r})); "
        "[import_module(name) for name in jit.modules_with_kernels()]; import fairlead; "
        "[getattr(fairlead, name) for name in fairlead.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_kernel_is_interpreted_until_another_process_has_compiled_it(program: Path) -> None:
    then = "import os, subprocess; jit.LOOK_AGAIN_S = 0.0; jit.interpret_while(os.getpid()); "
    then += f"{FOUND}; assert jit.is_interpreting() and jit.loading_s == 0.0; "
    then += "subprocess.run([sys.executable, sys.argv[0], 'jit.prepare()'], check=True); "
    then += f"{FOUND}; assert jit.loading_s > 0.0"
    said = stderr_of(program, then)
    assert said == "fairlead: compiling 2 kernels (once per installation) ...\n"


@pytest.mark.parametrize("compiler", ["", "jit.interpret_while(done.pid); "])
def test_nothing_is_interpreted_where_nobody_compiles(program: Path, compiler: str) -> None:
    """Nor once who has compiled has ended, finished or not."""
    ended = "import subprocess; done = subprocess.Popen(['true']); done.wait(); "
    then = f"{ended}{compiler}{FOUND}; assert jit.loading_s > 0.0 and not jit.is_interpreting()"
    assert stderr_of(program, then) == ""


def test_kernels_of_solvers_are_not_interpreted(program: Path) -> None:
    then = "import os; jit.interpret_while(os.getpid()); "
    then += "doubled.function.__module__ = 'fairlead.policies.solve.some'; "
    then += "assert [one.is_interpretable() for one in (doubled, more)] == [False, True]; "
    then += "assert [one.__name__ for one in jit.missing_kernels()] == ['more', 'doubled']; "
    then += "assert doubled(3) == 6 and jit.loading_s > 0.0"
    assert stderr_of(program, then) == ""


def test_what_is_interpreted_has_the_types_of_what_is_compiled(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels.py"
    kernels.write_text(
        "import os, sys\nimport numpy as np\nfrom typing import NamedTuple\n"
        "from fairlead.model import jit\n\n"
        "class Pair(NamedTuple):\n    a: int\n    b: float\n\n"
        '@jit.kernel("f8(i8[::1])")\ndef whole(x):\n    return x[0]\n\n'
        '@jit.kernel("Tuple((i8, b1))(i8[::1])")\ndef both(x):\n    return x[0], x[0] > x[1]\n\n'
        '@jit.kernel("Pair(i8[::1])")\ndef pair(x):\n    return Pair(x[0], x[1] / 2)\n\n'
        "exec(sys.argv[1])\n"
    )
    found = "x = np.array([1, 2]); found = (whole(x), *both(x), *pair(x)); "
    found += "assert found == (1.0, 1, False, 1, 1.0), found; "
    found += "types = [type(one) for one in found]; "
    found += "assert types == [float, int, bool, int, float], types; assert type(pair(x)) is Pair; "
    for how in ("jit.interpret_while(os.getpid())", "jit.prepare()"):
        stderr_of(kernels, f"{how}; {found} assert (jit.loading_s > 0) == ('prepare' in {how!r})")
