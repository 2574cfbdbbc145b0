"""docs/elastic.md: its training script runs, on one rank and on several."""

import importlib.util
import os

import pytest
from tests.docs.test_tutorial import ROOT, blocks
from tests.ranks import run_ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]
PAGE = ROOT / "docs" / "elastic.md"


def run(rank: int, script: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    names: dict[str, object] = {}
    exec(compile(script, PAGE.name, "exec"), names)
    assert names["loader"].world_size == int(os.environ["WORLD_SIZE"])  # type: ignore[attr-defined]
    assert names["batches"].step == 3 * 16  # type: ignore[attr-defined]
    assert float(names["loss"].detach()) < 0.1  # type: ignore[attr-defined]


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_script_runs(ranks: int) -> None:
    [script] = [block.text for block in blocks(PAGE) if block.language == "python"]
    prepared = ("torch", "torch._dynamo", "fairlead.client.torch")
    assert run_ranks(ranks, run, script, prepared=prepared) == [0] * ranks
