"""Commands that run in the environment that a job names: an interpreter, a venv, conda, a container."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType

from fairlead.cluster.agent.environment import base_environment
from fairlead.cluster.agent.untrusted_files import read_linked
from fairlead.cluster.protocol.runtime import (
    ENGINES,
    OPTIONS,
    OWNER_PLACEHOLDERS,
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
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_MAX_LIST_BYTES = 1 << 20  # bytes of conda's list of environments
_ROOTS = ("miniforge3", "mambaforge", "miniconda3", "anaconda3")  # of conda, below the home


@dataclass(frozen=True, kw_only=True)
class Mounts:
    """The paths that a rank has to reach; they are the same inside a container."""

    client: str  # the directory that offers fairlead-client
    checkpoints: str
    socket: str  # of the agent
    cwd: str
    reports: str = ""  # the directory for what the rank says of its end, or of where it stands


def agents_environment(runtime: Runtime, around: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the agent's own variables that a job gets, with their values.
    around: words that its operator puts before its command."""
    env = base_environment()
    contained = bool(runtime.container) or is_engine(around)
    if runtime == Runtime() and not contained:
        return env
    variables = [f"{env[name]}/bin" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in env]
    path = [
        entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry not in variables
    ]
    hidden = _OWN_VARIABLES | _HOST_ONLY if contained else _OWN_VARIABLES
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
        return (*filled(runtime.container, variables, mounts), *command), env
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
def is_engine(template: tuple[str, ...]) -> bool:
    """Return whether a command runs another in a container."""
    return bool(template) and PurePath(template[0]).name in ENGINES


def filled(
    template: tuple[str, ...],
    variables: Iterable[str],
    mounts: Mounts,
    owner: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """The words of a command with what its placeholders stand for. owner: whose job it is, for an operator's
    command. Raises ConfigError for a name that could mislead it."""
    for word in template:
        if word == OPTIONS:
            yield from _options(PurePath(template[0]).name, variables, mounts)
        else:
            yield PLACEHOLDER.sub(lambda found: _value(found[1], mounts, owner), word)


def _value(name: str, mounts: Mounts, owner: Mapping[str, str]) -> str:
    if name not in OWNER_PLACEHOLDERS:
        return str(getattr(mounts, name))
    if not _PLAIN_NAME.fullmatch(owner[name]):  # it may be part of a path, or look like an option
        raise ConfigError(
            f"launch_with: {{{name}}} is {owner[name]!r} here, which is no plain name"
        )
    return owner[name]


def _options(engine: str, variables: Iterable[str], mounts: Mounts) -> list[str]:
    """Return the options by which this engine gives a rank what it needs inside."""
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
