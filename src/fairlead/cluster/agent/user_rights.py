"""Work of root's agent at paths that a job has named: in a process with the rights of the job's user.

The process is started as root, so that the agent's interpreter and packages need not be readable by jobs; it
has no threads, becomes the user, and touches the paths only then. The kernel lets nobody of that user look
into it, since it was root's. What it answers is decoded as data, and never run.
"""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TypeAlias

import msgspec

from fairlead.client.storage import directory_sentence
from fairlead.cluster.agent.addresses import GivenAddresses, RankZeroAddress
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.health import job_directory_problems
from fairlead.cluster.agent.isolation import Isolation
from fairlead.cluster.agent.job_folders import make_checkpoint_folder
from fairlead.cluster.agent.launch import (
    TRIAL_JOB,
    DirectoryError,
    LastAccess,
    LaunchSite,
    PreparedLaunch,
    checkpoint_path,
    directory_error,
    launch,
)
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.os_users import OsUser, RunAs, become
from fairlead.cluster.agent.spawner_messages import Launch, SpawnerFrames, framed
from fairlead.cluster.protocol.messages import Assignment, DirectoryTrouble
from fairlead.errors import ConfigError

_LIMIT_S = 30.0  # for a check
_FOREIGN = ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR")  # root's own, of no use to others


class MakeLaunch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``launch``, for this user."""

    user: OsUser
    assignment: Assignment
    token: str
    master: RankZeroAddress
    progress_port: int
    state: str
    host: str
    socket_path: str
    devices: NodeDevices
    client: str
    launch_with: tuple[str, ...]


class CheckDirectory(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for the problems of a directory that a job saves to."""

    user: OsUser
    path: str


