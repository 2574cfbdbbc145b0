"""Ctrl-C at any moment of a command: no traceback, exit code 130, nothing half-written."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Holds the process in the import of a module, in its body or where the interpreter drops exceptions.
HELD = """
import sys, time
at, where = sys.argv[1:3]
def hold():
    for _ in range(6000):  # a signal just before a sleep does not end that one
        time.sleep(0.1)
class Held:
    def __del__(self):
        print("here", flush=True)
        hold()
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            if where == "callback":
                Held()
            else:
                print("here", flush=True)
            hold()
sys.meta_path.insert(0, Finder())
sys.argv = ["fairlead", *sys.argv[3:]]
from fairlead.cli.main import main
main()
"""
SERVE = ("serve", "--state", "state", "--port", "0", "--agent-port", "0")
SIMULATE = ("simulate", "--generate", "gavel,jobs=9", "--policy", "fifo", "--out", "run")


@pytest.mark.parametrize("where", ["import", "callback"])
@pytest.mark.parametrize(
    ("at", "command"),
    [
        ("typer", ("--help",)),
        ("httpx", ("status", "--watch")),
        ("fairlead.cluster.server.server", SERVE),
        ("fairlead.simulator.generate", SIMULATE),
    ],
    ids=["help", "status", "serve", "simulate"],
)
def test_an_interrupt_during_imports_is_no_traceback(
    tmp_path: Path, at: str, command: tuple[str, ...], where: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HELD, at, where, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (out, err, process.returncode) == ("", "", 130)
    assert not list(tmp_path.iterdir())


def test_an_ignored_interrupt_stays_ignored() -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from fairlead.cli.main import main\n"
        "sys.argv = ['fairlead', '--version']\n"
        "try:\n    main()\n"
        "finally:\n    signal.raise_signal(signal.SIGINT)\n    print('here')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.endswith("here\n")
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_an_interrupt_of_code_from_a_string_has_the_exit_code_too(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from fairlead.cli import application, main\n"
        "application.run = lambda _: exec('raise KeyboardInterrupt')\n"
        "main.main()\n"
    )
    words = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 130)


def test_little_is_imported_before_an_interrupt_is_no_traceback() -> None:
    program = (
        "import sys; before = set(sys.modules); import fairlead.cli.main\n"
        "print({'enum', 'functools', 'signal', 'typing'} & (set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("set()\n", "")
