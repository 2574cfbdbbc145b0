"""Commands of an engine, run to their end."""

import os
import subprocess
from collections.abc import Mapping

from fairlead.cluster.autoscaling.launcher import LaunchError

LIMIT_S = 30.0  # that a command may take; a busy Slurm answers late
_LONGEST = 300  # characters of an error


def run_command(
    command: list[str] | str,
    *,
    text: str = "",
    environment: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    name: str = "",
) -> str:
    """Return what a command prints. A text of several words is for the shell. text: its input; environment:
    variables beside this process's;
    name: of the command in errors, "" = its first word.

    Raises FileNotFoundError where there is no such program, LaunchError where it fails or does not end.
    """
    name = name or (command.split()[0] if isinstance(command, str) else command[0])
    try:
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            input=text,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{name}: no answer within {limit_s:g} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = said[-1] if said else f"exit code {done.returncode}"
        raise LaunchError(f"{name}: {why.removeprefix(f'{name}: ')[:_LONGEST]}")
    return done.stdout
