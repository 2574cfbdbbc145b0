"""Steps that were done and are done again, as the job itself counts them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead import Lease
from fairlead.client.messages import Loaded
from fairlead.client.step_count import StepCount
from tests.client.training import Script, agent

KILLED = """
import os, sys, signal
from pathlib import Path
from fairlead import Lease
folder, saved, killed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
lease = Lease(load=lambda p: None, save=lambda p: p.write_text("x") and None, total_steps=1000,
              checkpoint_dir=folder)
with lease:
    while lease.next():
        if lease.step == saved - 1:
            lease.checkpoint()
        if lease.step == killed:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, saved: int, step: int) -> None:
    code = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(saved), str(step)], check=False
    ).returncode
    assert code == -signal.SIGKILL


def test_every_step_of_a_process_that_is_killed_is_counted(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(folder, saved=10, step=37)  # 27 lost
    killed(folder, saved=20, step=23)  # and 3
    with agent(tmp_path, monkeypatch) as served:
        script = Script()
        held = Lease(load=script.load, save=script.save, total_steps=25, checkpoint_dir=folder)
        with held:
            assert held.step == 20
            while held.next():
                pass
        served.wait_for(Loaded)
        # The starts by hand were those of job 0; what is another job's is not this one's loss.
        assert served.received(Loaded)[0].lost_steps == 0  # type: ignore[union-attr]
    count = StepCount(folder, served.host.job)
    assert count.resume_from(25) == 0
    count.close()


def test_losses_of_all_starts_add_up(folder: Path) -> None:
    killed(folder, saved=10, step=37)
    killed(folder, saved=20, step=23)
    count = StepCount(folder, 0)
    assert count.resume_from(20) == 27 + 3
    count.write(26)
    count.close()
    assert StepCount(folder, 0).resume_from(22) == 27 + 3 + 4
    assert StepCount(folder, 1).resume_from(0) == 0


def test_a_count_that_cannot_be_kept_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "steps").write_bytes(os.urandom(7))
    assert StepCount(tmp_path, 0).resume_from(5) == 0
    missing = StepCount(tmp_path / "nowhere", 0)
    assert missing.resume_from(5) == 0
    missing.write(6)
    missing.close()
