"""The documentation runs: the tutorial from top to bottom, every example, every link."""

import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

import fairlead

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(page, text[: match.start()].count("\n") + 1, match[1], match[2]) for match in found
    ]


def run(command: list[str], folder: Path, where: str, path: str = "") -> str:
    """Run a command with this interpreter's programs in front; its output, or a failure that says where."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": path, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,  # kernels may have to be compiled first
        check=False,
    )
    assert done.returncode == 0, f"{where}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Bash and Python blocks in order; a Python block that begins with a file's name is saved there."""
    page = ROOT / "docs" / "tutorial.md"
    printed = ""
    for block in blocks(page):
        name = re.match(r"# (\w+\.py)\n", block.text)
        where = f"{page.name}:{block.line}"
        if block.language == "python" and name:
            (tmp_path / name[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            printed += run([sys.executable, "-c", block.text], tmp_path, where)
        elif block.language == "bash":
            printed += run(["bash", "-euo", "pipefail", "-c", block.text], tmp_path, where)
    for policy in ("fifo", "fifo_aware", "isolated", "las", "las_aware", "shortest"):
        assert re.search(rf"^\| {policy} +\| +\d", printed, re.MULTILINE), policy
    assert printed.count("all commands are the same") == 2
    assert (tmp_path / "first" / "report.html").is_file()
    assert (tmp_path / "figures" / "jct-load.svg").is_file()


def test_the_policy_of_the_tutorial_shares_devices_between_both_slot_types() -> None:
    """Of servers with several devices an accelerator type has two columns."""
    [block] = [b for b in blocks(ROOT / "docs" / "tutorial.md") if "# shortest.py" in b.text]
    module = types.ModuleType("shortest")
    sys.modules[module.__name__] = module  # dataclasses look it up
    try:
        exec(block.text, module.__dict__)
        cluster = fairlead.Cluster.of({"v100": 8, "p100": 8, "k80": 8}, devices_per_server=4)
        rates = fairlead.read_throughputs("builtin")
        jobs = list(
            fairlead.generate("gavel,jobs=30,interarrival=900,multi-gpu", rates, cluster, 0)[0]
        )
        result = fairlead.simulate(jobs, cluster, module.ShortestFirst(), throughputs=rates)
    finally:
        del sys.modules[module.__name__]
    assert result.metrics["n_completed"] == len(jobs) - len(result.skipped) > 20


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    assert run([sys.executable, str(example)], tmp_path, example.name).strip()
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_begins_with_two_commands() -> None:
    first, second = blocks(ROOT / "README.md")[:2]
    for block in (first, second):
        assert block.language == "bash"
        assert block.text.count("\n") == 1
    assert first.text.rstrip().endswith("fairlead compare")
    assert second.text.rstrip().endswith("scripts/check")
