"""Folders that an agent of root makes for the operating-system users of jobs.

All of them lie in folders that jobs cannot write to, so that nobody can put a link in their place; they are
given away by their descriptors nevertheless.
"""

import contextlib
import os
from pathlib import Path

from fairlead.cluster.agent.checkpoint_root import enter
from fairlead.cluster.agent.launch import REPORTS, TRIAL_JOB, checkpoint_path
from fairlead.cluster.agent.os_users import OsUser
from fairlead.cluster.agent.untrusted_files import make_folder, open_to_append
from fairlead.cluster.protocol.messages import Assignment

PASSABLE = 0o711  # whoever knows a name in it gets there, and nobody can list it
PRIVATE = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_state(state: Path) -> None:
    """Let jobs of others pass through the state directory to what is theirs, and to nothing else in it.
    Raises OSError."""
    for name in ("logs", "locks", "starts"):
        with contextlib.suppress(FileNotFoundError):
            (state / name).chmod(PRIVATE)
    for path in (state / REPORTS, state / "checkpoints", state / "trials"):
        make_folder(path)
        path.chmod(PASSABLE)
    state.chmod(PASSABLE)


def make_reports_folder(folder: Path, user: OsUser | None) -> None:
    """Make the folder in which the ranks of a job leave what they say of themselves. user: whose it is; None
    = ours. Raises OSError."""
    make_folder(folder)
    if user is not None:
        folder.parent.chmod(PASSABLE)
        _give(folder, user.uid, user.gid)
    elif folder.lstat().st_uid != os.geteuid():  # of a time when jobs had users of their own
        _give(folder, os.geteuid(), os.getegid())


def open_files(log: str, report: str, user: OsUser | None) -> int:
    """The descriptor of a rank's output. Makes the folders of that, and of its reports. report: path of one;
    user: whom the rank runs as, None = our own user. Raises OSError."""
    descriptor = open_to_append(Path(log))
    try:
        make_reports_folder(Path(report).parent, user)
        if user is not None:
            _open_output(Path(log), descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_output(log: Path, descriptor: int) -> None:
    """Let a rank open its output by the descriptor that it has inherited (``/dev/stderr``), whoever it is.
    Nobody else gets there: the folder is ours alone. Whoever might read it, too, could give it another name
    (``fs.protected_hardlinks``)."""
    log.parent.chmod(PRIVATE)
    log.parent.parent.chmod(PRIVATE)
    os.fchmod(descriptor, 0o622)


def make_checkpoint_folder(state: Path, assignment: Assignment, user: OsUser) -> None:
    """Make the folder of a job in the cluster's directory of checkpoints, which its user need not be able to
    write to. What the job has named itself is none of ours: that its user makes. Raises OSError; where root
    may not do so, as on NFS, its user may."""
    path = checkpoint_path(state, assignment)
    root = Path(assignment.checkpoint_root or path.parent)
    named_by_us = not assignment.checkpoint_dir or assignment.job == TRIAL_JOB
    if path.parent != root or not (assignment.checkpoint_root or named_by_us):
        return
    with contextlib.suppress(PermissionError):
        if assignment.checkpoint_root:
            if not assignment.root_is_known:
                _make_passable(root)
            if enter(root, known=assignment.root_is_known):
                return  # it is away: the launch says so
        _make_for(root, path.name, user)


def _make_passable(root: Path) -> None:
    for path in reversed([one for one in (root, *root.parents) if not one.exists()]):
        path.mkdir(exist_ok=True)
        path.chmod(PASSABLE)


def _make_for(root: Path, name: str, user: OsUser) -> None:
    above = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, PRIVATE, dir_fd=above)
        descriptor = os.open(name, _FOLDER, dir_fd=above)
        try:
            # One of ours that is empty has just been made, by this start or by one that was cut off here.
            if os.fstat(descriptor).st_uid == os.geteuid() and not os.listdir(descriptor):
                os.fchown(descriptor, user.uid, user.gid)
        finally:
            os.close(descriptor)
    finally:
        os.close(above)


def _give(folder: Path, uid: int, gid: int) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)
