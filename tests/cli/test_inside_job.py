"""A cluster that is started from within a job would end with that job: it says so, or refuses."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fairlead.cli.main import main
from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.machine import record_of
from fairlead.cluster.agent.survivors import AttemptRecord, make_token, write_record

TOKEN = make_token("a run of an agent")
OF_AGENT = ("agent", "--server", "127.0.0.1:1", "--devices", "v100=1", "--simulated-devices")
COMMANDS = (
    OF_AGENT,
    ("serve", "--state", "state"),
    ("up", "--state", "state", "--devices", "v100=1"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_what_a_job_starts_is_refused(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_JOB", "7")
    monkeypatch.setenv("FAIRLEAD_ATTEMPT", "1")
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    said = capsys.readouterr().err  # type: ignore[attr-defined]
    assert said.startswith(f"fairlead: {command[0]}: this is a process of job 7, and ")
    assert "--inside-job" in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_process_that_has_only_the_tag_is_known(tmp_path: Path) -> None:
    """As after ``sudo``, or ``env -i``."""
    done = subprocess.run(
        (sys.executable, "-m", "fairlead", "serve", "--state", "state"),
        preexec_fn=partial(proc.tag_process, TOKEN),
        env={"PYTHONPATH": ":".join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "this is a process of a job, and " in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_cluster_for_a_job_says_that_it_ends_with_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t\n")
    with subprocess.Popen(
        (
            *(sys.executable, "-m", "fairlead", *OF_AGENT, "--inside-job"),
            *("--state", str(tmp_path / "state"), "--token-file", str(token)),
        ),
        preexec_fn=partial(proc.tag_process, TOKEN),
        stderr=subprocess.PIPE,
        text=True,
    ) as agent:
        assert agent.stderr is not None
        try:
            said = agent.stderr.readline()
        finally:
            agent.terminate()
            agent.communicate()
    assert said == "fairlead: agent: this is a process of a job, and ends with it\n"


@pytest.mark.parametrize("where", ["state", "machine"])
def test_an_agent_in_a_job_of_its_own_node_would_end_itself(tmp_path: Path, where: str) -> None:
    """Its spawner ends what earlier runs of the node have left behind, and so the agent."""
    state, server = tmp_path / "state", "127.0.0.1:1"
    earlier = record_of(where, server, "a run of an agent")
    if where == "state":
        (state / "starts").mkdir(parents=True)
        record = AttemptRecord(job=1, attempt=1, token=TOKEN, grace_s=1.0)
        write_record(state / "starts", record)
    else:
        locks.release([earlier.make()])
    done = subprocess.run(
        (
            *(sys.executable, "-m", "fairlead", *OF_AGENT, "--inside-job"),
            *("--state", str(state), "--node", where),
        ),
        preexec_fn=partial(proc.tag_process, TOKEN),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "a job that an earlier agent of this node has started" in done.stderr.splitlines()[-1]
