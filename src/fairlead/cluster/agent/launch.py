"""From an assignment to the ranks that the spawner shall start."""

import contextlib
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.client.storage import STORAGE_ERRORS, directory_sentence, place_of
from fairlead.cluster.agent.addresses import RankZeroAddress
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.checkpoint_root import enter
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.isolation import Isolation
from fairlead.cluster.agent.kept_checkpoints import missing
from fairlead.cluster.agent.runtimes import (
    Mounts,
    agents_environment,
    filled,
    run_in,
)
from fairlead.cluster.agent.script_imports import Script, find_script
from fairlead.cluster.agent.spawner_messages import Launch, RankLaunch
from fairlead.cluster.agent.zygote import can_fork, neighbours
from fairlead.cluster.protocol.messages import (
    Assignment,
    DirectoryTrouble,
    Rank,
)
from fairlead.errors import ConfigError

_START_LIMIT_S = 60.0
# Why a directory cannot be made though nothing is wrong with its path, or nothing with its storage.
_PASSING_ERRORS = STORAGE_ERRORS | {
    errno.EAGAIN,
    errno.EINTR,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}


REPORTS = "reports"  # folder in the state directory
TRIAL_JOB = 10**12  # the largest number that a rank may name, and no job's


class DirectoryError(ConfigError):
    """A checkpoint directory cannot be made."""

    def __init__(
        self,
        what: str,
        trouble: DirectoryTrouble,
        path: str = "",
        *,
        of_checkpoints: bool = False,
    ) -> None:
        """path: the highest directory on the way there that is wrong, "" = not known. of_checkpoints: the
        directory may be well, but the job's checkpoints are not in it."""
        super().__init__(what)
        self.trouble = trouble
        self.path = path
        self.of_checkpoints = of_checkpoints


@dataclass(frozen=True)
class LaunchSite:
    """Settings of launches on this node that do not change while the agent lives."""

    state: Path
    host: str  # where other nodes reach the ranks
    socket_path: str
    devices: NodeDevices
    client: str  # directory that offers fairlead-client to ranks
    isolation: Isolation = field(default_factory=Isolation)


def check(assignment: Assignment, devices: NodeDevices) -> None:
    """Raises ConfigError for an assignment that this node cannot follow."""
    job = f"job {assignment.job}"
    if not assignment.command or not assignment.ranks:
        raise ConfigError(f"{job}: the assignment has no command or no ranks")
    if assignment.has_rank_0 != any(rank.rank == 0 for rank in assignment.ranks):
        raise ConfigError(f"{job}: the assignment does not say where rank 0 is")
    for rank in assignment.ranks:
        for device in rank.devices:
            if not 0 <= device < len(devices.indices):
                raise ConfigError(
                    f"{job}: rank {rank.rank}: device {device} is not one of the "
                    f"{len(devices.indices)} of this node"
                )


def logs_path(state: Path) -> Path:
    """The folder of all output of ranks."""
    return state / "logs"


def log_path(state: Path, job: int, attempt: int, rank: int) -> Path:
    """Return the file with the output of a rank."""
    return logs_path(state) / str(job) / f"{attempt}-{rank}.log"


def reports_path(state: Path, job: int) -> Path:
    """Return the folder in which ranks of a job leave what they say of themselves. It is theirs."""
    return state / REPORTS / str(job)


def failure_path(state: Path, job: int, attempt: int, rank: int) -> Path:
    """Return the file in which a rank leaves the exception that ends it."""
    return reports_path(state, job) / f"{attempt}-{rank}.failure"


def stacks_path(state: Path, job: int, attempt: int, rank: int) -> Path:
    """Return the file in which a rank says, once it comes to its loop, how to ask it where it stands."""
    return failure_path(state, job, attempt, rank).with_suffix(".stacks")


def progress_path(state: Path, job: int, attempt: int) -> Path:
    """Return the file in which an unmanaged job reports its progress."""
    return failure_path(state, job, attempt, 0).with_suffix(".progress")


def metrics_path(state: Path, job: int, attempt: int) -> Path:
    """Return the file in which rank 0 of a job reports metrics."""
    return failure_path(state, job, attempt, 0).with_suffix(".metrics")


def checkpoint_path(state: Path, assignment: Assignment) -> Path:
    """The directory of its checkpoints."""
    path = Path(assignment.checkpoint_dir or state / "checkpoints" / str(assignment.job))
    return Path(assignment.cwd or state) / path


@dataclass
class LastAccess:
    """The files that a thread was about to touch last: it may hang there."""

    what: str = "its files"
    checkpoints: bool = False  # is it the checkpoint directory?

    def note(self, what: str, *, checkpoints: bool = False) -> None:
        """It is about to be touched."""
        self.what, self.checkpoints = what, checkpoints


@dataclass(frozen=True)
class PreparedLaunch:
    """The order to the spawner, and the script whose imports are worth preparing, if there is one."""

    order: Launch
    script: Script | None


def start_limit_s(assignment: Assignment) -> float:
    """Seconds for what a start does before its program runs."""
    return min(assignment.start_timeout_s or _START_LIMIT_S, _START_LIMIT_S)


