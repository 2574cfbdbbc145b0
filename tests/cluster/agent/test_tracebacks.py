"""The last traceback in what a process has printed."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.cluster.agent.tracebacks import MAX_LINES_AFTER, last_traceback


def output_of(directory: Path, script: str) -> str:
    """What a script prints that dies."""
    path = directory / "script.py"
    path.write_text(script)
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert ended.returncode
    return ended.stdout + ended.stderr


def test_code_of_a_command_line_is_the_users_own() -> None:
    for option, name in ((["-c", "import json; json.loads('{')"], "<string>"), (["-"], "<stdin>")):
        ended = subprocess.run(
            [sys.executable, *option],
            input="import json; json.loads('{')",
            capture_output=True,
            text=True,
            check=False,
        )
        found = last_traceback(ended.stderr)
        assert found is not None
        assert (found.file, found.line, found.function) == (name, 1, "<module>")


def test_code_that_a_library_has_made_is_not_the_users_own(tmp_path: Path) -> None:
    made = (
        "import dataclasses\n@dataclasses.dataclass\nclass B:\n"
        "    x: object = dataclasses.field(default_factory=dict.fromkeys)\n"
        "B()"
    )
    found = last_traceback(output_of(tmp_path, made))
    assert found is not None
    assert "<string>" in found.traceback
    assert (Path(found.file).name, found.line) == ("script.py", 5)


@pytest.mark.parametrize(
    ("script", "type_", "message", "line", "function"),
    [
        ("def f():\n    raise ValueError('no: such')\nf()", "ValueError", "no: such", 2, "f"),
        (
            "import json\njson.loads('{')",
            "json.decoder.JSONDecodeError",
            "Expecting",
            2,
            "<module>",
        ),
        ("assert False", "AssertionError", "", 1, "<module>"),
        ("import nothing_like_it", "ModuleNotFoundError", "No module named", 1, "<module>"),
        ("x = 1\nx = = 2", "SyntaxError", "invalid syntax", 2, ""),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('b') from e",
            "RuntimeError",
            "b",
            4,
            "<module>",
        ),
        (
            "def f():\n    raise OSError(5, 'a')\ntry:\n    f()\n"
            "except OSError:\n    raise KeyError('b')",
            "KeyError",
            "'b'",
            6,
            "<module>",
        ),
    ],
)
def test_what_python_prints(
    tmp_path: Path, script: str, type_: str, message: str, line: int, function: str
) -> None:
    noise = "step 1\nTraceback (most recent call last):\n  too old\nLookupError: caught\nstep 2\n"
    found = last_traceback(noise + output_of(tmp_path, script) + "nanobind: leaked 3 instances!\n")
    assert found is not None
    assert found.type == type_
    assert found.message.startswith(message)
    assert (found.file, found.line) == (str(tmp_path / "script.py"), line)
    assert found.function == function
    assert "LookupError" not in found.traceback
    assert "nanobind" not in found.traceback


def test_a_chain_is_kept_whole(tmp_path: Path) -> None:
    script = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('b') from e"
    found = last_traceback(output_of(tmp_path, script))
    assert found is not None
    assert "ZeroDivisionError: division by zero" in found.traceback
    assert "direct cause" in found.traceback


def test_a_group_is_kept_whole(tmp_path: Path) -> None:
    script = (
        "def f():\n    raise ValueError('one')\nerrors = [KeyError('two')]\n"
        "try:\n    f()\nexcept ValueError as e:\n    errors.append(e)\n"
        "raise ExceptionGroup('several', errors)"
    )
    found = last_traceback(output_of(tmp_path, script))
    assert found is not None
    assert (found.type, found.message) == ("ExceptionGroup", "several (2 sub-exceptions)")
    assert "ValueError: one" in found.traceback
    assert "KeyError: 'two'" in found.traceback


def test_the_prefix_of_a_rank_does_not_matter(tmp_path: Path) -> None:
    printed = output_of(tmp_path, "raise ValueError('no')")
    found = last_traceback("".join(f"[rank1]: {line}\n" for line in printed.splitlines()))
    assert found is not None
    assert (found.type, found.message, found.line) == ("ValueError", "no", 1)


def test_the_place_is_in_the_users_own_code() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/ann/train.py", line 57, in step\n    loss.backward()\n'
        '  File "/env/lib/python3.11/site-packages/torch/_tensor.py", line 9, in backward\n'
        "    run()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    found = last_traceback(text)
    assert found is not None
    assert (found.file, found.line, found.function) == ("/home/ann/train.py", 57, "step")
    assert found.type == "torch.OutOfMemoryError"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step 1\nexit\n",
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n  File 'x'\nno error behind it at all\n",
        "Traceback (most recent call last):\n  File 'x'\nValueError: caught\n"
        + "step\n" * (MAX_LINES_AFTER + 1),
    ],
)
def test_what_is_none(text: str) -> None:
    assert last_traceback(text) is None
