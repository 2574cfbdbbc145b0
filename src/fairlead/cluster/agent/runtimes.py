"""How a command is run in the environment that a job names: an interpreter, a venv, conda, a container."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from fairlead.cluster.agent.environment import base_environment
from fairlead.cluster.agent.untrusted_files import read_linked
from fairlead.cluster.protocol.runtime import (
    OPTIONS,
    PLACEHOLDER,
    Runtime,
)
from fairlead.errors import ConfigError

_PYTHONS = frozenset({"python", "python3"})  # words of a command that mean the environment's own
_OWN_VARIABLES = frozenset(
    {"PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"}
)  # of no use to another interpreter
_HOST_ONLY = frozenset(
    {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"}
)  # nor these inside a container
_MAX_LIST_BYTES = 1 << 20  # bytes of conda's list of environments
_ROOTS = ("miniforge3", "mambaforge", "miniconda3", "anaconda3")  # of conda, below the home


@dataclass(frozen=True, kw_only=True)
class Mounts:
    """What a rank has to reach, under the same paths inside a container."""

    client: str  # the directory that offers fairlead-client
    checkpoints: str
    socket: str  # of the agent
    cwd: str
    reports: str = ""  # the directory for what the rank says of its end, or of where it stands


def agents_environment(runtime: Runtime) -> dict[str, str]:
    """What a job gets of the agent's own variables."""
    env = base_environment()
    if runtime == Runtime():
        return env
    variables = [f"{env[name]}/bin" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in env]
    path = [
        entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry not in variables
    ]
    hidden = _OWN_VARIABLES | _HOST_ONLY if runtime.container else _OWN_VARIABLES
    visible = {name: value for name, value in env.items() if name not in hidden}
    return visible | {"PATH": os.pathsep.join(path)}


def run_in(
    runtime: Runtime,
    command: tuple[str, ...],
    base: Mapping[str, str],
    variables: Mapping[str, str],
    mounts: Mounts,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The words and the variables to start a rank with.

    base: of the node, own: of the job, which a container gets too. Raises ConfigError where this node does
    not have the environment.
    """
    env = {**base, **variables}
    if runtime.container:
        return (*_container(runtime.container, variables, mounts), *command), env
    interpreter, more = _environment(runtime)
    if not interpreter:
        return command, env
    if not os.access(interpreter, os.X_OK) or os.path.isdir(interpreter):
        raise ConfigError(f"{_shown(runtime)}: there is no {interpreter!r} on this node")
    path = os.pathsep.join((str(PurePath(interpreter).parent), env.get("PATH", os.defpath)))
    words = (interpreter, *command[1:]) if command[0] in _PYTHONS else command
    return words, {**env, **more, "PATH": path}


def _environment(runtime: Runtime) -> tuple[str, dict[str, str]]:
    """Its interpreter, "" = the agent's choice, and the variables that say that it is active."""
    if runtime.venv:
        return f"{runtime.venv}/bin/python", {"VIRTUAL_ENV": runtime.venv}
    if runtime.conda:
        prefix = _conda_prefix(runtime.conda)
        active = {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": runtime.conda}
        return f"{prefix}/bin/python", active
    return runtime.python, {}


def _shown(runtime: Runtime) -> str:
    name = "venv" if runtime.venv else "conda" if runtime.conda else "python"
    return f"{name} {getattr(runtime, name)!r}"


# --- conda ----------------------------------------------------------------------------------------
def _conda_prefix(name: str) -> str:
    if name.startswith("/"):
        return name
    for prefix in _conda_candidates(name):
        if os.access(prefix / "bin" / "python", os.X_OK):
            return str(prefix)
    raise ConfigError(
        f"conda {name!r}: no environment of this name is known on this node; its prefix, "
        "a path, can be given instead"
    )


def _conda_candidates(name: str) -> Iterator[Path]:
    """Yield the folders where conda and mamba keep environments, in the order in which they search them."""
    home = Path.home()
    roots = [Path(os.environ[key]) for key in ("MAMBA_ROOT_PREFIX",) if os.environ.get(key)]
    if exe := os.environ.get("CONDA_EXE"):
        roots.append(Path(exe).parent.parent)
    roots += [*(home / root for root in _ROOTS), Path("/opt/conda")]
    if name == "base":
        yield from roots
        return
    folders = os.environ.get("CONDA_ENVS_PATH", "").split(os.pathsep)
    yield from (Path(folder) / name for folder in folders if folder)
    yield from (root / "envs" / name for root in roots)
    yield home / ".conda" / "envs" / name
    try:
        known = read_linked(home / ".conda" / "environments.txt", _MAX_LIST_BYTES)
        lines = known.decode().splitlines()
    except (OSError, ValueError):
        lines = []
    yield from (Path(line) for line in lines if PurePath(line).name == name)


# --- containers -----------------------------------------------------------------------------------
def _container(
    template: tuple[str, ...], variables: Iterable[str], mounts: Mounts
) -> Iterator[str]:
    engine = PurePath(template[0]).name
    for word in template:
        if word == OPTIONS:
            yield from _options(engine, variables, mounts)
        else:
            yield PLACEHOLDER.sub(lambda found: str(getattr(mounts, found[1])), word)


def _options(engine: str, variables: Iterable[str], mounts: Mounts) -> list[str]:
    """What the rank needs inside, in the words of this engine."""
    binds = _binds(mounts)
    if engine in ("apptainer", "singularity"):  # the environment is passed on as it is
        return [*_each("--bind", binds), "--pwd", mounts.cwd]
    user = f"{os.getuid()}:{os.getgid()}"
    who = ["--init", "--user", user] if engine == "docker" else _podman_user(user)
    return [
        *("--rm", "--network", "host", "--ipc", "host", *who),
        *_each("--volume", binds),
        *("--workdir", mounts.cwd),
        *_each(
            "--env", sorted(variables)
        ),  # names only: the values are nobody's business in ``ps``
    ]


def _podman_user(user: str) -> list[str]:
    """Files are to be the agent's user's, whether podman runs as root or not."""
    return ["--user", user] if os.getuid() == 0 else ["--userns", "keep-id"]


def _binds(mounts: Mounts) -> list[str]:
    mounts_by_path = {  # once each, though the checkpoints may be the working directory
        mounts.client: ":ro",
        mounts.socket: "",
        mounts.cwd: "",
        mounts.checkpoints: "",
        mounts.reports: "",
    }
    for path in mounts_by_path:
        if ":" in path or "," in path:
            raise ConfigError(f"container: {path!r} cannot be bound: its name has a ':' or a ','")
    return [f"{path}:{path}{mode}" for path, mode in mounts_by_path.items() if path]


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