def launch(
    place: LaunchSite, attempt: NodeAttempt, master: RankZeroAddress, last_access: LastAccess
) -> PreparedLaunch:
    """The order to the spawner. It touches what the job has named, which may hang: see ``on_thread``. Raises
    DirectoryError where the checkpoint directory cannot be made."""
    assignment = attempt.assignment
    ranks = tuple(
        _rank(place, attempt, rank, local, master, last_access)
        for local, rank in enumerate(assignment.ranks)
    )
    order = _order(place, attempt, ranks)
    if not assignment.prepare or place.isolation.launch_with:
        return PreparedLaunch(order, None)
    first = ranks[0]
    last_access.note(f"the script in {first.cwd!r}")
    script = find_script(first.argv, first.env, first.cwd, assignment.env)
    return PreparedLaunch(order, script)


def _order(place: LaunchSite, attempt: NodeAttempt, ranks: tuple[RankLaunch, ...]) -> Launch:
    assignment = attempt.assignment
    # Where an engine is between, the processes of the job are others than those that the agent starts.
    within = bool(assignment.runtime.container or place.isolation.launch_with)
    return Launch(
        job=assignment.job,
        attempt=assignment.attempt,
        token=attempt.token,
        ranks=ranks,
        colocated=assignment.colocated,
        grace_s=max(assignment.grace_s, assignment.finish_grace_s),
        prefork=assignment.prefork,
        start_limit_s=start_limit_s(assignment),
        parks=assignment.park and not assignment.unmanaged and not within,
        suspends=assignment.suspend and not within,
        resumes=assignment.resumes,
        alone=len(ranks) == assignment.world_size,
    )


def _rank(
    place: LaunchSite,
    attempt: NodeAttempt,
    rank: Rank,
    local: int,
    master: RankZeroAddress,
    last_access: LastAccess,
) -> RankLaunch:
    assignment = attempt.assignment
    checkpoints = str(_checkpoint_dir(place.state, assignment, last_access))
    cwd = assignment.cwd or checkpoints
    failure = failure_path(place.state, assignment.job, assignment.attempt, rank.rank)
    mounts = Mounts(
        client=place.client,
        checkpoints=checkpoints,
        socket=place.socket_path,
        cwd=cwd,
        reports=str(failure.parent),
    )
    around = () if assignment.job == TRIAL_JOB else place.isolation.launch_with
    base = agents_environment(assignment.runtime, around)
    variables = {"PYTHONUNBUFFERED": "1"} | assignment.env | _identity(place, attempt, checkpoints)
    stacks = stacks_path(place.state, assignment.job, assignment.attempt, rank.rank)
    variables |= {"FAIRLEAD_FAILURE_FILE": str(failure), "FAIRLEAD_STACKS_FILE": str(stacks)}
    if rank.rank == 0:
        metrics = metrics_path(place.state, assignment.job, assignment.attempt)
        variables["FAIRLEAD_METRICS_FILE"] = str(metrics)
    variables |= _progress(place.state, attempt, rank) | _devices(
        place.devices, assignment.ranks, rank
    )
    variables |= _rendezvous(assignment, rank, local, master)
    variables["PYTHONPATH"] = _python_path(place.client, (base | variables).get("PYTHONPATH", ""))
    last_access.note(f"the environment of its command {assignment.command[0]!r}")
    try:
        argv, env = run_in(assignment.runtime, assignment.command, base, variables, mounts)
        argv = (*filled(around, variables, mounts, _owner(assignment)), *argv)
    except ConfigError as problem:
        raise ConfigError(f"job {assignment.job}: {problem}") from None
    prepared = (assignment.prefork or assignment.prepare) and not around
    last_access.note(f"working directory {cwd!r}", checkpoints=cwd == checkpoints)
    return RankLaunch(
        rank=rank.rank,
        argv=argv,
        env=env,
        cwd=cwd,
        log=str(log_path(place.state, assignment.job, assignment.attempt, rank.rank)),
        stacks=str(stacks),
        devices=rank.devices,
        forkable=prepared and can_fork(argv, env, cwd),
        neighbours=neighbours(argv, cwd) if assignment.prepare else None,
    )


def _owner(assignment: Assignment) -> dict[str, str]:
    """Return the placeholders of a job in the words of an operator, with their values."""
    return {"user": assignment.user, "tenant": assignment.tenant, "job": str(assignment.job)}


def _python_path(client: str, others: str) -> str:
    """The agent's own client first: it speaks the agent's protocol, whatever else is installed."""
    return f"{client}{os.pathsep}{others}" if others else client


def _checkpoint_dir(state: Path, assignment: Assignment, last_access: LastAccess) -> Path:
    path = checkpoint_path(state, assignment)
    last_access.note(f"checkpoint directory {str(path)!r}", checkpoints=True)
    try:
        root = Path(assignment.checkpoint_root)
        if assignment.checkpoint_root and (away := enter(root, known=assignment.root_is_known)):
            what = directory_sentence(str(root), away)
            raise DirectoryError(what, "out_of_order", str(root))
        if is_of_agent(path, state, assignment):
            what = f"checkpoint directory {str(path)!r} is in the agent's state directory; name another one"
            raise DirectoryError(what, "wrong_path", str(path))
        if assignment.checkpoint_dir and assignment.kept_steps and not assignment.accept_loss:
            _check_not_away(path, assignment)
        path.mkdir(parents=not assignment.checkpoint_root, exist_ok=True)
    except (OSError, ValueError, RecursionError) as problem:  # it calls itself for each folder
        raise directory_error(path, problem) from None
    return path


