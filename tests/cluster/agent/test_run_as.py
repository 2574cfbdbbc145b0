"""Jobs that run as other users than their agent, which is root's: what they can reach, and what not."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cluster.agent.cluster import (
    RunningAgent,
    Server,
    cluster,
    gone,
    job,
    kill_with_spawner,
    plain,
    processes_of,
)

from fairlead.cluster.agent.checkpoint_root import MARK
from fairlead.cluster.agent.os_users import RunAs
from fairlead.cluster.agent.rank_failures import read_report
from fairlead.cluster.protocol.messages import Assignment, Rank, StartCheck
from fairlead.errors import ConfigError

PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as other users"),
    pytest.mark.skipif(PYTHON is None, reason="other users have no python3 here"),
]
TABLE = "default=nobody,tenant:apes=daemon"
NOBODY, DAEMON = "nobody", "daemon"
# Tries all that the test names, and tells what it got.
SPY = """
import ctypes, json, os, sys, time
want = json.loads(os.environ["WANT"])
libc = ctypes.CDLL(None, use_errno=True)
found = {"read": [], "listed": [], "signalled": [], "traced": []}
for path in want["files"]:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, flags)); found["read"].append(path)
        except OSError:
            pass
for path in want["folders"]:
    try:
        os.listdir(path); found["listed"].append(path)
    except OSError:
        pass
for pid in want["pids"]:
    try:
        os.kill(pid, 0); found["signalled"].append(pid)
    except OSError:
        pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        found["traced"].append(pid)
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                file.read(1)
            found["read"].append(f"/proc/{pid}/{name}")
        except OSError:
            pass
before = os.umask(0); os.umask(before)
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
found["me"] = {
    "uids": status["Uid"].split(), "gids": status["Gid"].split(),
    "groups": sorted(os.getgroups()), "umask": before, "no_new_privs": status["NoNewPrivs"].strip(),
    "names": [os.environ.get(name) for name in ("HOME", "USER", "LOGNAME")],
    "capabilities": int(status["CapEff"], 16), "cwd": os.getcwd(),
}
with open("/dev/stderr", "w") as file:
    print("by its name", file=file)
