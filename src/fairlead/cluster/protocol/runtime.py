"""Runtime of a job's command: the agent's own environment, or one of the user's."""

import re
from pathlib import PurePath

import msgspec

# Container engines of which it is known how to tell them what {options} stands for.
ENGINES = frozenset({"apptainer", "singularity", "docker", "podman"})
DAEMON_ENGINES = frozenset({"docker"})  # their containers are no children of the command
OPTIONS = "{options}"
PLACEHOLDERS = frozenset({"options", "client", "checkpoints", "socket", "cwd"})
OWNER_PLACEHOLDERS = frozenset({"user", "tenant", "job"})  # in an operator's command besides
PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
CONDA_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class Runtime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """At most one of these is set; without any it is the agent's own environment. All paths are those of
    the node."""

    python: str = ""  # path of an interpreter
    venv: str = ""  # directory of a virtual environment
    conda: str = ""  # name or prefix of a conda environment
    container: tuple[str, ...] = ()  # a container engine's command, with placeholders


def named(runtime: Runtime) -> list[str]:
    """The fields that are set."""
    return [name for name in runtime.__struct_fields__ if getattr(runtime, name)]


def container_error(
    words: tuple[str, ...], unmanaged: bool, placeholders: frozenset[str] = PLACEHOLDERS
) -> str:
    """Return the fault of a container command, in half a sentence; "" = none."""
    engine = PurePath(words[0]).name
    for name in (name for word in words for name in PLACEHOLDER.findall(word)):
        if name not in placeholders:
            known = ", ".join(f"{{{one}}}" for one in sorted(placeholders))
            return f"{{{name}}} is none of {known}"
    if any(OPTIONS in word and word != OPTIONS for word in words):
        return f"{OPTIONS} must be a word of its own"
    if engine in ENGINES and OPTIONS not in words:
        return f"{OPTIONS} is missing, for what {engine} has to bind and pass on"
    if engine not in ENGINES and OPTIONS in words:
        return f"{OPTIONS} is known for {', '.join(sorted(ENGINES))} only, not for {engine!r}"
    if engine in DAEMON_ENGINES and unmanaged:
        return (
            f"a job without the iterator cannot be ended for certain under {engine}, whose containers "
            "outlive its command; use podman or apptainer"
        )
    return ""
