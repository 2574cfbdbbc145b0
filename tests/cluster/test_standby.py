"""Jobs that move are prepared where they go while they still train where they are."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import Running, running, until
from tests.cluster.ledger_job import ledger, ledger_job

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

ROUNDS = ("--round", "2", "--restart-cost", "0.05")
PREPARED = "prepared"
_BEFORE_THE_LOOP = """
def note(what):
    with open(sys.argv[1] + ".notes", "a") as file:
        file.write(f"{os.environ['FAIRLEAD_ATTEMPT']} {os.getpid()} {time.monotonic()} {what}\\n")
note("begun")
while not os.path.exists(sys.argv[1] + ".prepare" + os.environ["RANK"]):
    time.sleep(0.02)
if os.path.exists(sys.argv[1] + ".broken"):
    raise RuntimeError("it cannot be prepared")
note("prepared")
with fairlead.Lease"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, ROUNDS, {"node-a": "v100=1", "node-b": "v100=1"}) as found:
        yield found


def _job(folder: Path, **more: object) -> JobSpec:
    """One that notes when the code before its loop begins, and when that has come to its end."""
    folder.mkdir()
    spec = ledger_job(folder)
    script = spec.command[2].replace("\nwith fairlead.Lease", _BEFORE_THE_LOOP)
    command = (sys.executable, "-c", script, spec.command[3])
    fields = {"total_steps": 3000, "cwd": "/", "grace_s": 10.0, "standby": True, **more}
    return JobSpec(command=command, **fields)  # type: ignore[arg-type]


def _notes(folder: Path, what: str) -> dict[int, tuple[int, float]]:
    """Attempt -> the process that has noted this last, and when (monotonic)."""
    path = folder / "ledger.notes"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split() for line in lines]
    return {int(a): (int(pid), float(t)) for a, pid, t, word in rows if word == what}


def _attempts(folder: Path) -> set[int]:
    return {attempt for _, attempt, _, _ in ledger(folder)}


def _assert_steps(folder: Path) -> None:
    """All steps were done once, in order."""
    steps = [step for _, _, _, step in ledger(folder)]
    assert steps == list(range(len(steps)))


def _allow(folder: Path) -> None:
    """Let starts get behind the code before the loop."""
    for rank in (0, 1):
        (folder / f"ledger.prepare{rank}").touch()


def _train(client: Client, folder: Path, **more: object) -> str:
    """Submit a job, wait until it trains, and have starts from now on wait. Returns its node."""
    (job,) = client.submit([_job(folder, **more)])
    _allow(folder)
    until(lambda: len(ledger(folder)) > 5)
    for rank in (0, 1):
        (folder / f"ledger.prepare{rank}").unlink()
    return client.attempts(job)[-1].node


def _other(node: str) -> str:
    return "node-b" if node == "node-a" else "node-a"


