"""Programs without the iterator that are stopped as they are when they are preempted, and go on later."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.cluster.cluster import Running, clear, descendants, running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.loaded_checkpoint import RESUMED

TURNS = ("--round", "2", "--restart-cost", "0.01", "--policy", "las_aware")
COUNTER = """
import os, sys, time
mine = f"{sys.argv[1]}.{os.environ['RANK']}"
count = 0
while True:
    with open(mine, "a") as file:
        file.write(f"{os.getpid()} {count}\\n")
    print(count, flush=True)
    count += 1
    if len(sys.argv) > 2 and "FAIRLEAD_PROGRESS_FILE" in os.environ:
        with open(os.environ["FAIRLEAD_PROGRESS_FILE"], "w") as file:
            file.write(f"{count}\\n")
    time.sleep(0.02)
"""
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


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


def _submit(
    client: Client, tmp_path: Path, *words: str, script: str = COUNTER, **more: object
) -> dict[int, Path]:
    """Two counters, or programs of another script. Returns job -> the name of its file (of counters the
    beginning of the name)."""
    paths = [tmp_path / "one", tmp_path / "two"]
    fields = {"unmanaged": True, "park": "stop", "total_steps": 10**6, "cwd": "/", **more}
    commands = [(sys.executable, "-c", script, str(path), *words) for path in paths]
    jobs = client.submit([JobSpec(command=command, **fields) for command in commands])  # type: ignore[arg-type]
    return dict(zip(jobs, paths, strict=True))


def _counts(path: Path, rank: int = 0) -> list[tuple[int, int]]:
    """(process, count) in order."""
    file = path.with_name(f"{path.name}.{rank}")
    text = file.read_text() if file.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [(int(pid), int(count)) for pid, count in map(str.split, whole)]


def _resumed(client: Client, job: int) -> int:
    return sum(row.origin.startswith(RESUMED) for row in client.attempts(job))


def _check_one_run(client: Client, job: int, path: Path, rank: int = 0) -> None:
    counts = _counts(path, rank)
    ends = [(row.attempt, row.origin, row.why) for row in client.attempts(job)]
    assert len({pid for pid, _ in counts}) == 1, f"it goes on as it was: {ends}"
    assert [count for _, count in counts] == list(range(len(counts))), "no gap, and no double"


def _parked_pid(client: Client, paths: dict[int, Path]) -> tuple[int, int]:
    """(job, process) of what is parked."""
    until(lambda: any(node.parked for node in client.nodes()))
    job = next(one.job for node in client.nodes() for one in node.parked)
    return job, _counts(paths[job])[-1][0]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="by time", marks=pytest.mark.long),
        pytest.param(("tells",), id="tells its steps"),
    ],
)
def test_programs_take_turns_without_ending(
    cluster: Running, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with cluster.client() as client:
        paths = _submit(client, tmp_path, *words)
        parked = dict.fromkeys(paths, 0.0)

        def turns() -> bool:
            for job, before in parked.items():
                view = client.job(job)
                if view.state == "preempted":
                    assert view.steps > 0, "it has what it had done"
                    assert view.steps >= before
                    parked[job] = view.steps
            return all(_resumed(client, job) >= 2 for job in paths)

        until(turns)
        for job, path in paths.items():
            _check_one_run(client, job, path)
            assert client.job(job).lost_steps == 0 == client.job(job).failures
        job, pid = _parked_pid(client, paths)
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        assert client.job(job).state == "preempted"
        for job in paths:
            client.cancel(job)
        pids = {_counts(path)[-1][0] for path in paths.values()}
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        for job, path in paths.items():
            expected = [count for _, count in _counts(path)]
            until(lambda job=job, expected=expected: _printed(client, job) == expected)  # type: ignore[misc]


def test_programs_that_take_turns_on_nodes_of_two_types_go_on_where_they_are(
    tmp_path: Path,
) -> None:
    nodes = {"node-a": "v100=2", "node-b": "k80=1"}
    with running(tmp_path, TURNS, nodes) as cluster, cluster.client() as client:
        paths = [tmp_path / str(job) for job in range(5)]
        rates = {"v100": 50.0, "k80": 20.0}
        fields = {"unmanaged": True, "park": "stop", "total_steps": 10**6, "rates": rates}
        commands = [(sys.executable, "-c", COUNTER, str(path)) for path in paths]
        client.submit([JobSpec(command=one, cwd="/", **fields) for one in commands])  # type: ignore[arg-type]
        until(lambda: sum(_resumed(client, job) for job in range(5)) >= 6, 180)
        for job, path in enumerate(paths):
            _check_one_run(client, job, path)
            assert client.job(job).lost_steps == 0


def _printed(client: Client, job: int) -> list[int]:
    """The numbers that a job has printed, in all its attempts."""
    text, cursor = client.log(job)
    while (more := client.log(job, cursor))[0]:
        text, cursor = text + more[0], more[1]
    return [int(line) for line in text.splitlines() if line.isdecimal()]


def test_a_parked_program_that_is_killed_starts_from_zero(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        paths = _submit(client, tmp_path)
        job, pid = _parked_pid(client, paths)
        kept = client.job(job).steps
        assert kept > 0
        os.kill(pid, signal.SIGKILL)
        until(lambda: _counts(paths[job])[-1][0] != pid)
        until(lambda: client.job(job).lost_steps > 0)
        assert client.job(job).lost_steps == pytest.approx(kept)
        assert client.job(job).failures == 0
        counts = [count for _, count in _counts(paths[job])]
        first = counts.index(0, 1)
        assert counts == [*range(first), *range(len(counts) - first)], "from zero, and once"


def test_so_does_one_whose_daemon_is_killed_meanwhile(cluster: Running, tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "name, (read, write) = sys.argv[1], os.pipe()\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not (daemon := os.fork()):\n"
        "        time.sleep(10_000)\n"
        "    os.write(write, b'%d' % daemon)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "with open(name, 'a') as file:\n"
        "    file.write(f'{os.getpid()} {int(os.read(read, 20))}\\n')\n"
        "time.sleep(10_000)\n"
    )
    with cluster.client() as client:
        files = _submit(client, tmp_path, script=script)
        until(lambda: any(node.parked for node in client.nodes()))
        job = next(one.job for node in client.nodes() for one in node.parked)
        (started,) = files[job].read_text().splitlines()
        leader, daemon = map(int, started.split())
        os.kill(daemon, signal.SIGKILL)
        until(lambda: len(files[job].read_text().splitlines()) == 2)
        assert not Path(f"/proc/{leader}").exists()
        until(lambda: client.job(job).lost_steps > 0)
        assert client.job(job).failures == 0


def test_nothing_stopped_outlives_its_agent(cluster: Running, tmp_path: Path) -> None:
    with cluster.client() as client:
        paths = _submit(client, tmp_path)
        _parked_pid(client, paths)
        until(lambda: all(_counts(path) for path in paths.values()))
        known = {pid for path in paths.values() for pid, _ in _counts(path)}
        cluster.kill("node-a")
        until(lambda: not known & set(descendants(tmp_path)))
        cluster.add_agent("node-a", "v100=1")
        until(lambda: all(_counts(path)[-1][0] not in known for path in paths.values()))
        for path in paths.values():
            counts = [count for _, count in _counts(path)]
            first = counts.index(0, 1)
            assert counts[:first] == list(range(first))
            assert counts[first:] == list(range(len(counts) - first))


def test_what_a_parked_program_has_started_counts_and_ends_with_it(
    cluster: Running, tmp_path: Path
) -> None:
    child = "x = bytearray(200_000_000); import time; time.sleep(10_000)"
    script = (
        "import subprocess, sys, time\n"
        f"one = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(str(one.pid))\n"
        "time.sleep(10_000)\n"
    )
    with cluster.client() as client:
        files = _submit(client, tmp_path, script=script)
        until(lambda: all(file.exists() and file.read_text() for file in files.values()))
        until(lambda: any(node.parked for node in client.nodes()))
        (parked,) = client.nodes()[0].parked
        assert parked.memory_bytes > 150_000_000
        for job in files:
            client.cancel(job)
        pids = [file.read_text() for file in files.values()]
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_the_server_may_be_killed_while_programs_are_parked(tmp_path: Path) -> None:
    agents = {"node-a": "v100=1"}
    patient = (*TURNS, "--lease", "60")  # a server may take long to start
    with running(tmp_path, patient, agents) as cluster, cluster.client() as client:
        paths = _submit(client, tmp_path)
        _parked_pid(client, paths)
        for _ in range(2):
            turns = sum(_resumed(client, job) for job in paths)
            cluster.kill()
            cluster.start()
            until(
                lambda turns=turns: sum(_resumed(client, job) for job in paths) > turns + 1  # type: ignore[misc]
            )
        for job, path in paths.items():
            _check_one_run(client, job, path)
            assert client.job(job).lost_steps == 0


def test_the_process_that_owns_parked_programs_may_be_killed(
    cluster: Running, tmp_path: Path
) -> None:
    with cluster.client() as client:
        paths = _submit(client, tmp_path)
        until(lambda: all(_resumed(client, job) for job in paths))
        known = {pid for path in paths.values() for pid, _ in _counts(path)}
        (spawner,) = (
            child.pid
            for child in psutil.Process(cluster.agents["node-a"].pid).children()
            if "fairlead.cluster.agent.spawner" in child.cmdline()
        )
        os.kill(spawner, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in known))
        until(lambda: all(_counts(path)[-1][0] not in known for path in paths.values()))


@pytest.mark.parametrize("agent_too", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_parked_program_does_nothing_more_when_its_owner_is_killed(
    cluster: Running, tmp_path: Path, agent_too: bool
) -> None:
    """Its job may run elsewhere already: it gets no grace."""
    with cluster.client() as client:
        files = [tmp_path / "one", tmp_path / "two"]
        words = (sys.executable, "-c", f"import signal\n{IGNORE}{COUNTER}")
        fields = {
            "unmanaged": True,
            "park": "stop",
            "total_steps": 10**6,
            "cwd": "/",
            "grace_s": 20.0,
        }
        specs = [JobSpec(command=(*words, str(path)), **fields) for path in files]  # type: ignore[arg-type]
        paths = dict(zip(client.submit(specs), files, strict=True))
        until(lambda: all(_resumed(client, job) for job in paths))
        job, pid = _parked_pid(client, paths)
        agent = cluster.agents["node-a"].pid
        (spawner,) = (
            child.pid
            for child in psutil.Process(agent).children()
            if "fairlead.cluster.agent.spawner" in child.cmdline()
        )
        mine = [count for one, count in _counts(paths[job]) if one == pid]
        if agent_too:
            cluster.kill("node-a")
        os.kill(spawner, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), what="its end")
        assert [count for one, count in _counts(paths[job]) if one == pid] == mine


def test_a_gang_stops_and_goes_on_as_a_whole(tmp_path: Path) -> None:
    agents = {"node-a": "v100=1", "node-b": "v100=1"}
    with running(tmp_path, TURNS, agents) as cluster, cluster.client() as client:
        paths = _submit(client, tmp_path, scale_factor=2)
        until(lambda: all(_resumed(client, job) >= 2 for job in paths))
        for job, path in paths.items():
            for rank in (0, 1):
                _check_one_run(client, job, path, rank)
            assert client.job(job).lost_steps == 0 == client.job(job).failures


def test_a_gang_that_went_on_on_one_node_only_is_stopped_there_again_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """The other agent was silent meanwhile, and hears of that start when it is over."""
    turns = ("--round", "2", "--restart-cost", "0.01", "--policy", "gandiva")
    options = (*turns, "--no-early-round-end", "--heartbeat", "20", "--lease", "120")
    agents = {"node-a": "v100=1", "node-b": "v100=1"}
    with running(tmp_path, options, agents) as cluster, cluster.client() as client:
        paths = _submit(client, tmp_path, scale_factor=2)
        until(lambda: all(_resumed(client, job) for job in paths))
        job, _ = _parked_pid(client, paths)
        until(lambda: job in _parked_on(client, "node-a") and job in _parked_on(client, "node-b"))
        before = _parked_on(client, "node-a")[job]
        silent = cluster.agents["node-b"].pid
        os.kill(silent, signal.SIGSTOP)
        until(lambda: _parked_on(client, "node-a").get(job, before) > before, 120)
        os.kill(silent, signal.SIGCONT)
        resumed = _resumed(client, job)
        until(lambda: _resumed(client, job) >= resumed + 2, 120)
        for one, path in paths.items():
            for rank in (0, 1):
                _check_one_run(client, one, path, rank)
            assert client.job(one).lost_steps == 0 == client.job(one).failures


def _parked_on(client: Client, node: str) -> dict[int, int]:
    """Job -> the attempt as of which it is parked on a node."""
    (view,) = (one for one in client.nodes() if one.name == node)
    return {one.job: one.attempt for one in view.parked}


def _with_agent(
    tmp_path: Path, *options: str, tool: str = "", server: tuple[str, ...] = TURNS
) -> Running:
    """A cluster whose agent has these options, and whose server those. tool: text of a ``cuda-checkpoint``
    that it finds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if tool:
        (folder / "cuda-checkpoint").write_text(tool)
        (folder / "cuda-checkpoint").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    cluster = Running(tmp_path, (*server, "--lease", "4", "--heartbeat", "0.3"))
    cluster.start()
    cluster.add_agent("node-a", "v100=1", *options, environment={"PATH": path})
    return cluster


