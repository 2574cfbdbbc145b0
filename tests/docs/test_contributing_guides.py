"""docs/contributing-guides.md: its code works where it is said to lie, and each guide takes at most five
files."""

import os
import re
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from tests.docs.test_tutorial import ROOT, blocks, run

import fairlead
from fairlead.model.snapshot import Snapshot
from fairlead.simulator.traces.csv_format import Row
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of

PAGE = ROOT / "docs" / "contributing-guides.md"
MOST_FILES = 5
TASKS = ("A policy", "A trace format", "An engine that starts agents")


def section(task: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.partition(f"## {task}\n")[2].partition("\n## ")[0]


def files(task: str) -> list[tuple[str, bool]]:
    """The files that a guide names in its table, and whether they are new."""
    rows = re.findall(r"^\| `([^`]+\.(?:py|md))` (\(new\) )?\|", section(task), re.MULTILINE)
    return [(name, bool(new)) for name, new in rows]


def code(task: str) -> dict[str, str]:
    """The code of a guide by its path: tests and modules where the table has new ones, the code of an
    existing module beside it."""
    new = [str(Path(name).parent) for name, is_new in files(task) if is_new]
    [source] = [folder for folder in new if folder.startswith("src/")]
    [tests] = [folder for folder in new if folder.startswith("tests/")]
    found = {}
    for block in blocks(PAGE):
        name = re.match(r"# (\w+\.py)\n", block.text)
        if block.language == "python" and name and block.text in section(task):
            folder = tests if name[1].startswith("test_") else source
            found[f"{folder}/{name[1]}"] = block.text
    return found


def save(task: str, folder: Path) -> list[str]:
    """Save the code of a guide in a folder, each block at its path. The paths."""
    saved = code(task)
    for name, text in saved.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.partition("\n")[2], encoding="utf-8")  # without its name
    return sorted(saved)


def rows_of_table(task: str, heading: str) -> list[list[str]]:
    """The cells of the table whose heading begins like this."""
    lines = section(task).partition(f"\n| {heading} |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


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
def test_the_code_of_a_guide_passes_its_own_tests(task: str, tmp_path: Path) -> None:
    saved = save(task, tmp_path)
    packages = {Path(name).parent.relative_to("src") for name in saved if name.startswith("src/")}
    lines = [
        f"import {'.'.join(one.parts)} as p; p.__path__.append({str(tmp_path / 'src' / one)!r})"
        for one in sorted(packages)
    ]
    (tmp_path / "conftest.py").write_text("\n".join(lines))
    tests = [name for name in saved if name.startswith("tests/")]
    assert tests
    # the programs that a test starts find Fairlead through this path
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    assert "passed" in run(command, tmp_path, task, f"{ROOT / 'src'}")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources by links, with the code of all guides among them."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in (ROOT / "src" / "fairlead").rglob("*.py"):
        link = folder / path.relative_to(ROOT)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    (folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    for typed in (ROOT / "src" / "fairlead").rglob("py.typed"):
        (folder / typed.relative_to(ROOT)).symlink_to(typed)
    if (ROOT / ".mypy_cache").is_dir():  # what is as it was there need not be checked again
        shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache", copy_function=os.link)
    for task in TASKS:
        save(task, folder)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--no-cache"],
        ["ruff", "format", "--check", "--no-cache"],
        ["mypy", "--no-error-summary"],
    ],
    ids=["ruff", "format", "mypy"],
)
def test_the_code_of_the_guides_passes_the_static_checks(
    command: list[str], checkout: Path
) -> None:
    names = sorted(name for task in TASKS for name in code(task))
    run([sys.executable, "-m", *command, *names], checkout, PAGE.name)


def test_the_line_of_the_registry_is_an_entry() -> None:
    """What the guide has written into BUILT_IN is what BUILT_IN holds."""
    from fairlead.policies.registry import BUILT_IN, Entry

    [line] = re.findall(r"`(Entry\(.+?\))`\.", section("A policy"))
    entry = eval(line, {"Entry": Entry, "MostDevicesFirst": Entry})
    assert isinstance(entry, type(BUILT_IN[0]))
    assert entry.name == "most_devices"


def test_the_table_of_the_snapshot_has_all_its_fields_and_their_shapes() -> None:
    rates = fairlead.Throughputs(
        tuple(map(fairlead.SlotType, ("a", "b", "c", "d"))),
        tuple(fairlead.JobType.parse("net", scale) for scale in (1, 2, 4, 8, 16)),
        np.ones((5, 4)),
    )
    jobs = [InstanceJob(i, "net") for i in range(3)]
    cluster = fairlead.Cluster.of(dict.fromkeys("abcd", 2))
    snapshot = snapshot_of(jobs, cluster, rates)
    size = {"jobs": 3, "groups": 3, "slots": 4, "types": 4, "job_types": 5, "width": 1}
    rows = rows_of_table("A policy", "name")
    names = [name.strip("`") for name, *_ in rows]
    properties = {name for name, one in vars(Snapshot).items() if isinstance(one, property)}
    assert sorted(names) == sorted({field.name for field in fields(Snapshot)} | properties)
    for name, (_, shape, _) in zip(names, rows, strict=True):
        value = getattr(snapshot, name)
        stated = tuple(size[axis] for axis in re.findall(r"\w+", shape))
        if isinstance(value, np.ndarray):
            assert value.shape == stated, name
        else:
            assert value is None or not stated or len(value) == stated[0], name


def test_the_table_of_a_row_has_all_that_it_gives() -> None:
    cells = " ".join(row[0] for row in rows_of_table("A trace format", "of a `Row`"))
    public = {name for name in vars(Row) if not name.startswith("_")} | {"line"}
    assert set(re.findall(r"`(\w+)", cells)) == public


def test_the_commands_of_the_guides_are_of_files_that_are_there() -> None:
    for name in re.findall(r"tests/[\w/]+\.py", PAGE.read_text(encoding="utf-8")):
        assert "NAME" in name or "ENGINE" in name or (ROOT / name).is_file(), name


def test_the_formats_are_where_the_guide_says() -> None:
    from fairlead.simulator.traces.read_trace import FORMATS
    from fairlead.simulator.traces.reader import Format

    assert all(isinstance(one, Format) for one in FORMATS)
