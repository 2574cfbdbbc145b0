"""docs/contributing-guides.md: its code works as it stands, and each guide takes at most five files."""

import re
import sys
from pathlib import Path

import pytest
from tests.docs.test_tutorial import ROOT, blocks, run

PAGE = ROOT / "docs" / "contributing-guides.md"
MOST_FILES = 5
TASKS = ("A policy", "A trace format", "An engine that starts agents")


def section(task: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.partition(f"## {task}\n")[2].partition("\n## ")[0]


def files(task: str) -> list[tuple[str, bool]]:
    """The files that a guide names in its table, and whether they are new."""
    rows = re.findall(r"^\| `([^`]+)` (\(new\) )?\|", section(task), re.MULTILINE)
    return [(name, bool(new)) for name, new in rows]


def test_the_page_has_the_three_guides() -> None:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_a_guide_names_at_most_five_files_and_they_are_there(task: str) -> None:
    named = files(task)
    assert 1 <= len(named) <= MOST_FILES
    for name, new in named:
        path = ROOT / name
        there = path.parent.is_dir() and not path.exists() if new else path.is_file()
        assert there, name


@pytest.mark.parametrize("task", TASKS)
def test_the_code_of_a_guide_passes_its_own_test(task: str, tmp_path: Path) -> None:
    saved = []
    for block in blocks(PAGE):
        name = re.match(r"# (\w+\.py)\n", block.text)
        if block.language == "python" and name and block.text in section(task):
            (tmp_path / name[1]).write_text(block.text, encoding="utf-8")
            saved.append(name[1])
    assert [name.startswith("test_") for name in saved] == [False, True]
    path = f"{tmp_path}:{ROOT / 'src'}"
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", saved[1]]
    assert "passed" in run(pytest_here, tmp_path, task, path)


def test_the_line_of_the_registry_is_an_entry() -> None:
    """What the guide has written into BUILT_IN is what BUILT_IN holds."""
    from fairlead.policies.registry import BUILT_IN, Entry

    [line] = re.findall(r"`(Entry\(.+?\))`\.", section("A policy"))
    entry = eval(line, {"Entry": Entry, "MostDevicesFirst": Entry})
    assert isinstance(entry, type(BUILT_IN[0]))
    assert entry.name == "most_devices"


def test_the_formats_are_where_the_guide_says() -> None:
    from fairlead.simulator.traces.read_trace import FORMATS
    from fairlead.simulator.traces.reader import Format

    assert all(isinstance(one, Format) for one in FORMATS)