def test_what_does_not_fit_into_the_memory_for_it_is_ended(tmp_path: Path) -> None:
    cluster = _with_agent(tmp_path, "--park-memory", "0.001")
    try:
        with cluster.client() as client:
            paths = _submit(client, tmp_path)
            until(lambda: any(client.job(job).starts >= 2 for job in paths))
            assert not any(_resumed(client, job) for job in paths)
            assert not client.nodes()[0].parked
            job = next(job for job in paths if client.job(job).starts >= 2)
            until(lambda: len({pid for pid, _ in _counts(paths[job])}) == 2)
            assert client.job(job).lost_steps > 0
            _check_it_is_spared(client, job)
    finally:
        cluster.stop()


def _check_it_is_spared(client: Client, job: int) -> None:
    """A job that has lost all that it had done by a preemption does not lose it at each round."""
    other, starts = 1 - job, client.job(job).starts
    round_then = client.status().round
    until(lambda: client.status().round > round_then + 4)
    assert (client.job(job).starts, client.job(job).state) == (starts, "running")
    client.cancel(job)
    until(lambda: client.job(other).state == "running")


TOOL = """#!/bin/sh
state=$(cut -d' ' -f3 /proc/$3/stat)
echo "$1 $2 $3 $state" >> {calls}
{end}
"""


