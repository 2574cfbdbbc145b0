"""The file of ``--engine-config``, and commands that start nodes."""

import json
import os
from pathlib import Path

import pytest

from fairlead.cluster.autoscaling.command import CommandLauncher
from fairlead.cluster.autoscaling.engine_config import EngineName, read_engine_config
from fairlead.cluster.autoscaling.launcher import AgentCommand, LaunchError, LauncherSetup
from fairlead.cluster.autoscaling.slurm import batch_script
from fairlead.cluster.autoscaling.slurm_time import read_slurm_time, slurm_time
from fairlead.errors import ConfigError

GOOD = 'interval = 5\n[types.v100]\ndevices = 4\nmaximum = 2\nwalltime = "4h"\n'


def read(tmp_path: Path, text: str, engine: EngineName = "slurm") -> None:
    path = tmp_path / "engine.toml"
    path.write_text(text)
    read_engine_config(path, engine)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("devices = 4", "devices = 0", 3, "types.v100.devices: must be from 1 to 1024, got 0"),
        ("maximum = 2", 'maximum = "2"', 4, "types.v100.maximum: expected int, got '2'"),
        ("maximum = 2", "maximum = 2\nminimum = 3", 5, "types.v100.minimum: must be from 0 to 2"),
        ('"4h"', '"4 h"', 5, "types.v100.walltime: expected a time as 30s, 90m, 12h or 7d"),
        ('"4h"', '"30s"', 5, "types.v100.walltime: must be at least 1m, as Slurm counts minutes"),
        ("interval = 5", "interval = 0", 1, "interval: must be from 0.1 to 3600, got 0"),
        ("interval = 5", "intervall = 5", 1, "intervall: unknown field; did you mean interval?"),
        ("interval = 5", 'server = "head"', 1, "server: expected HOST:PORT, got 'head'"),
        ("interval = 5", 'list = "x"', 1, "list: is of engine command, not of slurm"),
        ("maximum = 2", 'maximum = 2\nstart = "x"', 5, "types.v100.start: is of engine command"),
        (
            "maximum = 2",
            'maximum = 2\noptions = ["--mem=0", "--job-name=x"]',
            5,
            "types.v100.options: '--job-name=x' is not for here: Fairlead sets it",
        ),
        *(
            (
                "maximum = 2",
                f'maximum = 2\noptions = ["{option}"]',
                5,
                f"types.v100.options: '{option}' is not for here: Fairlead sets it",
            )
            for option in ("-Jx", "-N2", "--job=x", "--nod=2", "-a0-3", "-t1", "-W", "--wrap=x")
        ),
        ("types.v100", 'types."a b"', 2, "types: 'a b' is no accelerator type"),
        ('walltime = "4h"', "", 2, "types.v100.walltime: is missing"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, GOOD.replace(old, new))
    assert str(found.value).startswith(f"{tmp_path}/engine.toml:{line}: ")
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_options_of_slurm_are_refused_with_another_engine(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="partition: is of engine slurm, not of local"):
        read(tmp_path, f'{GOOD}partition = "gpu"\n', "local")


def test_the_script_of_a_node_runs_its_agent_in_place_of_the_shell(tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    more = 'setup = "module load cuda"\nagent_options = ["--prefork", "numpy,torch"]\n'
    path.write_text(f'agent = ["/opt/fair lead/python", "-m", "fairlead"]\n{GOOD}{more}')
    config = read_engine_config(path, "slurm")
    agent = AgentCommand(server="head:8471", token="secret", ca="/ca.pem", program=config.program)
    setup = LauncherSetup(cluster="ab", directory=tmp_path, agent=agent, kinds=config.kinds)
    script = batch_script(setup, config.kinds[0])
    assert script.splitlines() == [
        "#!/bin/bash",
        'node="v100-slurm-$SLURM_JOB_ID"',
        'states="${TMPDIR:-/tmp}"/fairlead-ab',
        'state="$states/$node"',
        'mkdir --mode=700 --parents "$states"',
        'for old in "$states"/*/agent.lock; do',
        '  [ -e "$old" ] && flock --nonblock "$old" rm -rf "${old%/agent.lock}"',
        "done",
        "module load cuda",
        "exec '/opt/fair lead/python' -m fairlead agent --server head:8471 --ca /ca.pem "
        '--node "$node" --devices v100=4 --state "$state" --prefork numpy,torch',
    ]
    assert "secret" not in script


def test_a_type_keeps_its_name_and_its_options(tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(f'{GOOD}options = ["--mem=0", "--exclusive", "-C", "big"]\npartition = "gpu"\n')
    (kind,) = read_engine_config(path, "slurm").kinds
    assert kind.accelerator == "v100"
    assert kind.submit_options == ("--partition=gpu", "--mem=0", "--exclusive", "-C", "big")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93784.0), ("02:03:04", 7384.0), ("3:04", 184.0), ("UNLIMITED", None)],
)
def test_times_of_slurm(text: str, seconds: float | None) -> None:
    assert read_slurm_time(text) == seconds
    if seconds is not None:
        assert read_slurm_time(slurm_time(seconds)) == seconds


