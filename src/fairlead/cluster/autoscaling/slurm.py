"""Nodes by Slurm: each is a batch job that runs one agent."""

import logging
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.cluster.autoscaling.launcher import (
    TOKEN_VARIABLE,
    LaunchedNode,
    LaunchError,
    LauncherSetup,
    NodeType,
)
from fairlead.cluster.autoscaling.run_command import LIMIT_S, run_command
from fairlead.cluster.autoscaling.slurm_time import read_slurm_time, slurm_time
from fairlead.errors import ConfigError
from fairlead.model.duration_text import duration

_log = logging.getLogger(__name__)
OUTPUT = "engine"  # folder of the server's directory with the output of nodes
DEFAULT_STATE = "${TMPDIR:-/tmp}"
_WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"))
_LIVING = frozenset(("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"))
# What tells that Slurm is away, and not that it refuses
_AWAY = re.compile(r"contact|connect|communicat|timed? ?out|socket|no answer", re.IGNORECASE)
# What is also said of nodes that are drained or down now
_PERHAPS_LATER = "Requested node configuration is not available"
CHECK_S = 10.0  # that a test may take as the server starts: its nodes wait for it
_FORMAT = "%i|%T|%j|%L|%r"


@dataclass(frozen=True, slots=True)
class SlurmLauncher:
    """Asks by ``sbatch``, looks by ``squeue``, ends by ``scancel``, as the user that runs the server.

    A node is named after its job, TYPE-slurm-JOB, so whatever tells of nodes tells of Slurm's jobs. Jobs are
    not requeued: another is asked for where one is still wanted.
    """

    setup: LauncherSetup
    name: str = "slurm"

    def check(self, kinds: Sequence[NodeType]) -> None:
        """Have Slurm test a job of each type. One that is away now is not waited for."""
        for kind in kinds:
            try:
                self._submit(kind, kind.walltime_s, "--test-only", limit_s=CHECK_S)
            except FileNotFoundError:
                raise ConfigError("engine slurm: there is no command sbatch here") from None
            except LaunchError as problem:
                if _AWAY.search(str(problem)):
                    return
                if _PERHAPS_LATER in str(problem):
                    _log.warning("types.%s: %s, now at least", kind.accelerator, problem)
                    continue
                raise ConfigError(f"types.{kind.accelerator}: {problem}") from None
            _check_limit(kind)

    def launches(self) -> list[LaunchedNode]:
        """Return the jobs of this cluster that Slurm has."""
        prefix = f"{self._job_name('')}"
        told = _run(["squeue", "--noheader", "--me", "--format", _FORMAT])
        found = []
        for line in filter(str.strip, told.splitlines()):
            parts = line.split("|", 4)
            if len(parts) < 5 or not parts[0][:1].isdecimal():
                raise LaunchError(f"squeue: expected a job, got {line[:80]!r}")
            job, state, name, left, why = parts
            accelerator = name.removeprefix(prefix)
            if name == accelerator or state not in _WAITING | _LIVING:
                continue
            queued = state in _WAITING
            found.append(
                LaunchedNode(
                    id=job,
                    node=f"{accelerator}-slurm-{job}",
                    accelerator=accelerator,
                    state="queued" if queued else "running",
                    left_s=None if queued else read_slurm_time(left),
                    why=why if queued else "",
                )
            )
        return sorted(found, key=lambda one: (len(one.id), one.id))

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        """Submit a job."""
        try:
            told = self._submit(kind, walltime_s, "--parsable")
        except FileNotFoundError:
            raise LaunchError("there is no command sbatch here") from None
        job = told.strip().split(";")[0]  # JOB;CLUSTER where there are several clusters
        if not job.isdecimal():
            raise LaunchError(f"sbatch: expected the number of a job, got {told.strip()!r}")
        accelerator = kind.accelerator
        return LaunchedNode(
            id=job, node=f"{accelerator}-slurm-{job}", accelerator=accelerator, state="queued"
        )

    def stop(self, launch: LaunchedNode) -> None:
        """Cancel its job."""
        try:
            _run(["scancel", launch.id])
        except LaunchError as problem:
            if "Invalid job id" not in str(problem):
                raise

    def _job_name(self, accelerator: str) -> str:
        return f"fairlead-{self.setup.cluster}-{accelerator}"

    def _submit(
        self, kind: NodeType, walltime_s: float, option: str, *, limit_s: float = LIMIT_S
    ) -> str:
        folder = self.setup.directory / OUTPUT
        if option != "--test-only":
            folder.mkdir(parents=True, exist_ok=True)
        command = [
            *("sbatch", option, "--job-name", self._job_name(kind.accelerator)),
            *("--nodes=1", "--ntasks=1", "--no-requeue"),
            *("--time", slurm_time(walltime_s)),
            *("--output", str(folder / "%x-%j.log"), *kind.submit_options),
        ]
        token = {TOKEN_VARIABLE: self.setup.agent.token}
        script = batch_script(self.setup, kind)
        return run_command(command, text=script, environment=token, limit_s=limit_s)


def batch_script(setup: LauncherSetup, kind: NodeType) -> str:
    """Return the script of a node's job. The agent takes the place of the shell: it gets Slurm's signals. So
    its state stays behind, and the next node there removes what agents have left that have ended."""
    place = f"{kind.accelerator}-slurm-$SLURM_JOB_ID"
    node, state = "@node@", "@state@"
    words = setup.agent.arguments(kind, node, state)
    directory = shlex.quote(kind.state_dir) if kind.state_dir else f'"{DEFAULT_STATE}"'
    command = shlex.join(words).replace(node, '"$node"').replace(state, '"$state"')
    lines = [
        "#!/bin/bash",
        f'node="{place}"',
        f"states={directory}/fairlead-{setup.cluster}",
        'state="$states/$node"',
        'mkdir --mode=700 --parents "$states"',
        'for old in "$states"/*/agent.lock; do',
        '  [ -e "$old" ] && flock --nonblock "$old" rm -rf "${old%/agent.lock}"',
        "done",
        *([kind.setup] if kind.setup else []),
        f"exec {command}",
    ]
    return "\n".join(lines) + "\n"


def _check_limit(kind: NodeType) -> None:
    """Raise ConfigError where a node would wait for ever: Slurm takes jobs beyond the limit of a partition,
    unless it was told otherwise (EnforcePartLimits)."""
    for option in kind.submit_options:
        name, _, partition = option.partition("=")
        if name != "--partition":
            continue
        command = ["sinfo", "--noheader", f"--partition={partition}", "--format=%l"]
        try:
            limits = run_command(command, limit_s=CHECK_S).split()
        except (LaunchError, FileNotFoundError):
            return
        limit_s = read_slurm_time(limits[0]) if limits else None
        if limit_s is not None and limit_s < kind.walltime_s:
            raise ConfigError(
                f"types.{kind.accelerator}.walltime: {duration(kind.walltime_s)} is above the limit of "
                f"partition {partition}, {duration(limit_s)}"
            )


def _run(command: list[str]) -> str:
    try:
        return run_command(command)
    except FileNotFoundError:
        raise LaunchError(f"there is no command {command[0]} here") from None
