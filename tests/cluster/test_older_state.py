"""The whole state directory is replaced by an older copy of itself: agents know better, and say so."""

import shutil
from pathlib import Path

import httpx
import pytest
from tests.call_command import call
from tests.cluster.cluster import Running, running, until
from tests.cluster.ledger_job import SHORT_GRACE, STEPS, ledger, ledger_job

from fairlead.cluster.server.after_restore import JOBS
from fairlead.errors import FairleadError

NODES = {"one": "v100=1", "two": "v100=1"}


def steps(folder: Path, job: int) -> list[int]:
    """That a job has done, in order."""
    return [step for other, _, _, step in ledger(folder) if other == job]


def swap(cluster: Running, copy: Path) -> Path:
    """Put a copy in the place of the state; returns where that is now."""
    newer = cluster.directory / "newer"
    cluster.state.rename(newer)
    shutil.copytree(copy, cluster.state)
    return newer


def make_copy(cluster: Running, folder: Path) -> tuple[Path, int, int]:
    """A copy of the state, a job that runs and is in it, and one that was acknowledged since."""
    with cluster.client() as client:
        (old,) = client.submit([ledger_job(folder)])
        until(lambda: client.job(old).steps > 3)
    cluster.kill()
    shutil.copytree(cluster.state, folder / "copy")
    cluster.start()
    with cluster.client() as client:
        (new,) = client.submit([ledger_job(folder)])
        until(lambda: client.job(new).steps > 3)
    return folder / "copy", old, new


def await_halt(cluster: Running, folder: Path) -> None:
    """Until a node has spoken; then nothing is accepted any more."""
    with cluster.client() as client:
        until(lambda: bool(client.status().halted), what="the word of a node")
        message = client.status().halted
        older = f"{cluster.state} is an older copy of the state of this cluster: node "
        assert message.startswith(older)
        assert message.endswith(f"by `fairlead restore --accept-loss {cluster.state}`")
        with pytest.raises(FairleadError, match="is an older copy of the state of this cluster"):
            client.submit([ledger_job(folder)])
        headers = {"Authorization": f"Bearer {cluster.admin_token}"}
        metrics = httpx.get(f"{cluster.url}/metrics", headers=headers, timeout=60.0).text
        assert "\nfairlead_halted 1.0\n" in metrics
    assert older in cluster.log()


def test_an_older_copy_of_the_state_halts_and_the_newer_one_goes_on(tmp_path: Path) -> None:
    options = ("--checkpoints", str(tmp_path / "checkpoints"))
    with running(tmp_path, options, agents=NODES) as cluster:
        copy, old, new = make_copy(cluster, tmp_path)
        cluster.kill()
        newer = swap(cluster, copy)
        cluster.start()
        await_halt(cluster, tmp_path)
        cluster.kill()
        shutil.rmtree(cluster.state)
        newer.rename(cluster.state)
        cluster.start()
        with cluster.client() as client:
            assert not client.status().halted
            (third,) = client.submit([ledger_job(tmp_path, 5)])
            assert third == new + 1
            (tmp_path / "ledger.hurry").touch()
            jobs = (old, new, third)
            until(lambda: all(client.job(job).state == "completed" for job in jobs))
            assert not client.status().halted
    assert steps(tmp_path, old) == list(range(STEPS)), "no step lost, none done twice"
    assert steps(tmp_path, new) == list(range(STEPS))


@pytest.mark.long  # a server's start and end; test_damage has the store alone
def test_a_server_whose_state_is_overwritten_acknowledges_nothing_more_and_ends(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as cluster:
        with cluster.client() as client:
            client.submit([ledger_job(tmp_path)])
            shutil.copytree(cluster.state, tmp_path / "copy")
            client.submit([ledger_job(tmp_path)])
            for path in (tmp_path / "copy").glob("state.*"):
                (cluster.state / path.name).write_bytes(path.read_bytes())
            with pytest.raises(FairleadError):
                client.submit([ledger_job(tmp_path)])
        assert cluster.server is not None
        assert cluster.server.wait(60.0) == 2
        last = cluster.log().splitlines()[-1]
        assert last.startswith(f"fairlead: {cluster.state}: was replaced while this server used it")


@pytest.mark.long  # the same with agents that were killed, too
def test_what_agents_have_written_down_halts_an_older_copy_until_the_loss_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.cluster.FAIRLEAD", SHORT_GRACE)
    with running(tmp_path, agents=NODES) as cluster:
        copy, old, _ = make_copy(cluster, tmp_path)
        for name in ("one", "two", ""):
            cluster.kill(name)
        swap(cluster, copy)
        cluster.start()
        for node, devices in NODES.items():
            cluster.add_agent(node, devices)
        await_halt(cluster, tmp_path)
        cluster.kill()
        assert call("restore", "--accept-loss", cluster.state) == 0
        cluster.start()
        with cluster.client() as client:
            (third,) = client.submit([ledger_job(tmp_path, 5)])
            assert third >= JOBS, "no id is given out twice"
            (tmp_path / "ledger.hurry").touch()
            until(lambda: client.job(old).state == client.job(third).state == "completed")
            assert not client.status().halted
        assert "knows of " in cluster.log()
        assert " commits that were given up" in cluster.log()
    assert steps(tmp_path, old) == list(range(STEPS)), "no step lost, none done twice"
