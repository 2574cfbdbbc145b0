"""Two distributions out of one tree: ``fairlead-client``, without any dependency, and ``fairlead``."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.version import __version__
from fairlead.cluster.agent.client_files import CLIENT_FILES, offer_client

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fairlead"
LAZY = {
    "torch",
    "torchdata",
    "numpy",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "accelerate",
}


def project(path: str) -> Any:
    return tomllib.loads((ROOT / path).read_text())


def client_sources() -> list[Path]:
    found = [PACKAGE / name for name in CLIENT_FILES]
    files = [file for path in found for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return [file for file in files if file.suffix == ".py"]


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """(module, whether it is imported when the file is)."""
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    later = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        at_once = id(node) not in later
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield from ((f"{node.module}.{alias.name}", at_once) for alias in node.names)


def is_client(module: str) -> bool:
    parts = module.split(".")
    return len(parts) > 1 and {parts[1], f"{parts[1]}.py"} & set(CLIENT_FILES) != set()


def test_the_three_lists_of_the_clients_files_agree() -> None:
    build = project("client/pyproject.toml")["tool"]["hatch"]["build"]
    assert build["only-include"] == [f"src/fairlead/{name}" for name in CLIENT_FILES]
    targets = project("pyproject.toml")["tool"]["hatch"]["build"]["targets"]
    left_out = targets["wheel"]["exclude"]
    assert left_out == [f"/src/fairlead/{name}" for name in CLIENT_FILES]
    assert all((PACKAGE / name).exists() for name in CLIENT_FILES)


def test_both_are_of_one_version() -> None:
    dependencies = project("pyproject.toml")["project"]["dependencies"]
    assert f"fairlead-client=={__version__}" in dependencies
    assert project("client/pyproject.toml")["project"]["dependencies"] == []


def needs_a_framework(file: Path) -> bool:
    """Whether it cannot be imported without PyTorch or the like."""
    return any(at_once and module.partition(".")[0] in LAZY for module, at_once in imports(file))


@pytest.mark.parametrize("file", client_sources(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_the_client_imports_the_standard_library_and_itself(file: Path) -> None:
    """Frameworks only in modules that others import where they use them."""
    frameworks = {
        ".".join(one.relative_to(PACKAGE.parent).with_suffix("").parts)
        for one in client_sources()
        if needs_a_framework(one)
    }
    for module, at_once in imports(file):
        first = module.partition(".")[0]
        if first == "fairlead" and at_once and not needs_a_framework(file):
            assert is_client(module), module
            assert not any(f"{module}.".startswith(f"{one}.") for one in frameworks), module
        elif first != "fairlead" and first not in sys.stdlib_module_names:
            assert first in LAZY, module


def test_what_needs_nothing_but_the_client_is_part_of_it() -> None:
    for file in PACKAGE.glob("*.py"):
        if file.name == "measure.py":  # a command: ``fairlead measure``
            continue
        needs = [module for module, _ in imports(file) if module.startswith("fairlead.")]
        alone = bool(needs) and all(is_client(module) for module in needs)
        used = any(module.startswith("fairlead.client") for module in needs)
        assert not (alone and used) or file.name in CLIENT_FILES, (
            f"{file.name} belongs to fairlead-client: CLIENT_FILES and both pyproject.toml"
        )


def run(code: str, *path: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """In a Python without site-packages."""
    search = {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-S", "-W", "error", "-c", code]
    return subprocess.run(command, env=search | env, capture_output=True, text=True, check=False)


def test_the_client_alone_works_and_says_what_it_lacks(tmp_path: Path) -> None:
    offered = offer_client(tmp_path)
    done = run("import fairlead; print(fairlead.Iterator, fairlead.InputError)", offered)
    assert done.returncode == 0, done.stderr
    done = run("from fairlead import simulate", offered)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: fairlead.simulate is not part of fairlead-client")
    assert last.endswith("pip install fairlead")
    assert run("import fairlead; print(hasattr(fairlead, 'nothing'))", offered).stdout == "False\n"


def test_in_front_of_the_whole_package_it_leaves_the_rest_in_reach(tmp_path: Path) -> None:
    offered = offer_client(tmp_path)
    code = (
        "import fairlead, fairlead.client.lease as lease, fairlead.cluster.demo as rest;"
        "print(fairlead.__file__, lease.__file__, rest.__file__, sep='\\n')"
    )
    first, second, third = run(code, offered, PACKAGE.parent).stdout.splitlines()
    assert first.startswith(str(offered))
    assert second.startswith(str(offered))
    assert third == str(PACKAGE / "cluster" / "demo" / "__init__.py")


def test_a_later_agent_replaces_what_an_earlier_one_offered(tmp_path: Path) -> None:
    old = tmp_path / "client-0.0.1"
    old.mkdir()
    offered = offer_client(tmp_path)
    (offered / "fairlead" / "stray.py").write_text("")
    assert offer_client(tmp_path) == offered
    assert [path.name for path in tmp_path.iterdir()] == [offered.name]
    assert sorted(path.name for path in (offered / "fairlead").iterdir()) == sorted(CLIENT_FILES)


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    pins = re.findall(r'"fairlead-client==([^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert [*pins, *re.findall(r"^version: (.+)$", citation, re.M)] == [__version__] * 2


@pytest.mark.long
def test_the_wheels_share_no_file_and_have_them_all(tmp_path: Path) -> None:
    """Built as a user does, from the checkout and from the source distribution of the client."""
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache")
    )
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*pip, str(tmp_path), str(tree / "client"), str(tree)], check=True)
    (client,) = tmp_path.glob("fairlead_client-*.whl")
    (rest,) = tmp_path.glob("fairlead-*.whl")
    names = [
        {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fairlead/")}
        for wheel in (client, rest)
    ]
    sources = {
        str(file.relative_to(PACKAGE.parent))
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert names[0] & names[1] == set()
    assert names[0] | names[1] == sources
