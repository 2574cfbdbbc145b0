"""``scripts/review_figures.py`` on a small package whose figures are known."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "review_figures.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300
    )


def figures(root: Path) -> dict[str, dict[str, Any]]:
    ran = run("--root", str(root), "--json")
    assert ran.returncode == 0, ran.stderr
    return {one["name"]: one for one in json.loads(ran.stdout)}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Two modules that import each other, a class in each of the same name, a long function, a long call."""
    root = tmp_path / "small"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "a.py").write_text(
        "from small import b\n"
        "class Same:\n"
        "    def __init__(self):\n"
        "        self.x, self.y = 1, 2\n"
        "        self.z = b.call(1, 2, 3, 4, 5, 6, 7)\n"
    )
    body = "    pass\n" * 60
    (root / "b.py").write_text(
        "from small import a\nclass Same:\n    one: int = 0\n"
        f"def long():\n{body}"
        "def call(*given):\n    return max(*given, 2, 3, 4, 5, 6)\n"
    )
    return root


def test_each_figure_counts_what_it_says(package: Path) -> None:
    found = figures(package)
    values = {name: one["value"] for name, one in found.items()}
    assert values["calls with 7 or more positional arguments"] == 1
    assert "a.py:5" in found["calls with 7 or more positional arguments"]["offenders"][0]
    assert values["class names used twice or more"] == 1
    assert found["functions over 60 lines"]["offenders"] == [
        f"{package / 'b.py'}:4: long, 61 lines"
    ]
    assert values["attributes of the largest class with behaviour"] == 3
    assert values["files over 500 lines"] == 0
    assert found["import circles between modules"]["offenders"] == ["small.a, small.b"]


def test_a_record_that_changes_and_has_methods_is_told_apart(package: Path) -> None:
    fields = "    x: int = 0\n    y: int = 0\n"
    method = "    def grow(self):\n        self.x += 1\n"
    (package / "a.py").write_text(
        "from dataclasses import dataclass\nfrom typing import NamedTuple\n"
        f"@dataclass\nclass Acts:\n{fields}{method}"
        f"@dataclass(frozen=True)\nclass Stays:\n{fields}    z: int = 0\n{method}"
        f"class Row(NamedTuple):\n{fields}    z: int = 0\n{method}"
        f"@dataclass\nclass Data:\n{fields}    z: int = 0\n"
        "    @property\n    def total(self):\n        return self.x\n"
    )
    found = figures(package)["attributes of the largest record that changes and has methods"]
    assert (found["value"], len(found["offenders"])) == (2, 1)
    assert "Acts" in found["offenders"][0]


def test_check_fails_only_over_a_limit(package: Path) -> None:
    ran = run("--root", str(package), "--check")
    assert ran.returncode == 1
    assert "OVER" in ran.stdout
    (package / "a.py").write_text("class Other:\n    pass\n")
    assert run("--root", str(package), "--check").returncode == 0


def test_a_function_deferred_import_is_no_circle_on_loading(package: Path) -> None:
    (package / "a.py").write_text("def later():\n    from small import b\n    return b\n")
    found = figures(package)
    assert found["import circles between modules"]["value"] == 0
    assert found["the same with imports inside functions"]["value"] == 1


def test_the_list_names_places_of_this_project() -> None:
    ran = run("--list")
    assert ran.returncode == 0, ran.stderr
    assert "lines of source" in ran.stdout


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    ran = run("--root", str(tmp_path))
    assert ran.returncode == 2
    assert "is not a package" in ran.stderr
