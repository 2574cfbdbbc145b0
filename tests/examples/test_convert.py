"""The scripts of examples/live/convert: what their conversion changes, and that it is exact."""

import contextlib
import difflib
import importlib.util
import io
import multiprocessing
import os
import random
import re
import runpy
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "live" / "convert"
KINDS = {  # libraries that each of them needs, lines that its conversion changes
    "plain": (["torch"], 5),
    "images": (["torch"], 5),
    "torchdata": (["torch", "torchdata"], 5),
    "ddp": (["torch"], 5),
    "lightning": (["torch", "lightning"], 4),
    "transformers": (["torch", "transformers", "accelerate"], 3),
}


def lines_of(name: str) -> list[str]:
    """Without blank lines."""
    return [line for line in (SCRIPTS / f"{name}.py").read_text().splitlines() if line.strip()]


def changed_lines(kind: str) -> int:
    """Lines that are new, gone or other in the converted script; one that is changed counts once."""
    before, after = lines_of(f"{kind}_before"), lines_of(f"{kind}_after")
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for tag, a, b, c, d in blocks if tag != "equal")


@pytest.mark.parametrize("kind", KINDS)
def test_the_conversion_changes_so_many_lines(kind: str) -> None:
    assert changed_lines(kind) == KINDS[kind][1]
    row = re.search(rf"^\|.*convert/{kind}_after\.py.*$", (ROOT / "docs/live.md").read_text(), re.M)
    assert row, f"docs/live.md has no row for {kind}"
    assert f"| {KINDS[kind][1]} |" in row.group()


def needs(kind: str) -> Any:
    missing = [name for name in KINDS[kind][0] if importlib.util.find_spec(name) is None]
    reason = f"{', '.join(missing)}: not installed"
    marks = [pytest.mark.torch, pytest.mark.skipif(bool(missing), reason=reason)]
    return pytest.param(kind, marks=marks)


class Script:
    """A script that runs in this process, in a folder of its own, with SIGTERM at a step of its choice."""

    def __init__(self, name: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = SCRIPTS / f"{name}.py"
        self.folder = folder
        self.patch = patch

    def run(self, *stops: int) -> list[str]:
        """The output of all starts; each is stopped after so many steps of its own, the last is not."""
        self.folder.mkdir()
        output: list[str] = []
        for stop in [*stops, None]:
            output += self.start(stop)
        return output

    def start(self, stop: int | None) -> list[str]:
        from fairlead.client.lease import Lease

        own, calls = Lease.next, 0

        def next_(lease: Lease) -> bool:
            nonlocal calls
            calls += 1
            if calls == stop:
                os.kill(os.getpid(), signal.SIGTERM)
            return own(lease)

        handler, states = signal.getsignal(signal.SIGTERM), random.getstate()
        out = io.StringIO()
        with self.patch.context() as patch, contextlib.redirect_stdout(out):
            patch.chdir(self.folder)
            patch.setattr(Lease, "next", next_)
            patch.setenv("FAIRLEAD_CHECKPOINT_DIR", str(self.folder / "checkpoints"))
            with contextlib.suppress(SystemExit):
                runpy.run_path(str(self.path), run_name="__main__")
        signal.signal(signal.SIGTERM, handler)
        random.setstate(states)
        return [line for line in out.getvalue().splitlines() if line[:5] in ("epoch", "done:")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [needs(kind) for kind in KINDS if kind != "ddp"])
def test_converted_and_moved_it_is_exact(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Script(f"{kind}_after", tmp_path / "whole", monkeypatch).run()
    parts = Script(f"{kind}_after", tmp_path / "parts", monkeypatch).run(3, 5, 1, 4)
    assert whole[-1].startswith("done: ")
    assert parts == whole
    if kind in ("plain", "torchdata"):  # no worker: the order and all noise are those of before
        assert Script(f"{kind}_before", tmp_path / "before", monkeypatch).run() == whole


PORT_TAKEN = 98  # exit code of a rank whose port another process has


class Ranks:
    """Two processes of one job, each as if on a node of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch

    def run(self, name: str, *stops: int) -> list[str]:
        self.folder.mkdir()
        output: list[str] = []
        for start, stop in enumerate([*stops, None]):
            logs = [self.folder / f"{start}-{rank}" for rank in range(2)]
            codes = self.start(name, stop, logs)
            if codes[0] == PORT_TAKEN:  # by another test, since it was found free
                codes = self.start(name, stop, logs)
            assert codes == [0, 0]
            output += logs[0].read_text().splitlines()
        return output

    def start(self, name: str, stop: int | None, logs: list[Path]) -> list[int | None]:
        """The exit codes of both ranks."""
        port = str(free_port())
        fork = multiprocessing.get_context("fork")
        ranks = [
            fork.Process(target=self.rank, args=(name, rank, port, stop, log))
            for rank, log in enumerate(logs)
        ]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join(300)
            if one.exitcode != 0:
                for other in ranks:
                    other.kill()
        for one in ranks:
            one.join()
        return [one.exitcode for one in ranks]

    def rank(self, name: str, rank: int, port: str, stop: int | None, log: Path) -> None:
        environment = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_PORT": port}
        for key, value in {**environment, "MASTER_ADDR": "127.0.0.1"}.items():
            os.environ[key] = str(value)
        script = Script(name, self.folder, self.patch)
        try:
            lines = script.start(stop if rank == 1 else None)  # whichever rank is told
        except RuntimeError as problem:
            if "address already in use" in str(problem).lower():
                os._exit(PORT_TAKEN)
            raise
        log.write_text("".join(f"{line}\n" for line in lines))


def free_port() -> int:
    """The one behind it is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", [needs("ddp")])
def test_two_ranks_converted_and_moved_are_exact(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    whole = Ranks(tmp_path / "whole", monkeypatch).run(f"{kind}_after")
    parts = Ranks(tmp_path / "parts", monkeypatch).run(f"{kind}_after", 3, 6)
    before = Ranks(tmp_path / "before", monkeypatch).run(f"{kind}_before")
    assert whole[-1].startswith("done: ")
    assert parts == whole == before
