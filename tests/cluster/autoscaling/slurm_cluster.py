"""A real Slurm on this machine: one controller and several ``slurmd``, in a directory of its own."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
LIMIT_S = 60.0


def missing_programs() -> str:
    """Return why no Slurm can be started here; "" = it can."""
    gone = [name for name in PROGRAMS if _program(name) is None]
    if gone:
        return f"{', '.join(gone)}: not installed (slurmctld slurmd slurm-client munge)"
    return "" if os.geteuid() == 0 else "slurmctld and slurmd are started by root alone"


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


@dataclass
class SlurmCluster:
    """``start`` it, and ``stop`` it whatever happens."""

    directory: Path
    nodes: int
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """The file that the variable SLURM_CONF names."""
        return self.directory / "slurm.conf"

    def start(self) -> None:
        """Start all daemons; returns when all nodes are idle."""
        self.directory.mkdir(parents=True, exist_ok=True)
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        self.directory.chmod(0o755)
        self._write_conf()
        munge = (
            *("munged", "--foreground", "--force", f"--key-file={key}"),
            *(f"--socket={self.directory}/munge.socket", f"--pid-file={self.directory}/munge.pid"),
            *(f"--log-file={self.directory}/munge.log", f"--seed-file={self.directory}/seed"),
        )
        self._run("munged", munge)
        _until(lambda: (self.directory / "munge.socket").exists(), "munged")
        self.start_controller()
        for number in range(1, self.nodes + 1):
            self.start_node(number)
        _until(lambda: self.states().count("idle") == self.nodes, "idle nodes")

    def start_controller(self) -> None:
        """Start slurmctld, also after it has ended."""
        self._run("slurmctld", ("slurmctld", "-D"))
        _until(lambda: self._ask("scontrol", "ping").endswith("is UP"), "slurmctld")

    def start_node(self, number: int) -> None:
        """Start the slurmd of a node, from 1."""
        self._run(f"n{number}", ("slurmd", "-D", "-N", f"n{number}"))

    def states(self) -> list[str]:
        """Return the state of each node."""
        return self._ask("sinfo", "--noheader", "--Node", "--partition=gpu", "--format=%T").split()

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that wait or run."""
        return self._ask("squeue", "--noheader", "--format", "%i").split()

    def saved_jobs(self) -> bytes:
        """Return what the controller has written down of its jobs."""
        path = self.directory / "state" / "job_state"
        return path.read_bytes() if path.exists() else b""

    def command(self, *words: str) -> str:
        """Run a command of Slurm and return what it prints."""
        return subprocess.run(
            words, env=self._environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def try_command(self, *words: str) -> None:
        """Run a command of Slurm that may be refused."""
        self._ask(*words)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End one of the daemons."""
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(30)

    def cancel_all(self) -> None:
        """Cancel what there is; returns when nothing is left."""
        if jobs := self.jobs():
            subprocess.run(("scancel", *jobs), env=self._environment, check=False, timeout=30)
            _until(lambda: not self.jobs(), "empty queue")

    def stop(self) -> None:
        """Cancel what there is and end all daemons."""
        with suppress(TimeoutError):
            self.cancel_all()
        for name in sorted(self.processes, key=lambda one: one in ("munged", "slurmctld")):
            process = self.processes[name]
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _write_conf(self) -> None:
        host = socket.gethostname().split(".")[0]
        controller, first = _free_ports(self.nodes + 1)[0], _free_ports(self.nodes + 1)[1:]
        folder = self.directory
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge.socket",
            "CredType=cred/munge",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd-%n.log",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "SlurmdParameters=config_overrides",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=1,sched_interval=1",
            "SelectType=select/linear",
            "ReturnToService=2",
            "MinJobAge=2",
            "KillWait=30",
            "MpiDefault=none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            *(
                f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"
                for number, port in enumerate(first, 1)
            ),
            f"PartitionName=gpu Nodes=n[1-{self.nodes}] Default=YES MaxTime=INFINITE State=UP",
            "PartitionName=short Nodes=ALL MaxTime=1 State=UP",
        ]
        for place in ("state", *(f"spool-n{number}" for number in range(1, self.nodes + 1))):
            (folder / place).mkdir(exist_ok=True)
        self.conf.write_text("\n".join(lines) + "\n")

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": path}

    def _run(self, name: str, command: tuple[str, ...]) -> None:
        with (self.directory / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                command, stdout=out, stderr=out, env=self._environment
            )

    def _ask(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self._environment, capture_output=True, text=True, check=False, timeout=30
        )
        return done.stdout.strip()


@contextmanager
def slurm_cluster(directory: Path, nodes: int = 2) -> Iterator[SlurmCluster]:
    """A Slurm of so many nodes."""
    slurm = SlurmCluster(directory, nodes)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"no {what} within {LIMIT_S:g} s")
        time.sleep(0.05)
