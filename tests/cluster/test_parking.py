"""Jobs that are preempted keep their processes, and go on with them."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from tests.call_command import call
from tests.cluster.cluster import Running, clear, descendants, running, until
from tests.cluster.ledger_job import ledger, ledger_job

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.store import Store
from fairlead.scheduler.journal import read_beginning

TURNS = ("--round", "2", "--restart-cost", "0.01")


NODES = {"node-a": "v100=1"}


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("cluster"), TURNS, NODES) as found:
        yield found


@pytest.fixture
def cluster(running_cluster: Running) -> Iterator[Running]:
    """A cluster of one device, without jobs."""
    yield running_cluster
    clear(running_cluster, NODES)


def _pids(folder: Path) -> dict[int, int]:
    """Attempt -> its process, as the job has written it down."""
    path = folder / "ledger.pids"
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(attempt): int(pid) for attempt, pid in map(str.split, lines)}


def _job(folder: Path, **more: object) -> JobSpec:
    """One that writes down its process with each attempt of which it does a step."""
    folder.mkdir()
    spec = ledger_job(folder)
    script = (
        spec.command[2]
        .replace(
            "steps.append(str(len(steps)))",
            "steps.append(str(len(steps)))\n"
            '        if attempts[-1:] != [os.environ["FAIRLEAD_ATTEMPT"]]:\n'
            '            attempts.append(os.environ["FAIRLEAD_ATTEMPT"])\n'
            '            with open(sys.argv[1] + ".pids", "a") as file:\n'
            '                file.write(f"{attempts[-1]} {os.getpid()}\\n")',
        )
        .replace("steps = []", "steps = []\nattempts = []")
        .replace(
            "def save(path):\n",
            "def save(path):\n    time.sleep(float(os.environ.get('SAVE_S', '0')))\n",
        )
    )
    command = (sys.executable, "-c", script, spec.command[3])
    fields = {"total_steps": 3000, "cwd": "/", "grace_s": 10.0, **more}
    return JobSpec(command=command, **fields)  # type: ignore[arg-type]


def _submit_two(client: Client, tmp_path: Path, **more: object) -> dict[int, Path]:
    """Job -> its folder."""
    folders = [tmp_path / "one", tmp_path / "two"]
    jobs = client.submit([_job(folder, **more) for folder in folders])
    return dict(zip(jobs, folders, strict=True))


def _steps(folder: Path) -> list[int]:
    return [step for _, _, _, step in ledger(folder)]


def test_jobs_take_turns_without_ending(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path)
        until(lambda: all(len(_pids(folder)) >= 3 for folder in folders.values()))
        for folder in folders.values():
            pids = _pids(folder)
            assert len(set(pids.values())) == 1, "each goes on as it was"
            assert _steps(folder) == list(range(len(_steps(folder))))
        for job in folders:
            rows = [row for row in client.attempts(job) if row.end == "preempted"]
            assert all(row.to_step == row.reached_step for row in rows)
            assert client.job(job).lost_steps == 0
        for job in folders:
            client.cancel(job)
        until(
            lambda: all(
                not Path(f"/proc/{pid}").exists()
                for f in folders.values()
                for pid in _pids(f).values()
            )
        )


def test_a_parked_process_that_is_killed_costs_no_step(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path)
        until(lambda: all(len(_pids(folder)) >= 1 for folder in folders.values()))
        until(lambda: any(client.job(job).state == "preempted" for job in folders))
        until(lambda: any(node.parked for node in client.nodes()))
        (parked,) = client.nodes()[0].parked
        folder = folders[parked.job]
        os.kill(_pids(folder)[parked.attempt], signal.SIGKILL)
        until(lambda: max(_pids(folder)) > parked.attempt)
        assert len(set(_pids(folder).values())) == 2
        assert _steps(folder) == list(range(len(_steps(folder))))
        assert client.job(parked.job).failures == 0


def test_jobs_that_do_not_park_end(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path, park=False)
        until(lambda: all(len(_pids(folder)) >= 2 for folder in folders.values()))
        for folder in folders.values():
            assert len(set(_pids(folder).values())) == len(_pids(folder))
            assert _steps(folder) == list(range(len(_steps(folder))))


def test_nothing_parked_outlives_its_agent(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path)
        until(lambda: all(_pids(folder) for folder in folders.values()))
        until(lambda: any(node.parked for node in client.nodes()))
        cluster.kill("node-a")
        known = {pid for folder in folders.values() for pid in _pids(folder).values()}
        until(lambda: not known & set(descendants(tmp_path)))
        cluster.add_agent("node-a", "v100=1")
        until(lambda: all(len(set(_pids(folder).values())) >= 2 for folder in folders.values()))
        for (
            folder
        ) in folders.values():  # some may be done again since the last checkpoint, none is left out
            assert set(_steps(folder)) == set(range(max(_steps(folder)) + 1))
        until(lambda: len(client.nodes()[0].parked) == 1)
        assert not any(client.job(job).failures for job in folders)


def test_the_server_may_be_killed_while_jobs_are_parked(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path)
        until(lambda: all(len(_pids(folder)) >= 2 for folder in folders.values()))
        for _ in range(2):
            turns = max(map(len, map(_pids, folders.values())))
            cluster.kill()
            cluster.start()
            until(lambda turns=turns: max(map(len, map(_pids, folders.values()))) > turns + 1)  # type: ignore[misc]
        for folder in folders.values():
            assert _steps(folder) == list(range(len(_steps(folder))))


def test_a_gang_parks_as_a_whole(tmp_path: Path) -> None:
    agents = {"node-a": "v100=1", "node-b": "v100=1"}
    with running(tmp_path, TURNS, agents) as cluster, cluster.client() as client:
        folders = _submit_two(client, tmp_path, scale_factor=2)
        until(
            lambda: all(len(_pids(folder)) >= 4 for folder in folders.values())
        )  # each rank writes
        until(lambda: all(max(_pids(folder)) >= 3 for folder in folders.values()))
        for job, folder in folders.items():
            pids: dict[int, set[int]] = {}
            for line in (folder / "ledger.pids").read_text().splitlines():
                attempt, pid = map(int, line.split())
                pids.setdefault(attempt, set()).add(pid)
            # On a slow machine one may be preempted before it trains, and ends.
            turns = [pids[attempt] for attempt in sorted(pids)]
            assert any(a == b and len(a) == 2 for a, b in pairwise(turns)), "both ranks go on"
            assert client.job(job).lost_steps == 0 == client.job(job).failures


def test_a_device_is_the_next_jobs_while_the_one_before_it_saves(
    cluster: Running, tmp_path: Path
) -> None:
    slow = {"env": {"SAVE_S": "3"}}
    with cluster.client() as client:
        before_s = sum(row.device_ms for row in client.accounting().rows) / 1e3
        began = time.monotonic()
        folders = _submit_two(client, tmp_path, **slow)
        shown = set[str]()

        def turns() -> bool:
            shown.update(client.job(job).reason for job in folders)
            return all(len(_pids(folder)) >= 3 for folder in folders.values())

        until(turns)
        assert any("has left its devices, and saves" in reason for reason in shown)
        used_s = sum(row.device_ms for row in client.accounting().rows) / 1e3 - before_s
        # No save, which takes 3 s, is billed beside the job that has its device
        assert used_s <= time.monotonic() - began + 1.5
        rows = [row for job in folders for row in client.attempts(job) if row.end == "preempted"]
        # Each was saved as it was parked; some have also saved while they trained.
        assert any(row.save_s < 1.0 for row in rows), "it is not the device's time"


def test_the_process_that_owns_parked_ranks_may_be_killed(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path)
        until(lambda: all(_pids(folder) for folder in folders.values()))
        until(lambda: any(node.parked for node in client.nodes()))
        agent = cluster.agents["node-a"].pid
        (spawner,) = (
            child.pid
            for child in psutil.Process(agent).children()
            if "fairlead.cluster.agent.spawner" in child.cmdline()
        )
        known = {pid for folder in folders.values() for pid in _pids(folder).values()}
        os.kill(spawner, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in known))
        until(lambda: all(len(set(_pids(folder).values())) >= 2 for folder in folders.values()))
        for folder in folders.values():
            assert set(_steps(folder)) == set(range(max(_steps(folder)) + 1))


def test_an_agent_that_dies_while_a_job_parks_is_followed_by_another(
    cluster: Running, tmp_path: Path
) -> None:
    """What comes to be parked once nobody is there to tell it to go on is ended."""
    with cluster.client() as client:
        folders = _submit_two(client, tmp_path, env={"SAVE_S": "3"})
        saves = "has left its devices, and saves"
        until(lambda: any(saves in client.job(job).reason for job in folders))
        cluster.kill("node-a")
        cluster.add_agent("node-a", "v100=1")
        turns = max(max(_pids(folder), default=0) for folder in folders.values())
        until(lambda: all(max(_pids(folder), default=0) > turns for folder in folders.values()))
        assert client.nodes()[0].state == "up"


@pytest.mark.long  # a minute and a half: the rounds are long until parking has been measured
def test_automatic_rounds_become_short_as_parking_is_measured(tmp_path: Path) -> None:
    automatic = ("--round", "auto", "--restart-cost", "0.26")
    with running(tmp_path, automatic, {"node-a": "v100=1"}) as cluster:
        with cluster.client() as client:
            folders = _submit_two(client, tmp_path, total_steps=10**6)
            assert client.status().round_s == 13.0
            until(lambda: client.status().round_s == 10.0)
            assert any(len(_pids(folder)) > 1 for folder in folders.values()), "one was resumed"
            cluster.kill()
            cluster.start()
            assert client.status().round_s == 10.0
            turns = sum(len(_pids(folder)) for folder in folders.values())
            until(lambda: sum(len(_pids(folder)) for folder in folders.values()) > turns)
            assert client.status().round_s == 10.0
        assert call("replay", cluster.state) == 0
    with Store(cluster.state) as store:
        setup, _, _ = read_beginning(store.segment()[1], "journal")
    assert setup.settings.round_s == 10.0
