"""The scripts of examples/live/convert: what their conversion changes, and that it is exact."""

import contextlib
import difflib
import importlib.util
import io
import os
import random
import re
import runpy
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.ranks import run_ranks

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


def rank_of(rank: int, name: str, folder: Path, stop: int | None, logs: list[Path]) -> None:
    """One rank of a start."""
    import torch

    torch.set_num_threads(1)
    told = stop if rank == 1 else None  # whichever rank is told
    with pytest.MonkeyPatch.context() as patch:
        lines = Script(name, folder, patch).start(told)
    logs[rank].write_text("".join(f"{line}\n" for line in lines))


def output_of_ranks(name: str, folder: Path, *stops: int) -> list[str]:
    """What the first of two ranks prints in all starts; each is stopped after so many steps of its own,
    the last is not."""
    folder.mkdir()
    output: list[str] = []
    for start, stop in enumerate([*stops, None]):
        logs = [folder / f"{start}-{rank}" for rank in range(2)]
        assert run_ranks(2, rank_of, name, folder, stop, logs) == [0, 0]
        output += logs[0].read_text().splitlines()
    return output


@pytest.mark.parametrize("kind", [needs("ddp")])
def test_two_ranks_converted_and_moved_are_exact(kind: str, tmp_path: Path) -> None:
    whole = output_of_ranks(f"{kind}_after", tmp_path / "whole")
    parts = output_of_ranks(f"{kind}_after", tmp_path / "parts", 3, 6)
    before = output_of_ranks(f"{kind}_before", tmp_path / "before")
    assert whole[-1].startswith("done: ")
    assert parts == whole == before
