"""examples/live/park_on_gpu.py runs, here without a GPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/live/park_on_gpu.py"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]


def test_it_parks_three_models() -> None:
    command = (sys.executable, str(SCRIPT), "--small", "--device", "cpu", "--turns", "2")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split()[0] for line in done.stdout.splitlines()[2:]]
    assert rows == ["residual", "transformer", "LSTM"]
