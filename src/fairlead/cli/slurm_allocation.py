"""The Slurm job that this process is a part of, and its nodes."""

import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.cli.slurm_end import JOB
from fairlead.errors import ConfigError

NODES = "SLURM_JOB_NODELIST"
ASK_S = 30.0  # that scontrol may take


@dataclass(frozen=True, slots=True)
class SlurmAllocation:
    """The nodes of a Slurm job."""

    job: str  # its number, and behind a dot how often it was requeued
    nodes: tuple[str, ...]
    address: str  # of this machine, as the others reach it

    def name(self, node: str) -> str:
        """Return the name of a node in the cluster. It is this job's alone: under the name of an agent that
        was killed none could come before its leases are over."""
        return f"{node}-slurm-{self.job}"

    def step(self, node: str) -> tuple[str, ...]:
        """Return the words that run a command on one of the nodes, beside whatever else runs there."""
        one = ("--nodes=1", "--ntasks=1", f"--nodelist={node}")
        return ("srun", "--overlap", *one, "--export=ALL", "--unbuffered")


def read_allocation(environment: Mapping[str, str]) -> SlurmAllocation:
    """The job that the environment tells of. Raises ConfigError where there is none."""
    job, nodes = environment.get(JOB, ""), environment.get(NODES, "")
    if not job or not nodes:
        raise ConfigError(f"--slurm: {JOB} and {NODES} are not set: this is no Slurm job")
    command = ("scontrol", "show", "hostnames", nodes)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError) as problem:
        raise ConfigError(
            f"--slurm: scontrol cannot tell the nodes of job {job} ({problem})"
        ) from None
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = socket.gethostname()
    if restarts := environment.get("SLURM_RESTART_COUNT", ""):  # requeued, under the same number
        job = f"{job}.{restarts}"
    return SlurmAllocation(job, tuple(done.stdout.split()), address)
