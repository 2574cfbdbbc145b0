"""docs/api.md: its Python runs from top to bottom, and every public name is on the page."""

import re
from pathlib import Path

import pytest
from tests.docs.test_tutorial import ROOT, blocks

import fairlead

PAGE = ROOT / "docs" / "api.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(PAGE):
        assert block.language == "python"
        exec(compile(block.text, f"{PAGE.name}:{block.line}", "exec"), names)


def test_every_public_name_is_on_the_page() -> None:
    named = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    assert not set(fairlead.__all__) - {"__version__"} - named


@pytest.mark.parametrize("page", ["api.md", "tutorial.md"])
def test_pages_for_users_import_from_fairlead_alone(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert not re.findall(r"^\s*(?:from|import) fairlead\.\S+", text, re.MULTILINE)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples_import_from_fairlead_alone(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert not re.findall(r"^\s*(?:from|import) fairlead\.\S+", text, re.MULTILINE)
