"""Thousands of wrong files and options; each is refused in one sentence, or can be used."""

from pathlib import Path

import pytest
from tests.wrong_input import run_case_number

from fairlead.cli.main import main

FEW, MANY = 300, 6000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a finished run."""
    folder = tmp_path_factory.mktemp("good") / "r"
    given = ["--policy", "las", "--generate", "gavel,jobs=2", "--cluster", "v100=2"]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *given, "--out", str(folder), "--json"])
    assert ended.value.code == 0
    return folder / "journal"


@pytest.mark.parametrize(
    ("first", "count"), [(0, FEW), pytest.param(FEW, MANY, marks=pytest.mark.long)]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_whatever_is_wrong_is_said_in_one_sentence(
    tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch, first: int, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    faults = [run_case_number(number, good, tmp_path) for number in range(first, first + count)]
    assert list(filter(None, faults)) == []
