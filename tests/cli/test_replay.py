"""``fairlead replay``: 1 says that the commands differ, 2 that there is nothing to compare."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.call_command import call

from fairlead.model import jit

GIVEN = ["--generate", "gavel,jobs=5,interarrival=1500", "--cluster", "v100=3,p100=3,k80=3"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_damaged_journal_is_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", *GIVEN, "--policy", "las", "--out", "run") == 0
    journal = Path("run/journal")
    whole = journal.read_bytes()
    middle = len(whole) // 2
    journal.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    for what in ("run", "run/journal"):
        assert call("replay", what) == 2
        message = capsys.readouterr().err
        assert "run/journal: " in message
        assert "damaged" in message
    journal.write_bytes(whole[:-3])
    assert call("replay", "run") == 2
    assert "sha256" in capsys.readouterr().err


def test_a_difference_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands of las under the name of fifo, whole and with the digest of the file."""
    from hashlib import sha256

    from fairlead.scheduler import journal as journals

    assert call("simulate", *GIVEN, "--policy", "las", "--out", "run") == 0
    kept = list(journals.records(Path("run/journal")))
    first = next(n for n, one in enumerate(kept) if one[:1] == b"R")
    with journals.Journal(Path("run/journal")) as other:
        other.open(journals.setup_of(Path("run/journal")))
        for one in [*kept[1:first], *kept[first + 1 :]]:
            other._append(one)
    record = json.loads(Path("run/run.json").read_text())
    record["metrics"]["journal_sha256"] = sha256(Path("run/journal").read_bytes()).hexdigest()
    Path("run/run.json").write_text(json.dumps(record))
    assert call("replay", "run") == 1
    assert f"record {first}" in capsys.readouterr().err


def test_the_runs_of_a_comparison_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", *GIVEN, "--policies", "fifo,las", "--out", "c") == 0
    capsys.readouterr()
    assert call("replay", "c") == 2
    message = capsys.readouterr().err
    assert "c/1-fifo-default" in message
    assert "c/2-las-default" in message
    assert message.count("\n") == 1
    Path("empty").mkdir()
    assert call("replay", "empty") == 2
    assert "empty/journal: cannot read the journal" in capsys.readouterr().err


def test_what_interpreted_kernels_have_decided_compiled_ones_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (sys.executable, "-m", "fairlead", "simulate", *GIVEN, "--policy", "fifo")
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "kept"),
        jit._COMPILER: str(os.getpid()),
    }
    subprocess.run((*command, "--out", "run"), env=environment, check=True, timeout=300)
    assert list(Path("kept").rglob("*.nbi")) == []  # nothing was compiled
    assert call("replay", "run") == 0
    assert "all commands are the same" in capsys.readouterr().out