def by_command(tmp_path: Path, start: str, listed: str) -> CommandLauncher:
    path = tmp_path / "engine.toml"
    path.write_text(
        f"list = '''{listed}'''\n{GOOD}start = '''{start}'''\nstop = 'echo {{id}} >> stopped'\n"
    )
    config = read_engine_config(path, "command")
    agent = AgentCommand(server="head:1", token="t", program=("fairlead",))
    setup = LauncherSetup(cluster="ab", directory=tmp_path, agent=agent, kinds=config.kinds)
    launcher = CommandLauncher(setup, config.list)
    launcher.check(config.kinds)
    return launcher


def test_commands_start_list_and_end_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start = (
        """echo {agent} > agent; env | grep TOKEN > token; echo {node} {devices} {walltime_s}; """
        """printf '{"id": "17"}'"""
    )
    launcher = by_command(tmp_path, start, "cat nodes")
    launch = launcher.start(launcher.setup.kinds[0], 3600.0)
    assert (launch.id, launch.state) == ("17", "queued")
    assert launch.node.startswith("v100-ab-")
    told = (tmp_path / "agent").read_text()
    assert f"fairlead agent --server head:1 --node {launch.node} --devices v100=4" in told
    assert "--ends-in 3600s" in told
    assert (tmp_path / "token").read_text() == "FAIRLEAD_AGENT_TOKEN=t\n"
    lines = [
        {"id": "17", "node": launch.node, "state": "running", "left_s": 9.5},
        {"id": "18", "node": "v100-of-others", "state": "running"},
    ]
    (tmp_path / "nodes").write_text("\n".join(map(json.dumps, lines)))
    (found,) = launcher.launches()
    assert (found.id, found.left_s, found.accelerator) == ("17", 9.5, "v100")
    launcher.stop(found)
    assert (tmp_path / "stopped").read_text() == "17\n"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("echo no >&2; exit 3", "echo: no"),
        ("exit 3", "exit: exit code 3"),
        ("echo hello", "start: expected a line of JSON"),
    ],
)
def test_a_command_that_fails_says_why(tmp_path: Path, start: str, said: str) -> None:
    launcher = by_command(tmp_path, start, "true")
    with pytest.raises(LaunchError, match=said):
        launcher.start(launcher.setup.kinds[0], 60.0)
    assert launcher.launches() == []


def test_an_engine_without_its_commands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(GOOD)
    with pytest.raises(ConfigError, match=r"types\.v100\.start: is missing; engine command runs"):
        read_engine_config(path, "command").check("127.0.0.1")


def test_a_server_on_all_addresses_has_to_say_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(GOOD)
    with pytest.raises(ConfigError, match="server: is missing: the server listens on all"):
        read_engine_config(path, "local").check("0.0.0.0")


def test_a_slurm_that_does_not_answer_at_the_start_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nexec sleep 60\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("fairlead.cluster.autoscaling.slurm.CHECK_S", 0.2)
    path = tmp_path / "engine.toml"
    path.write_text(GOOD)
    read_engine_config(path, "slurm").check("127.0.0.1")
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: Invalid account' >&2; exit 1\n")
    with pytest.raises(ConfigError, match=r"types\.v100: sbatch: error: Invalid account"):
        read_engine_config(path, "slurm").check("127.0.0.1")
