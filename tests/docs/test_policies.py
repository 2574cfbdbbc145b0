"""docs/policies.md: every example prints what the page says, and every policy is on it."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_tutorial import PAGES, ROOT, Block, blocks, run

from fairlead.policies import registry

PAGE = ROOT / "docs" / "policies.md"
OWN = ("deadline_first", "no_worse_than_alone")  # examples of a policy of one's own


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page's commands run: a folder with the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sessions() -> Iterator[tuple[Block, str]]:
    """Python blocks that are no whole file, and what the page says that each prints."""
    found = blocks(PAGE)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language == "python" and "class " not in block.text:
            yield block, after.text if after is not None and after.language == "text" else ""


def test_the_examples_print_what_the_page_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And there is one of every policy."""
    names: dict[str, Any] = {}
    shown: set[str] = set()
    for block, says in sessions():
        exec(compile(block.text, f"{PAGE.name}:{block.line}", "exec"), names)
        assert capsys.readouterr().out == says, f"{PAGE.name}:{block.line}"
        shown.update(re.findall(r"^(\w+)", says, re.MULTILINE))
    missing = {entry.name for entry in registry.BUILT_IN} - shown
    assert not missing, f"{PAGE.name}: policies without a worked example: {sorted(missing)}"


def test_the_command_solves_the_same_problem(folder: Path) -> None:
    [block, *_] = [block for block in blocks(PAGE) if block.language == "bash"]
    printed = run(["bash", "-euo", "pipefail", "-c", block.text], folder, PAGE.name)
    assert "1: job 1: fast 0.5000  slow 0.2000" in printed
    assert "2: job 2" in printed


def test_the_table_has_every_policy() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Worked examples")[0]
    rows = re.findall(r"^\| (`\w+`) \| (.*?) \|", text, re.MULTILINE)
    table = {name.strip("`"): set(re.findall(r"`(\w+)`", also)) for name, also in rows}
    for entry in registry.BUILT_IN:
        assert entry.name in table, f"{PAGE.name}, the first table: no row for `{entry.name}`"
        assert table[entry.name] == set(entry.aliases), f"{PAGE.name}: aliases of `{entry.name}`"


def test_no_page_counts_the_policies_wrongly() -> None:
    """A number would have to be changed with each new policy; best there is none."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number in re.findall(r"`fairlead policies` lists (\d+)", text):
            assert int(number) == len(registry.BUILT_IN), f"{page.name}: better without the number"


@pytest.mark.parametrize("name", OWN)
def test_a_policy_of_ones_own_is_short_and_is_the_example(name: str) -> None:
    whole = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    [shown] = [b.text for b in blocks(PAGE) if b.language == "python" and f'"{name}"' in b.text]
    assert shown in whole
    assert len([line for line in shown.splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("name", OWN)
def test_a_policy_of_ones_own_plugs_in(name: str, folder: Path) -> None:
    """As the entry point of an installed package."""
    package = folder / "mine" / "mine-0.1.dist-info"
    package.mkdir(parents=True)
    package.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n")
    package.joinpath("entry_points.txt").write_text(f"[fairlead.policies]\n{name} = {name}:make\n")
    command = (
        f"solve --instances examples/problem.jsonl --throughputs examples/rates.csv --policy {name}"
    )
    python = [sys.executable, "-c", "from fairlead.cli.main import main; main()"]
    printed = run(
        [*python, *command.split()], folder, name, f"{folder / 'mine'}:{folder / 'examples'}"
    )
    assert f"{name}: 2 problems" in printed
