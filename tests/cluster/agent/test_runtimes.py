import os
import stat
from pathlib import Path

import msgspec
import pytest

from fairlead.cluster.agent.runtimes import (
    Mounts,
    agents_environment,
    run_in,
)
from fairlead.cluster.protocol.runtime import Runtime
from fairlead.errors import ConfigError

MOUNTS = Mounts(client="/s/client", checkpoints="/s/ck", socket="/s/agent.sock", cwd="/home/me")
OWN = {"FAIRLEAD_TOKEN": "secret", "PYTHONPATH": "/s/client"}


def run(runtime: Runtime, *command: str) -> tuple[tuple[str, ...], dict[str, str]]:
    return run_in(runtime, command, agents_environment(runtime), OWN, MOUNTS)


def python_in(directory: Path) -> Path:
    """Something at DIR/bin/python that can be executed."""
    python = directory / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(stat.S_IRWXU)
    return python


@pytest.fixture(autouse=True)
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variables of an agent that runs in a virtual environment of its own."""
    for name in ("CONDA_ENVS_PATH", "CONDA_EXE", "MAMBA_ROOT_PREFIX", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VIRTUAL_ENV", "/agent")
    monkeypatch.setenv("PYTHONPATH", "/agent/source")
    monkeypatch.setenv("PATH", "/agent/bin:/usr/bin")


def test_without_a_word_it_is_the_agents_environment() -> None:
    words, env = run(Runtime(), "python", "train.py")
    assert words == ("python", "train.py")
    assert (env["VIRTUAL_ENV"], env["PATH"]) == ("/agent", "/agent/bin:/usr/bin")


def test_nothing_of_the_agents_python_gets_into_another(tmp_path: Path) -> None:
    python = python_in(tmp_path / "venv")
    words, env = run(Runtime(venv=str(tmp_path / "venv")), "python3", "train.py")
    assert words == (str(python), "train.py")
    assert env["VIRTUAL_ENV"] == str(tmp_path / "venv")
    assert env["PATH"] == f"{tmp_path}/venv/bin:/usr/bin"
    assert env["PYTHONPATH"] == "/s/client"
    words, env = run(Runtime(python=str(python)), "torchrun", "train.py")
    assert words == ("torchrun", "train.py"), "found on the path, as in a shell"
    assert env["PATH"] == f"{tmp_path}/venv/bin:/usr/bin"
    assert "VIRTUAL_ENV" not in env


@pytest.mark.parametrize("field", ["python", "venv", "conda"])
def test_an_environment_that_is_not_on_this_node_is_named(field: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{field} '/nowhere': there is no '/nowhere"):
        run(msgspec.structs.replace(Runtime(), **{field: "/nowhere"}), "python", "train.py")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="on this node"):
        run(Runtime(python=str(tmp_path / "file")), "python", "train.py")


@pytest.mark.parametrize("place", ["miniforge3/envs", ".conda/envs", "list", "CONDA_ENVS_PATH"])
def test_a_conda_environment_is_found_where_conda_keeps_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    prefix = home / place / "vision"
    if place == "list":
        (home / ".conda").mkdir(parents=True)
        (home / ".conda" / "environments.txt").write_text(f"/other\n{prefix}\n")
    if place == "CONDA_ENVS_PATH":
        monkeypatch.setenv("CONDA_ENVS_PATH", str(prefix.parent))
    python = python_in(prefix)
    words, env = run(Runtime(conda="vision"), "python", "train.py")
    assert words == (str(python), "train.py")
    assert (env["CONDA_PREFIX"], env["CONDA_DEFAULT_ENV"]) == (str(prefix), "vision")
    with pytest.raises(ConfigError, match="conda 'speech': no environment of this name"):
        run(Runtime(conda="speech"), "python")


@pytest.mark.parametrize("engine", ["docker", "podman", "/usr/local/bin/podman"])
def test_a_container_gets_what_a_rank_needs(engine: str) -> None:
    template = (engine, "run", "--gpus", "all", "{options}", "image:1")
    words, env = run(Runtime(container=template), "python", "train.py")
    text = " ".join(words)
    assert text.startswith(f"{engine} run --gpus all --rm --network host --ipc host ")
    assert text.endswith(
        "--workdir /home/me --env FAIRLEAD_TOKEN --env PYTHONPATH image:1 python train.py"
    )
    for bind in ("/s/client:/s/client:ro", "/s/ck:/s/ck", "/s/agent.sock:/s/agent.sock"):
        assert f"--volume {bind} " in text
    assert "secret" not in text
    assert env["FAIRLEAD_TOKEN"] == "secret", "from where the engine passes it on"
    assert env["PATH"] == "/usr/bin"


def test_apptainer_and_engines_that_are_not_known() -> None:
    words, _ = run(Runtime(container=("apptainer", "exec", "{options}", "x.sif")), "python")
    assert words[:4] == ("apptainer", "exec", "--bind", "/s/client:/s/client:ro")
    assert words[-4:] == ("--pwd", "/home/me", "x.sif", "python")
    words, _ = run(Runtime(container=("enroot", "--mount={socket}", "{cwd}:{client}")), "python")
    assert words == ("enroot", "--mount=/s/agent.sock", "/home/me:/s/client", "python")


def test_files_of_containers_belong_to_the_agents_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 100)
    words, _ = run(Runtime(container=("podman", "run", "{options}", "i")))
    assert "--userns keep-id" in " ".join(words)
    words, _ = run(Runtime(container=("docker", "run", "{options}", "i")))
    assert "--user 1000:100" in " ".join(words)


def test_a_path_that_cannot_be_bound_is_named() -> None:
    mounts = Mounts(client="/c", checkpoints="/a:b", socket="/s", cwd="/")
    with pytest.raises(ConfigError, match="'/a:b' cannot be bound"):
        run_in(
            Runtime(container=("podman", "run", "{options}", "i")), ("x",), os.environ, {}, mounts
        )