def test_what_programs_have_on_their_devices_is_taken_off_and_brought_back(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    cluster = _with_agent(tmp_path, tool=TOOL.format(calls=calls, end=""))
    try:
        with cluster.client() as client:
            paths = _submit(client, tmp_path)
            until(lambda: all(_resumed(client, job) for job in paths))
            for job, path in paths.items():
                _check_one_run(client, job, path)
                pid = _counts(path)[0][0]
                mine = [line for line in calls.read_text().splitlines() if f" {pid} " in line]
                assert len(mine) >= 2, "before it was stopped, and after it went on"
                assert all(line.startswith("--toggle --pid") for line in mine)
                assert not any(line.endswith("T") for line in mine), "it was not stopped then"
    finally:
        cluster.stop()


def test_what_has_lost_its_work_is_not_preferred_as_a_new_job_is(tmp_path: Path) -> None:
    """Else two such jobs preempt each other at each round, and neither comes any further."""
    server = ("--round", "4", "--restart-cost", "0.5", "--policy", "las_aware")
    tool = TOOL.format(calls=tmp_path / "calls", end="exit 3")
    cluster = _with_agent(tmp_path, tool=tool, server=server)
    try:
        with cluster.client() as client:
            paths = _submit(client, tmp_path)
            until(lambda: any(client.job(job).state == "preempted" for job in paths))
            job = next(job for job in paths if client.job(job).state == "preempted")
            round_then = client.status().round
            until(lambda: client.status().round > round_then + 3)
            assert [client.job(one).starts for one in paths] == [1, 1]
            assert client.job(job).state == "preempted"
    finally:
        cluster.stop()


def test_a_program_of_which_that_fails_is_ended_and_told(tmp_path: Path) -> None:
    end = "echo no such context; exit 3"
    tool = TOOL.format(calls=tmp_path / "calls", end=end)
    cluster = _with_agent(tmp_path, tool=tool)
    try:
        with cluster.client() as client:
            paths = _submit(client, tmp_path)
            until(lambda: any(client.job(job).starts >= 2 for job in paths))
            assert not any(_resumed(client, job) for job in paths)
            job = next(job for job in paths if client.job(job).starts >= 2)
            pid = _counts(paths[job])[0][0]
            expected = f"cuda-checkpoint --toggle --pid {pid}: exit code 3; no such context"
            until(lambda: expected in client.log(job)[0])
            assert client.job(job).failures == 0
            assert client.attempts(job)[0].why == f"preempted; {expected}"
            assert (
                f"it could not be parked (node-a: {expected}), and is spared for that"
                in " ".join(client.explain(job).facts)
            )
            _check_it_is_spared(client, job)
    finally:
        cluster.stop()
