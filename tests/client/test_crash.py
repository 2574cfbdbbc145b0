"""What a rank leaves behind when it dies of an exception."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
import fairlead, sys, threading
def save(path): path.write_text("x")
def step():
    {action}
with fairlead.Lease(load=print, save=save, total_steps=5) as lease:
    while lease.next():
        if lease.step == 2:
            step()
"""


def report_of(directory: Path, action: str, before: str = "") -> tuple[dict[str, Any] | None, str]:
    """(what is in the file, what was printed) of a script that does something at its third step."""
    script, path = directory / "train.py", directory / "failure"
    script.write_text(before + SCRIPT.format(action=action))
    environment = {**os.environ, "FAIRLEAD_FAILURE_FILE": str(path)}
    ended = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    return json.loads(path.read_text()) if path.exists() else None, ended.stderr


def test_an_exception_is_written_down_and_printed_as_ever(tmp_path: Path) -> None:
    report, printed = report_of(tmp_path, "raise ValueError('shapes differ')")
    assert report is not None
    place = (str(tmp_path / "train.py"), 5, "step")
    assert (report["file"], report["line"], report["function"]) == place
    assert (report["type"], report["message"], report["step"]) == ("ValueError", "shapes differ", 2)
    assert report["traceback"] in printed
    assert "in <module>" in report["traceback"]


def test_a_load_that_raises_is_said_to_be_one_of_that_step(tmp_path: Path) -> None:
    script, path = tmp_path / "train.py", tmp_path / "failure"
    script.write_text(
        "import fairlead, sys\n"
        "def save(path): path.write_text('x')\n"
        "def load(path):\n"
        "    try: int(path.read_text())\n"
        "    except ValueError as error: raise RuntimeError('size mismatch') from error\n"
        "with fairlead.Lease(load=load, save=save, total_steps=int(sys.argv[1]), "
        f"checkpoint_dir={str(tmp_path / 'kept')!r}) as lease:\n"
        "    while lease.next(): pass\n"
    )
    environment = {**os.environ, "FAIRLEAD_FAILURE_FILE": str(path)}
    codes = [
        subprocess.run(
            [sys.executable, script, steps], env=environment, capture_output=True, check=False
        ).returncode
        for steps in ("3", "9")
    ]
    assert codes == [0, 1]
    report = json.loads(path.read_text())
    message = "loading the checkpoint of step 3 failed: size mismatch"
    assert (report["type"], report["message"], report["step"]) == ("RuntimeError", message, -1)
    assert (report["function"], report["line"]) == ("load", 5)


def test_handlers_of_the_script_are_still_called(tmp_path: Path) -> None:
    hook = "import sys\nsys.excepthook = lambda *a: print('mine', a[0].__name__, file=sys.stderr)\n"
    report, printed = report_of(tmp_path, "json = __import__('json'); json.loads('{')", hook)
    assert report is not None
    assert report["type"] == "json.decoder.JSONDecodeError"
    assert report["file"] == str(tmp_path / "train.py")  # not the library
    assert printed.strip().endswith("mine JSONDecodeError")


def test_an_exit_is_no_exception(tmp_path: Path) -> None:
    assert report_of(tmp_path, "sys.exit('no')")[0] is None


def test_the_exception_of_a_thread_gives_way_to_that_of_the_process(tmp_path: Path) -> None:
    thread = "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"
    report, _ = report_of(tmp_path, thread)
    assert report is not None
    assert report["type"] == "ZeroDivisionError"
    report, _ = report_of(tmp_path, thread + "; raise KeyError('x')")
    assert report is not None
    assert report["type"] == "KeyError"


def test_a_fork_does_not_speak_for_its_parent(tmp_path: Path) -> None:
    action = "import os; pid = os.fork(); pid or 1 / 0; os.waitpid(pid, 0)"
    assert report_of(tmp_path, action)[0] is None


def test_an_error_whose_text_cannot_be_made_and_a_file_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    bad = "class Bad(Exception):\n    def __str__(self): raise RuntimeError\n"
    report, _ = report_of(tmp_path, "raise Bad()", bad)
    assert report is not None
    assert report["message"] == "<its text cannot be made>"
    (tmp_path / "failure").unlink()
    (tmp_path / "failure").mkdir()
    script = subprocess.run(
        [sys.executable, tmp_path / "train.py"],
        env={**os.environ, "FAIRLEAD_FAILURE_FILE": str(tmp_path / "failure")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert script.returncode == 1
    assert "Bad" in script.stderr
