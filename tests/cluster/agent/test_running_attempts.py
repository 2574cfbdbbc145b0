"""Attempts as the spawner has them."""

import errno
from pathlib import Path

import pytest

from fairlead.cluster.agent import running_attempts
from fairlead.cluster.agent.device_claim import DeviceClaim, SpawnerStorage
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.running_attempts import NotStartedError, SpawnedAttempt
from fairlead.cluster.agent.spawner_messages import Launch, RankLaunch


@pytest.mark.parametrize("lack", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
def test_a_lack_of_processes_is_no_failure_of_a_job_of_which_nothing_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: int
) -> None:
    problem = OSError(lack, "none left")

    def fork_rank(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(running_attempts, "fork_rank", fork_rank)
    monkeypatch.setattr(DeviceClaim, "locks_of", lambda *_: [])
    rank = RankLaunch(
        rank=0, argv=("true",), env={}, cwd="/", log="l", stacks="s", devices=(0,), forkable=False
    )
    launch = Launch(job=1, attempt=1, token="t", ranks=(rank,), grace_s=1.0, start_limit_s=9.0)
    storage = SpawnerStorage(tmp_path, (), DeviceLocks(lambda device: tmp_path / str(device)))
    attempt = SpawnedAttempt(launch)
    with pytest.raises(OSError, match="none left"):
        attempt.start(rank, 1, storage)
    problem = OSError(errno.EACCES, "not yours")
    with pytest.raises(NotStartedError, match="rank 0: 'true' cannot be started: not yours"):
        attempt.start(rank, 1, storage)