def is_of_agent(path: Path, state: Path, assignment: Assignment) -> bool:
    """Whether the checkpoint directory ``path`` was named by the job and is within the agent's own."""
    is_named = os.path.isabs(assignment.checkpoint_dir) and not assignment.checkpoint_root
    if not is_named or assignment.job == TRIAL_JOB:
        return False
    return Path(os.path.normpath(path)).is_relative_to(Path(os.path.abspath(state)))


def _closed_folder(path: Path) -> str:
    """The folder on the way there that does not let this user through, in brackets; "" = there is none."""
    for one in reversed(path.parents):
        with contextlib.suppress(OSError):
            if one.exists() and not os.access(one, os.X_OK):
                return f" ({one} does not let its user through: chmod o+x)"
    return ""


def directory_error(path: Path, problem: Exception) -> DirectoryError:
    """Return what kept a checkpoint directory from being made, as the server is told of it."""
    why, place = str(problem), ""
    trouble: DirectoryTrouble = "wrong_path"
    if isinstance(problem, OSError):
        in_the_way = problem.errno == errno.EEXIST  # a file has its name
        why = os.strerror(errno.ENOTDIR) if in_the_way else str(problem.strerror)
        place = place_of(problem, path)
        why += _closed_folder(path) if problem.errno == errno.EACCES else ""
        if problem.errno in _PASSING_ERRORS:
            trouble = "out_of_order"
    return DirectoryError(directory_sentence(str(path), why), trouble, place)


def _check_not_away(path: Path, assignment: Assignment) -> None:
    """Raises DirectoryError where a job that has saved would do steps again that its checkpoints held, for
    these are away: moved, or on storage that is not mounted. What is below its mount point then is empty, or
    older."""
    if why := missing(path, assignment):
        sentence = directory_sentence(str(path), why)
        raise DirectoryError(sentence, "out_of_order", of_checkpoints=True)


def _identity(place: LaunchSite, attempt: NodeAttempt, checkpoints: str) -> dict[str, str]:
    assignment = attempt.assignment
    env = {
        "FAIRLEAD_JOB": str(assignment.job),
        "FAIRLEAD_ATTEMPT": str(assignment.attempt),
        "FAIRLEAD_TOKEN": attempt.token,
        "FAIRLEAD_CHECKPOINT_DIR": checkpoints,
        "FAIRLEAD_TOTAL_STEPS": str(assignment.total_steps),
        "FAIRLEAD_ACCELERATOR": place.devices.accelerator,
    }
    if not assignment.unmanaged:
        env["FAIRLEAD_SOCKET"] = place.socket_path
    if assignment.batch:
        env["FAIRLEAD_BATCH"] = str(assignment.batch)
    if assignment.accept_loss:
        env["FAIRLEAD_ACCEPT_LOSS"] = "1"
    return env


def _progress(state: Path, attempt: NodeAttempt, rank: Rank) -> dict[str, str]:
    """Return the variables by which an unmanaged job may report its progress; one rank reports for all."""
    if not attempt.may_report_progress or rank.rank != 0:
        return {}
    env = {"FAIRLEAD_PROGRESS_FILE": str(progress_path(state, *attempt.key))}
    if attempt.addresses.progress_port:
        env["FAIRLEAD_PROGRESS_PORT"] = str(attempt.addresses.progress_port)
    return env


def _devices(devices: NodeDevices, ranks: tuple[Rank, ...], rank: Rank) -> dict[str, str]:
    """Return the variables that name devices. As under torchrun, each rank sees the devices of all ranks of
    the job on this node, and ``LOCAL_RANK`` is the index of its own. NVML counts in the order of the PCI bus;
    CUDA does so only on request."""
    here = (
        []
        if devices.simulated_devices
        else [devices.indices[d] for one in ranks for d in one.devices]
    )
    return {
        "FAIRLEAD_DEVICES": ",".join(map(str, rank.devices)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, here)),
    }


def _rendezvous(
    assignment: Assignment, rank: Rank, local: int, master: RankZeroAddress
) -> dict[str, str]:
    """The whole set of ``env://``, for one rank too: what sees a part of it expects the rest."""
    env = {
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(assignment.world_size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(len(assignment.ranks)),
        "GROUP_RANK": str(assignment.node_rank),
        "GROUP_WORLD_SIZE": str(assignment.nodes),
        "MASTER_ADDR": master.host,
        "MASTER_PORT": str(master.port),
    }
    if assignment.world_size > 1:
        env["FAIRLEAD_RANK_SYNC"] = f"{master.host}:{master.rank_sync_port}"
        env["FAIRLEAD_RANK_SYNC_TOKEN"] = master.secret
    return env
