"""The training side under every Python that it is for, with nothing installed."""

import os
import subprocess
from pathlib import Path

import pytest

from fairlead.cluster.agent.client_files import offer_client
from tests.interpreters import wanted

SCRIPT = Path(__file__).with_name("portable.py")
LIMIT_S = 120.0


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_client_runs_and_resumes_under(version: str, tmp_path: Path) -> None:
    python = wanted(version)
    env = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    env |= {"PYTHONPATH": str(offer_client(tmp_path))}
    command = [str(python), "-S", "-W", "error", "-X", "dev", str(SCRIPT), str(tmp_path / "runs")]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
