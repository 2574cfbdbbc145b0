"""Paths and modules of the project that pages name exist."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.docs.test_tutorial import PAGES, ROOT

import fairlead

TOPS = ("src", "tests", "docs", "scripts", "benchmarks", "examples", "deploy", "client")
PACKAGE = ROOT / "src" / "fairlead"
HISTORY = ("CHANGELOG.md",)  # what it names was there then
TO_BE_MADE = re.compile(r"NAME|ENGINE|\*")  # of the guides, patterns


@cache
def packages() -> frozenset[str]:
    return frozenset(path.name for path in PACKAGE.iterdir() if path.is_dir())


def paths(text: str) -> Iterator[str]:
    """Spans of code that are a path from the root of the repository or from src/fairlead."""
    for span in re.findall(r"`([\w./-]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        top, slash, rest = span.partition("/")
        if slash and (top in TOPS or (top in packages() and rest)) and not TO_BE_MADE.search(span):
            yield span


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_path_on_a_page_exists(page: Path) -> None:
    if page.name in HISTORY:
        return
    missing = [
        span
        for span in paths(page.read_text(encoding="utf-8"))
        if not (ROOT / span).exists() and not (PACKAGE / span).exists()
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_on_a_page_exists(page: Path) -> None:
    if page.name in HISTORY:
        return
    text = page.read_text(encoding="utf-8")
    made = set(re.findall(r"([a-z_]+)\.py\b", text))  # by who follows the page
    named = set(re.findall(r"\bfairlead(?:\.[a-z_]+)+", text))
    missing = [name for name in sorted(named) if not is_known(name)]
    assert not [name for name in missing if name.rpartition(".")[2] not in made]


def is_known(dotted: str) -> bool:
    """A module, an attribute of one, or a group of entry points or host of this name's form."""
    if dotted in ("fairlead.policies", "fairlead.observers", "fairlead.admission"):
        return True
    parent, _, last = dotted.rpartition(".")
    if parent == "fairlead" and hasattr(fairlead, last):
        return True
    try:
        if find_spec(dotted) is not None:
            return True
    except ModuleNotFoundError:
        pass
    try:
        spec = find_spec(parent)
    except ModuleNotFoundError:
        return False
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return bool(re.search(rf"\b{last}\b", source))


def test_the_architecture_has_every_wing() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `(\w+)/?(?:\.py)?` \|", text, re.MULTILINE))
    there = {p.stem for p in PACKAGE.iterdir() if p.stem.isidentifier()} - {"__init__", "__main__"}
    there -= {"__pycache__", "py"}
    assert shown == there


def test_the_table_has_the_order_of_the_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)/?(?:\.py)?` \|", text, re.MULTILINE)
    contract = (ROOT / ".importlinter").read_text(encoding="utf-8")
    layers = re.search(r"contract:packages\][\s\S]*?^layers =\n((?:    .+\n)+)", contract, re.M)
    assert layers is not None
    assert shown == layers[1].split()


def test_scripts_can_be_run() -> None:
    tools = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    for tool in [*tools, ROOT / ".ci" / "run"]:
        assert tool.stat().st_mode & 0o111, tool.name
        if "bash" in tool.read_text(encoding="utf-8").splitlines()[0]:
            subprocess.run(["bash", "-n", str(tool)], check=True)