print("FOUND", json.dumps(found), flush=True)
time.sleep(600)
"""


def run(folder: Path, play: Any, *more: str) -> None:
    async def scene() -> None:
        async with cluster(folder / "s", "--run-as", TABLE, *more) as (server, agent):
            await play(server, agent)

    asyncio.run(scene())


def spy(number: int, tenant: str, want: dict[str, Any], **changes: Any) -> Assignment:
    assert PYTHON is not None
    return plain(
        number, PYTHON, "-c", SPY, tenant=tenant, env={"WANT": json.dumps(want)}, **changes
    )


async def told(server: Server, number: int) -> dict[str, Any]:
    text = await server.until_output(number, "FOUND")
    await server.until_output(number, "by its name")
    line = next(one for one in text.splitlines() if one.startswith("FOUND"))
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND"))
    return found


def private_files(state: Path) -> list[str]:
    """All that an agent keeps for itself, as root sees it."""
    shared = ("agent.sock", "client-")
    own = [
        path for path in state.rglob("*") if not path.relative_to(state).parts[0].startswith(shared)
    ]
    run_directory = Path(os.environ["FAIRLEAD_RUN_DIR"])
    own += [*run_directory.rglob("*"), state.with_name("s.token")]
    return [str(path) for path in own if stat.S_ISREG(path.lstat().st_mode)]


def test_jobs_reach_neither_the_agent_nor_each_other(folder: Path) -> None:
    async def play(server: Server, agent: RunningAgent) -> None:
        first = plain(
            1, "sh", "-c", "echo mine > secret; echo pid $$; exec sleep 600", tenant="apes"
        )
        await server.order(first)
        text = await server.until_output(1, "pid ")
        other = int(text.split()[1])
        theirs = agent.state / "checkpoints" / "1"
        assert (theirs / "secret").stat().st_uid == pwd.getpwnam(DAEMON).pw_uid
        assert stat.S_IMODE(theirs.stat().st_mode) == 0o700
        want = {
            "files": private_files(agent.state),
            "folders": [
                str(agent.state / name) for name in ("", "logs", "locks", "starts", "reports")
            ],
            "pids": [agent.pid, agent.spawner.pid, agent.warden.pid, other],
        }
        assert {Path(one).name for one in want["files"]} > {
            "node.token",
            "s.token",
            "secret",
            "identity",
        }
        second = spy(2, "birds", want, ranks=(Rank(rank=0, devices=(1,)),))
        await server.order(first, second)
        found = await told(server, 2)
        assert found["me"] == {
            "uids": ["65534"] * 4, "gids": ["65534"] * 4, "groups": [65534], "umask": 0o077,
            "no_new_privs": "1", "names": [pwd.getpwnam(NOBODY).pw_dir, NOBODY, NOBODY],
            "capabilities": 0, "cwd": str(agent.state / "checkpoints" / "2"),
        }  # fmt: skip
        assert [found[name] for name in ("read", "listed", "signalled", "traced")] == [
            [],
            [],
            [],
            [],
        ]
        # The other way round, and with what the second has left.
        third = spy(
            3, "apes", want | {"files": private_files(agent.state), "pids": want["pids"][:3]}
        )
        await server.order(second)
        await server.until_state((1, 1), "ended")
        await server.order(second, third)
        found = await told(server, 3)
        own = {str(theirs / "secret"), *(str(one) for one in agent.state.glob("*/3/*"))}
        assert set(found["read"]) <= own
        assert str(theirs / "secret") in found["read"], "the same tenant has the same user"
        assert (found["signalled"], found["traced"]) == ([], [])

    run(folder, play)


SHOWS_THE_TAG_OF_ANOTHER = """
import os, re, resource, sys
text = open(f"/proc/{sys.argv[1]}/limits").read()
tag = int(re.search(r"Max file locks +([0-9]+)", text)[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        resource.setrlimit(10, (tag, resource.RLIM_INFINITY))
        os.execve("/bin/sleep", ["sleep", "987"], {})
    os._exit(0)
os.wait()
"""


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:  # it has ended
        return []


def test_who_shows_the_tag_of_another_user_s_job_is_not_taken_for_it(folder: Path) -> None:
    """It inherits the lock of a device, which the other job is then said to hold."""

    async def play(server: Server, agent: RunningAgent) -> None:
        assert PYTHON is not None
        victim = plain(1, "sh", "-c", "echo pid $$; exec sleep 600")
        await server.order(victim)
        pid = (await server.until_output(1, "pid ")).split()[1]
        script = (PYTHON, "-c", SHOWS_THE_TAG_OF_ANOTHER, pid)
        second = (Rank(rank=0, devices=(1,)),)
        thief = plain(2, *script, tenant="apes", ranks=second)
        await server.order(victim, thief)
        assert (await server.until_state((2, 1), "ended")).completed
        left = [one for one in psutil.process_iter() if _words(one) == ["sleep", "987"]]
        await server.order(victim, plain(3, "true", ranks=second))
        assert (await server.until_state((3, 1), "ended")).completed
        assert await gone(lambda: not any(one.is_running() for one in left))
        assert server.statuses[1, 1].state == "running"

    run(folder, play)


TRAINS = """
import os, time
from fairlead.client.lease import Lease

def save(path):
    path.write_text("well")

with Lease(load=lambda _: None, save=save, total_steps=10_000_000) as lease:
    while lease.next():
        if os.path.exists(os.environ["FAIL"]):
            raise ValueError("as it was told to")
        while os.path.exists(os.environ["HANG"]):
            time.sleep(0.1)
"""


def test_a_job_with_a_lease_trains_saves_fails_and_is_stopped_as_its_user(folder: Path) -> None:
    async def play(server: Server, agent: RunningAgent) -> None:
        assert PYTHON is not None
        fail, hang = folder / "fail", folder / "hang"
        given: dict[str, Any] = {
            "command": (PYTHON, "-c", TRAINS),
            "tenant": "birds",
            "env": {"FAIL": str(fail), "HANG": str(hang)},
        }
        await server.order(job(1, **given))
        await server.until(lambda: server.statuses and server.statuses[1, 1].step > 0)
        await server.order(reasons={1: "preempted"})
        ended = await server.until_state((1, 1), "ended")
        assert (ended.reason, ended.failure) == ("preempted", None)
        assert ended.saved_step > 0
        await server.order(job(1, attempt=2, **given))
        await server.until(lambda: (1, 2) in server.statuses and server.statuses[1, 2].step > 0)
        assert server.statuses[1, 2].loaded_step == ended.saved_step
        fail.touch()
        ended = await server.until_state((1, 2), "ended")
        assert ended.failure is not None
        assert (ended.failure.kind, ended.failure.type) == ("exception", "ValueError")
        fail.unlink()
        await server.order(job(1, attempt=3, stall_timeout_s=1.0, **given))
        begun = ended.step + 10
        await server.until(lambda: (1, 3) in server.statuses and server.statuses[1, 3].step > begun)
        hang.touch()
        ended = await server.until_state((1, 3), "ended")
        assert ended.failure is not None
        assert ended.failure.kind == "stalled"
        assert "<module>" in ended.failure.traceback, "it has written down where it stands"

    run(folder, play)


@pytest.mark.skipif(
    Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1",
    reason="this kernel lets users link to files of others (fs.protected_hardlinks)",
)
def test_no_job_keeps_its_output_under_another_name(folder: Path) -> None:
    """It would grow beyond its limit, for what has another name is not cut, and stay when it is removed."""
    link = "ln -L /proc/self/fd/1 log 2>/dev/null && echo LINKED || echo refused"

    async def play(server: Server, agent: RunningAgent) -> None:
        await server.order(plain(1, "sh", "-c", link, tenant="apes"))
        await server.until_state((1, 1), "ended")
        assert await server.until_output(1, "\n") == "refused\n"

    run(folder, play)


def test_who_is_not_in_the_table_is_refused_here(folder: Path) -> None:
    async def scene() -> None:
        async with cluster(folder / "s", "--run-as", "tenant:apes=daemon,user:ann=nobody") as (
            server,
            _,
        ):
            await server.order(plain(1, "id", tenant="birds", user="bob"))
            ended = await server.until_state((1, 1), "ended")
            assert ended.reason == (
                "job 1: this node has no OS user for it: its table run_as has neither 'user:bob' nor "
                "'tenant:birds' nor 'default'"
            )
            assert ended.failure is not None
            assert ended.failure.kind == "not_started"
            await server.order(plain(2, "id", "-u", tenant="apes", user="ann"))
            await server.until_output(2, "65534\n")

    asyncio.run(scene())


def test_nothing_is_made_with_the_rights_of_root_where_a_job_says_so(folder: Path) -> None:
    roots, theirs, link = folder / "roots", folder / "theirs", folder / "link"
    roots.mkdir(mode=0o755)
    theirs.mkdir(mode=0o777)
    theirs.chmod(0o777)
    link.symlink_to(roots)

    async def play(server: Server, agent: RunningAgent) -> None:
        # What is there already may be used once it is given to the user, and on nodes with other users.
        named = {
            str(roots / "x"): "wrong_path",
            "/etc/fairlead-x": "wrong_path",
            str(link / "x"): "wrong_path",
            str(roots): "out_of_order",
        }
        for number, (path, trouble) in enumerate(named.items(), 1):
            await server.order(plain(number, "true", checkpoint_dir=path))
            ended = await server.until_state((number, 1), "ended")
            assert ended.failure is not None, path
            assert ended.failure.directory == trouble, path
        assert list(roots.iterdir()) == []
        assert not Path("/etc/fairlead-x").exists()
        await server.order(plain(8, "true", checkpoint_dir=str(theirs / "a" / "b")))
        assert (await server.until_state((8, 1), "ended")).completed
        assert (theirs / "a" / "b").stat().st_uid == 65534
        secret = roots / "secret"
        secret.mkdir(mode=0o700)
        await server.order(plain(9, "true", cwd=str(secret), checkpoint_dir=str(theirs)))
        ended = await server.until_state((9, 1), "ended")
        assert ended.reason == f"working directory {str(secret)!r}: Permission denied"

    run(folder, play)


def test_what_a_job_puts_in_the_place_of_its_reports_is_not_followed(folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text('{"type": "Stolen", "message": "from a file of root\'s"}')
    secret.chmod(0o600)

    async def play(server: Server, agent: RunningAgent) -> None:
        reports = agent.state / "reports"
        for number, how in enumerate(("ln -s", "ln"), 1):
            script = f"{how} {secret} $FAIRLEAD_FAILURE_FILE || true; exit 3"
            await server.order(plain(number, "sh", "-c", script))
            ended = await server.until_state((number, 1), "ended")
            assert ended.failure is not None
            assert (ended.failure.kind, ended.failure.type) == ("exit", "")
            assert stat.S_IMODE((reports / str(number)).stat().st_mode) == 0o700
        # A folder of reports cannot be replaced: what is above is the agent's.
        script = "cd /; mv ${FAIRLEAD_FAILURE_FILE%/*} /tmp/elsewhere && echo MOVED; echo tried"
        await server.order(plain(3, "sh", "-c", script))
        assert "MOVED" not in await server.until_output(3, "tried")
        assert secret.stat().st_uid == 0
        # Another name of a file of root's, where links to those of others are allowed.
        os.link(secret, reports / "2" / "1-9.failure")
        assert read_report(reports / "2" / "1-9.failure") is None

    run(folder, play)


def test_the_cluster_s_directory_of_checkpoints_has_a_folder_of_each_user(folder: Path) -> None:
    root = folder / "all" / "checkpoints"

    async def play(server: Server, agent: RunningAgent) -> None:
        for number, tenant, uid in ((1, "birds", 65534), (2, "apes", pwd.getpwnam(DAEMON).pw_uid)):
            path = root / f"{number}-x"
            given = {"checkpoint_dir": str(path), "checkpoint_root": str(root), "tenant": tenant}
            await server.order(
                plain(number, "sh", "-c", "echo > $FAIRLEAD_CHECKPOINT_DIR/a", **given)
            )
            assert (await server.until_state((number, 1), "ended")).completed
            assert ((path / "a").stat().st_uid, path.stat().st_uid) == (uid, uid)
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert (root.stat().st_uid, stat.S_IMODE(root.stat().st_mode)) == (0, 0o711)
        given["checkpoint_dir"] = str(root / "1-x")  # another tenant's
        await server.order(plain(3, "true", **given))
        ended = await server.until_state((3, 1), "ended")
        assert (
            "belongs to the OS user 65534, and this node runs the job as 'daemon'" in ended.reason
        )

    run(folder, play)


def test_what_is_wrong_with_a_folder_of_the_job_s_own_is_said_of_what_it_is(folder: Path) -> None:
    closed, others, link = folder / "closed", folder / "others", folder / "link"
    for path, uid, mode in ((closed, pwd.getpwnam(DAEMON).pw_uid, 0), (others, 65534, 0o700)):
        path.mkdir()
        os.chown(path, uid, -1)
        path.chmod(mode)
    link.symlink_to(others)

    async def play(server: Server, agent: RunningAgent) -> None:
        reasons = []
        for number, path in ((1, closed), (2, link)):
            await server.order(plain(number, "true", checkpoint_dir=str(path), tenant="apes"))
            reasons.append((await server.until_state((number, 1), "ended")).reason)
        assert "does not let its own user 'daemon' in (its mode is 000: chmod u+rwx)" in reasons[0]
        assert "belongs to the OS user 65534, and this node runs the job as 'daemon'" in reasons[1]

    run(folder, play)


def test_ranks_of_others_are_ended_when_agents_die(folder: Path) -> None:
    async def play(server: Server, agent: RunningAgent) -> None:
        script = "trap '' TERM; (setsid env -i sleep 600 &) ; echo ready; while :; do sleep 1; done"
        await server.order(plain(1, "sh", "-c", script, grace_s=1.0))
        await server.until_output(1, "ready")
        ours = [one for one in processes_of(agent.state) if one.uids().real == 65534]
        assert ours
        kill_with_spawner(agent)  # the warden ends them
        await agent.wait()
        assert await gone(lambda: not any(one.is_running() for one in ours))
        await server.order()
        server.registered.clear()
        agent.start()
        await server.until(lambda: server.registered)
        await server.order(plain(2, "sh", "-c", script, grace_s=1.0))
        await server.until_output(2, "ready")
        ours = [one for one in processes_of(agent.state) if one.uids().real == 65534]
        assert ours
        spawner = agent.spawner
        os.kill(spawner.pid, signal.SIGKILL)  # the next one ends what it has left
        os.kill(agent.pid, signal.SIGKILL)
        await agent.wait()
        server.registered.clear()
        agent.start()
        await server.until(lambda: server.registered)
        await server.order()
        assert await gone(lambda: not any(one.is_running() for one in ours))
        await server.order(plain(3, "true"))
        assert (await server.until_state((3, 1), "ended")).completed

    run(folder, play)


def test_a_test_start_runs_as_a_user_of_the_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where these can reach the agent's interpreter: the system's, with the packages of ours."""
    assert PYTHON is not None
    paths = [os.environ.get("PYTHONPATH"), sysconfig.get_path("purelib")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = (PYTHON, "-c", "import fairlead.cli.agent")
    if subprocess.run(command, env=environment, capture_output=True, check=False).returncode:
        pytest.skip("the system's python3 cannot run an agent with the packages of this one")
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])

    async def play(server: Server, agent: RunningAgent) -> None:
        root = folder / "checkpoints"
        server.check = StartCheck(number=1, checkpoints=str(root))
        await server.until(lambda: server.newest is not None and server.newest.checked == 1)
        assert server.newest is not None
        assert server.newest.check_problem == ""
        assert await gone(lambda: [path.name for path in root.iterdir()] == [MARK])

    run(folder, play)


def test_a_table_names_known_users_but_root(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(RunAs({"default": "nobody", "user:ann": "1"}).check()) == {"nobody", "daemon"}
    for table, why in (
        ({"default": "no-such-one"}, "run_as: default: this node has no OS user 'no-such-one'"),
        (
            {"tenant:apes": "root"},
            "run_as: tenant:apes: 'root' is root, who can read and do everything",
        ),
        ({"apes": "nobody"}, "--run-as: expected default, tenant:NAME or user:NAME, got 'apes'"),
        ({"user:": "nobody"}, "--run-as: expected default, tenant:NAME or user:NAME, got 'user:'"),
    ):
        with pytest.raises(ConfigError) as caught:
            RunAs(table).check()
        assert str(caught.value) == why
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(ConfigError, match=r"only an agent of root .* is run by nobody"):
        RunAs({"default": "nobody"}).check()