def test_a_job_trains_until_it_is_prepared_elsewhere(cluster: Running, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        node = _train(client, folder)
        client.drain(node)
        until(lambda: 2 in _notes(folder, "begun"))
        trained = len(ledger(folder))
        until(lambda: len(ledger(folder)) > trained + 10)  # while the other start is prepared
        assert _attempts(folder) == {1}
        assert client.job(0).state == "running"
        assert "while its next start is prepared on" in client.explain(0).why_here
        _allow(folder)
        until(lambda: 2 in _attempts(folder))
        _assert_steps(folder)
        prepared_s = _notes(folder, PREPARED)[2][1]
        last_s = max(t for _, attempt, t, _ in ledger(folder) if attempt == 1)
        assert prepared_s < last_s
        first, second = client.attempts(0)
        assert (first.end, first.node, second.node) == ("moved", node, _other(node))
        assert client.job(0).lost_steps == client.job(0).failures == 0


def test_without_being_asked_nothing_of_a_job_runs_beside_it(
    cluster: Running, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        node = _train(client, folder, standby=False)
        _allow(folder)
        client.drain(node)
        until(lambda: 2 in _attempts(folder))
        begun_s = _notes(folder, "begun")[2][1]
        assert begun_s > max(t for _, attempt, t, _ in ledger(folder) if attempt == 1)
        _assert_steps(folder)


def test_a_standby_that_is_killed_is_replaced(cluster: Running, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        client.drain(_train(client, folder))
        until(lambda: 2 in _notes(folder, "begun"))
        os.kill(_notes(folder, "begun")[2][0], signal.SIGKILL)
        until(lambda: 3 in _notes(folder, "begun"))
        _allow(folder)
        until(lambda: 3 in _attempts(folder))
        _assert_steps(folder)
        assert client.job(0).failures == client.job(0).lost_steps == 0


def test_a_standby_that_fails_is_a_start_that_fails(cluster: Running, tmp_path: Path) -> None:
    """The job moves without one, and fails there as it would have done."""
    folder = tmp_path / "one"
    with cluster.client() as client:
        node = _train(client, folder)
        (folder / "ledger.broken").touch()
        _allow(folder)
        client.drain(node)
        until(lambda: client.job(0).failures > 0)
        assert "it cannot be prepared" in client.job(0).reason
        (folder / "ledger.broken").unlink()
        until(lambda: max(_attempts(folder)) > 2)
        _assert_steps(folder)


@pytest.mark.parametrize("which", [pytest.param("there", marks=pytest.mark.long), "here"])
def test_a_node_may_be_lost_while_the_job_is_prepared(
    cluster: Running, tmp_path: Path, which: str
) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        node = _train(client, folder)
        client.drain(node)
        until(lambda: 2 in _notes(folder, "begun"))
        lost = node if which == "here" else _other(node)
        cluster.kill(lost)
        _allow(folder)
        if which == "there":
            cluster.add_agent(lost, "v100=1")
        until(lambda: max(_attempts(folder)) > 1)
        seen: dict[int, int] = {}  # step -> attempt that did it last
        for _, attempt, _, step in ledger(folder):
            assert attempt >= seen.get(step, 0)
            seen[step] = attempt
        assert sorted(seen) == list(range(len(seen)))
        assert client.job(0).failures == 0


def test_the_server_may_be_killed_while_a_job_is_prepared(cluster: Running, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        client.drain(_train(client, folder))
        until(lambda: 2 in _notes(folder, "begun"))
        cluster.kill()
        cluster.start()
        _allow(folder)
        until(lambda: max(_attempts(folder)) > 1)
        _assert_steps(folder)
        assert client.job(0).failures == client.job(0).lost_steps == 0


def test_a_job_that_is_cancelled_leaves_no_standby(cluster: Running, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        client.drain(_train(client, folder))
        until(lambda: 2 in _notes(folder, "begun"))
        client.cancel(0)
        pids = [_notes(folder, "begun")[attempt][0] for attempt in (1, 2)]
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        assert client.job(0).state == "cancelled"
        assert _attempts(folder) == {1}


def test_a_job_that_completes_leaves_no_standby(cluster: Running, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster.client() as client:
        client.drain(_train(client, folder, total_steps=100_000))
        until(lambda: 2 in _notes(folder, "begun"))
        (folder / "ledger.hurry").touch()
        until(lambda: client.job(0).state == "completed")
        pid = _notes(folder, "begun")[2][0]
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert _attempts(folder) == {1}
        _assert_steps(folder)


def test_a_gang_moves_when_all_its_ranks_are_prepared(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    agents = {"a": "v100=1", "b": "v100=1", "c": "k80=1", "d": "k80=1"}
    with running(tmp_path, ROUNDS, agents) as cluster, cluster.client() as client:
        _train(client, folder, scale_factor=2, rates={"v100": 10.0, "k80": 10.0})
        here = client.attempts(0)[-1].node.split(",")
        client.drain(here[0])  # of this type there are no two devices any more
        until(lambda: 2 in _notes(folder, "begun"))
        (folder / "ledger.prepare0").touch()
        until(lambda: 2 in _notes(folder, PREPARED))  # rank 0
        trained = len(ledger(folder))
        until(lambda: len(ledger(folder)) > trained + 20)
        assert _attempts(folder) == {1}
        (folder / "ledger.prepare1").touch()
        until(lambda: 2 in _attempts(folder))
        client.cancel(0)
        until(lambda: client.job(0).state == "cancelled" and not client.job(0).node)
        done = Counter(step for _, _, _, step in ledger(folder))  # both ranks write them down
        assert sorted(done) == list(range(len(done)))
        assert set(done.values()) == {2}
        assert client.job(0).lost_steps == client.job(0).failures == 0
