"""docs/search.md: its tutorial runs from top to bottom on a real cluster."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster import Running, running, until
from tests.docs.test_tutorial import ROOT, Block, blocks

from fairlead.cluster.protocol.read_study import read_study
from fairlead.cluster.protocol.study import PrunerSpec

PAGE = ROOT / "docs" / "search.md"
EXAMPLE = ROOT / "examples" / "live" / "search"


def test_files_of_the_page_are_those_of_the_examples() -> None:
    files = {block.text.partition("\n")[0]: block.text for block in blocks(PAGE)}
    for name in ("train.py", "study.toml"):
        assert files[f"# {name}"] == f"# {name}\n" + (EXAMPLE / name).read_text()


def test_the_pruner_of_the_page_fits_its_study(tmp_path: Path) -> None:
    (curve,) = [one.text for one in blocks(PAGE) if one.text.startswith("[pruner]")]
    study = (EXAMPLE / "study.toml").read_text()
    before, after = study.index("[pruner]"), study.index("[parameters.lr]")
    path = tmp_path / "study.toml"
    path.write_text(f"target = 0.95\n{study[:before]}{curve}\n{study[after:]}")
    assert read_study(path).pruner == PrunerSpec("curve", max_step=81, start=0.5)


def test_the_tutorial_leads_from_a_script_to_its_best_trial(tmp_path: Path) -> None:
    printed: list[str] = []
    with running(tmp_path, agents={"node-a": "v100=4"}) as cluster:
        with cluster.client() as client:
            until(lambda: any(node.state == "up" for node in client.nodes()), what="the node")
        for block in blocks(PAGE):
            name = block.text.partition("\n")[0].removeprefix("# ")
            if name in ("train.py", "study.toml"):
                (tmp_path / name).write_text(block.text)
            elif block.language == "bash":
                printed.append(
                    _run(["bash", "-euo", "pipefail", "-c", block.text], block, tmp_path, cluster)
                )
            elif block.language == "python":
                text = block.text.replace("http://127.0.0.1:8470", cluster.url)
                text = f"token = {cluster.admin_token!r}\n{text}print(number, view.state)"
                printed.append(_run([sys.executable, "-c", text], block, tmp_path, cluster))
        with cluster.client() as client:
            first = client.search_status(0)
    report, listed, of_best, by_python = printed
    assert first.state == "completed"
    assert len(first.trials) == 20
    assert first.counts.keys() == {"completed", "pruned"}
    assert first.best is not None
    assert first.best.value is not None
    assert first.best.value > 0.99
    assert all(trial.step == 81 for trial in first.trials if trial.state == "completed")
    assert f"Best: trial {first.best.number} (job {first.best.job})" in report
    assert f"{first.best.value:.6g}" in listed
    assert "accuracy" in of_best
    assert "81" in of_best
    assert by_python == "1 running\n"


def _run(command: list[str], block: Block, folder: Path, cluster: Running) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    known = {"FAIRLEAD_SERVER": cluster.url, "FAIRLEAD_TOKEN": cluster.admin_token}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **known, "PATH": programs},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    where = f"{PAGE.name}:{block.line}"
    assert done.returncode == 0, f"{where}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