class CheckReach(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """May the user pass through this directory, and run this program?"""

    user: OsUser
    folder: str
    program: str


class Touches(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """It is about to touch something that may hang."""

    what: str
    checkpoints: bool


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """ConfigError, or DirectoryError where there is a ``trouble``."""

    why: str
    trouble: DirectoryTrouble = ""
    path: str = ""
    of_checkpoints: bool = False

    @property
    def error(self) -> ConfigError:
        """The error that it was."""
        if not self.trouble:
            return ConfigError(self.why)
        return DirectoryError(self.why, self.trouble, self.path, of_checkpoints=self.of_checkpoints)


class Problems(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The problems that a check has found."""

    found: tuple[str, ...]


Request: TypeAlias = MakeLaunch | CheckDirectory | CheckReach
Answer: TypeAlias = Launch | Refused | Problems


# --- the agent's side -----------------------------------------------------------------------------
def launch_as_user(
    place: LaunchSite,
    attempt: NodeAttempt,
    master: RankZeroAddress,
    last_access: LastAccess,
    limit_s: float,
) -> PreparedLaunch:
    """``launch``, done with the rights of the job's user, and told to run its ranks as that user. Blocks;
    call it on a thread. Such ranks are never forked from prepared processes: these are root's. Raises
    ConfigError, DirectoryError, TimeoutError."""
    assignment = attempt.assignment
    try:
        user = _user_of(place.isolation.run_as, assignment)
    except ConfigError as problem:
        raise ConfigError(f"job {assignment.job}: {problem}") from None
    path = checkpoint_path(place.state, assignment)
    last_access.note(f"checkpoint directory {str(path)!r}", checkpoints=True)
    try:
        make_checkpoint_folder(place.state, assignment, user)
    except (OSError, ValueError) as problem:
        raise directory_error(path, problem) from None
    request = MakeLaunch(
        user=user,
        assignment=msgspec.structs.replace(assignment, prefork=False, prepare=False),
        token=attempt.token,
        master=master,
        progress_port=attempt.addresses.progress_port,
        state=str(place.state),
        host=place.host,
        socket_path=place.socket_path,
        devices=place.devices,
        client=place.client,
        launch_with=place.isolation.launch_with,
    )
    answer = _ask(request, limit_s, last_access)
    if isinstance(answer, Refused):
        raise answer.error
    if not isinstance(answer, Launch):
        raise ConfigError(f"job {assignment.job}: its start could not be prepared as {user.name!r}")
    # An operator's command may need such programs: the engines of containers have them.
    no_new_privs = not place.isolation.launch_with
    return PreparedLaunch(
        msgspec.structs.replace(answer, user=user, no_new_privs=no_new_privs), None
    )


def _user_of(run_as: RunAs, assignment: Assignment) -> OsUser:
    if assignment.job == TRIAL_JOB:
        return run_as.trial_user
    return run_as.user_of(assignment.tenant, assignment.user)


def problems_of_directory(isolation: Isolation, path: Path, assignment: Assignment) -> list[str]:
    """``job_directory_problems``, as the job's user would see them. Blocks."""
    if not isolation.run_as:
        return job_directory_problems(path)
    try:
        request = CheckDirectory(user=_user_of(isolation.run_as, assignment), path=str(path))
        answer = _ask(request, _LIMIT_S, LastAccess())
    except ConfigError:  # that says nothing of the directory
        return []
    return list(answer.found) if isinstance(answer, Problems) else []


def check_reach(isolation: Isolation, state: Path) -> list[str]:
    """Return what jobs will miss, a sentence each. Raises ConfigError where an OS user cannot come to what is
    theirs in the agent's state directory."""
    warnings: list[str] = []
    for user in isolation.run_as.check().values():
        answer = _ask(
            CheckReach(user=user, folder=str(state), program=sys.executable), _LIMIT_S, LastAccess()
        )
        if isinstance(answer, Refused):
            raise answer.error
        warnings += answer.found if isinstance(answer, Problems) else ()
    return warnings


def _ask(request: Request, limit_s: float, last_access: LastAccess) -> Answer:
    """Raises ConfigError, TimeoutError."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    late = threading.Event()

    def kill() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit_s, kill)
    timer.start()
    try:
        answer = _converse(process, request, last_access)
    except OSError:  # it has ended
        answer = None
    finally:
        timer.cancel()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
    if answer is not None:
        return answer
    if late.is_set():
        raise TimeoutError
    raise ConfigError(
        f"the process that had the rights of OS user {request.user.name!r} has ended, exit code "
        f"{process.returncode}"
    )


def _converse(
    process: "subprocess.Popen[bytes]", request: Request, last_access: LastAccess
) -> Answer | None:
    """Raises OSError."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.msgpack.encode(request))
    process.stdin.close()
    frames, answer = SpawnerFrames(), None
    while data := os.read(process.stdout.fileno(), 1 << 16):
        for body in frames.feed(data):
            message = msgspec.msgpack.decode(body, type=Touches | Answer)
            if isinstance(message, Touches):
                last_access.note(message.what, checkpoints=message.checkpoints)
            else:
                answer = message
    return answer


# --- the process' side ----------------------------------------------------------------------------
class _ToldAccess(LastAccess):
    """Tells the agent, which may have to say what has hung."""

    def note(self, what: str, *, checkpoints: bool = False) -> None:
        """Tell it, and go on."""
        _tell(Touches(what=what, checkpoints=checkpoints))


def _tell(message: msgspec.Struct) -> None:
    sys.stdout.buffer.write(framed(message))
    sys.stdout.buffer.flush()


def main() -> None:
    """Read one request, and answer it as the user that it names."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    become(request.user)
    os.environ.update(request.user.variables)
    for name in _FOREIGN:
        os.environ.pop(name, None)
    _tell(_answer(request))


def _answer(request: Request) -> Answer:
    match request:
        case MakeLaunch():
            try:
                return _launch(request)
            except DirectoryError as problem:
                return Refused(
                    why=str(problem),
                    trouble=problem.trouble,
                    path=problem.path,
                    of_checkpoints=problem.of_checkpoints,
                )
            except ConfigError as problem:
                return Refused(why=str(problem))
        case CheckDirectory(path=path):
            return Problems(found=tuple(job_directory_problems(Path(path))))
        case CheckReach():
            return _reach(request)


def _launch(request: MakeLaunch) -> Launch:
    """Raises ConfigError."""
    assignment = request.assignment
    place = LaunchSite(
        state=Path(request.state),
        host=request.host,
        socket_path=request.socket_path,
        devices=request.devices,
        client=request.client,
        isolation=Isolation(launch_with=request.launch_with),
    )
    attempt = NodeAttempt(assignment, request.token, NodeLease(0.0), 0.0)
    attempt.addresses = GivenAddresses(progress_port=request.progress_port)
    order = launch(place, attempt, request.master, _ToldAccess()).order
    path = checkpoint_path(place.state, assignment)
    if why := _not_usable(path, assignment, request.user):
        # A wait: until it is given to the user, or on another node
        raise DirectoryError(directory_sentence(str(path), why), "out_of_order", str(path))
    return order


def _not_usable(path: Path, assignment: Assignment, user: OsUser) -> str:
    """Return why the checkpoint directory is none for this user; "" = it is one. One that the cluster has
    named must be the user's own: another may have made it where all can."""
    named_by_job = assignment.checkpoint_dir and not assignment.checkpoint_root
    found = path.stat() if named_by_job else path.lstat()
    owner, mode = found.st_uid, stat.S_IMODE(found.st_mode)
    usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    if usable and (named_by_job or owner == user.uid):
        return ""
    if owner == user.uid:
        return f"does not let its own user {user.name!r} in (its mode is {mode:03o}: chmod u+rwx)"
    return (
        f"belongs to the OS user {owner}, and this node runs the job as {user.name!r} ({user.uid}), who "
        "may not use it (give it to that user: chown -R)"
    )


def _reach(request: CheckReach) -> Answer:
    user = request.user
    folder = Path(request.folder)
    for path in (*reversed(folder.parents), folder):
        if not os.access(path, os.X_OK):
            return Refused(
                why=f"run_as: OS user {user.name!r} cannot pass through {str(path)!r}, where the agent keeps "
                "what jobs need: give others the right to (chmod o+x), or name another --state"
            )
    if os.access(request.program, os.X_OK):
        return Problems(found=())
    return Problems(
        found=(
            f"run_as: OS user {user.name!r} cannot run {request.program}, the interpreter of this agent: "
            "its jobs find the next python on PATH, and test starts fail",
        )
    )


if __name__ == "__main__":
    main()
