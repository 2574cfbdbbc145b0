"""The command that an operator puts before that of every rank."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.agent.cluster import RANK, cluster, job, plain

from fairlead.cli.isolation_options import IsolationFile, IsolationOptions, isolation_of
from fairlead.cluster.agent.runtimes import Mounts, agents_environment, filled
from fairlead.cluster.protocol.messages import StartCheck
from fairlead.cluster.protocol.runtime import Runtime
from fairlead.errors import ConfigError

MOUNTS = Mounts(client="/s/client", checkpoints="/s/ck", socket="/s/agent.sock", cwd="/home/me")
WRAPPER = """#!/bin/sh
echo "wrapped $*"
shift 3
exec "$@"
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(stat.S_IRWXU)
    return path


def test_every_rank_is_started_by_it(tmp_path: Path) -> None:
    wrapper = program(tmp_path / "wrapper", WRAPPER)
    command = f"{wrapper} '{{tenant}} of {{user}}' {{job}} {{checkpoints}}"

    async def scene() -> None:
        async with cluster(tmp_path / "s", "--launch-with", command) as (server, agent):
            given: dict[str, Any] = {"tenant": "apes", "user": "ann"}
            await server.order(plain(1, "echo", "mine", **given))
            text = await server.until_output(1, "mine\n")
            checkpoints = agent.state / "checkpoints" / "1"
            assert text.splitlines() == [f"wrapped apes of ann 1 {checkpoints} echo mine", "mine"]
            # What is a rank's to be forked from a prepared process is not, and its own container is inside.
            inside = ("env", "IN={cwd}", "sh", "-c", 'echo in "$IN"; exec "$@"', "x")
            runtime = Runtime(container=inside)
            trains = job(
                2, command=(sys.executable, str(RANK)), prepare=True, runtime=runtime, **given
            )
            await server.order(trains)
            await server.until(lambda: (2, 1) in server.statuses and server.statuses[2, 1].step > 0)
            text = await server.until_output(2, "in /")
            assert text.startswith("wrapped apes of ann 2 ")
            server.check = StartCheck(number=1)
            await server.until(lambda: server.newest is not None and server.newest.checked == 1)
            assert server.newest is not None
            assert server.newest.check_problem == "", "the agent's own test rank is no job's"

    asyncio.run(scene())


def test_a_job_cannot_put_another_program_in_its_place(tmp_path: Path) -> None:
    program(tmp_path / "env", "#!/bin/sh\necho another one")

    async def scene() -> None:
        async with cluster(tmp_path / "s", "--launch-with", "env A=b") as (server, _):
            path = f"{tmp_path}:{os.environ['PATH']}"
            await server.order(plain(1, "sh", "-c", "echo $A", env={"PATH": path}))
            assert await server.until_output(1, "\n") == "b\n"

    asyncio.run(scene())


def test_a_name_that_could_mislead_it_is_refused() -> None:
    words = ("run", "--volume=/data/{tenant}:/data", "{job}")
    owner = {"user": "ann", "tenant": "apes", "job": "7"}
    assert tuple(filled(words, (), MOUNTS, owner)) == ("run", "--volume=/data/apes:/data", "7")
    for name in ("..", "a/b", "", "-v", "a b", "a:b"):
        with pytest.raises(
            ConfigError, match=r"launch_with: \{tenant\} is '.*' here, which is no plain name"
        ):
            tuple(filled(words, (), MOUNTS, owner | {"tenant": name}))


def test_an_engine_gets_what_a_rank_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/agent/lib")
    words = ("/usr/bin/apptainer", "exec", "{options}", "/img.sif")
    assert "LD_LIBRARY_PATH" not in agents_environment(Runtime(), words)
    assert "LD_LIBRARY_PATH" in agents_environment(Runtime(), ("/usr/bin/nice",))
    assert list(filled(words, ("A",), MOUNTS))[2:4] == ["--bind", "/s/client:/s/client:ro"]


def test_what_is_wrong_with_it_is_said_at_the_start(tmp_path: Path) -> None:
    for given, why in (
        ("no-such-command x", "--launch-with: command not found: 'no-such-command'"),
        ("env 'x", '--launch-with: No closing quotation in "env \'x"'),
        (
            "podman run IMAGE",
            "--launch-with: {options} is missing, for what podman has to bind and pass on",
        ),
        (
            "docker run {options} IMAGE",
            "--launch-with: a job without the iterator cannot be ended for certain",
        ),
        ("env {node}", "--launch-with: {node} is none of {checkpoints}, {client}, {cwd}, {job},"),
    ):
        with pytest.raises(ConfigError) as caught:
            isolation_of(IsolationOptions(launch_with=given), IsolationFile(), "n1")
        assert str(caught.value).startswith(why)
    in_file = IsolationFile(launch_with=["env", "A=b c"])
    words = isolation_of(IsolationOptions(), in_file, "n1").launch_with
    assert (Path(words[0]).is_absolute(), words[1:]) == (True, ("A=b c",))
    server = [
        "--server",
        "127.0.0.1:1",
        "--devices",
        "v100=1",
        "--simulated-devices",
        "--prefork",
        "json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "agent", *server, "--launch-with", "env", "--state", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--prefork: ranks that run as others" in done.stderr
