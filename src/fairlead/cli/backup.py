"""``fairlead backup``, ``restore`` and ``check``: the state of a live cluster, as files."""

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.server_options import CaOption, connection
from fairlead.cluster.store import backup as backups
from fairlead.cluster.store.audit_log import NEVER_ROTATE, AuditLog, local_entry
from fairlead.cluster.store.database import (
    DATABASE_ERRORS,
    check_regular,
    is_database,
    reader,
)
from fairlead.cluster.store.marker import NAME as MARKER
from fairlead.cluster.store.marker import MarkerContent
from fairlead.cluster.store.metric_store import FILE as METRICS
from fairlead.cluster.store.replay import replay_segments
from fairlead.cluster.store.samples import is_whole
from fairlead.cluster.store.store import NAME, check_lock
from fairlead.cluster.store.verification import (
    Verified,
    unreadable,
    verify,
)
from fairlead.errors import ConfigError, RunError, StoreError

# Databases in a state directory that a cluster can do without.
DISPENSABLE_DATABASES = {
    "samples.db": "the plots begin anew",
    "forecasts.db": "what forecasts were worth is learned anew",
}


def backup(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[DIR] OUT",
            help="The state directory of a server, if it is on this machine, and the file to write.",
        ),
    ],
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="The server, without DIR.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with an admin's token."),
    ] = None,
    ca: CaOption = None,
) -> None:
    """Write the state of a live cluster to one file, whether its server runs or not.

    The file holds jobs, starts, nodes, users (hashes of their tokens) and the journal; not checkpoints, the
    output of jobs, the samples of the plots, or tokens in the clear. It is verified before it gets its name;
    an older backup of that name is replaced then.
    """
    if len(paths) > 2:
        raise ConfigError(f"backup: expected [DIR] OUT, got {len(paths)} paths")
    out = paths[-1]
    if out.is_dir():
        raise ConfigError(f"{out}: is a directory; name the file to write")
    if len(paths) == 2:
        verified = backups.back_up(paths[0], out)
        backups.note(paths[0], verified.newest, time.time())
        _note(paths[0], "backup", f"to {out.absolute()}")
    else:
        with connection(server, token_file, ca) as client:
            verified = backups.receive(client.backup(), out)
    print(f"{out}: {_content(verified)}; {_ends(verified)}")


def restore(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="[BACKUP] DIR", help="The backup, and the state directory to make."),
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Set the state that DIR has aside, in DIR/replaced-1."),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Without BACKUP: go on with what DIR has, though commits are missing.",
        ),
    ] = False,
) -> None:
    """Begin a live cluster from a backup. No server may run on DIR.

    The next server gives out neither job ids nor numbers of attempts of the time that is lost, tells agents
    to stop what it does not know, and starts nothing until none of that can run any more: a lease and a
    grace period.
    """
    if len(paths) != (1 if accept_loss else 2):
        raise ConfigError("restore: expected BACKUP DIR, or --accept-loss DIR")
    if accept_loss:
        verified, about = backups.accept_loss(paths[0]), "accepting loss"
    else:
        verified = backups.restore(paths[0], paths[1], replace=replace)
        about = f"commit {verified.newest.number} of {paths[0].absolute()}"
    _note(paths[-1], "restore", about)
    print(f"{paths[-1]}: {_content(verified)}; {_ends(verified)}")
    print("what was done since is lost; jobs go on from their newest checkpoints")


def check(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="The state directory of a server, or a backup.")
    ],
) -> None:
    """Check that the state of a live cluster is whole, whether its server runs or not.

    Every row, SQLite's own structures, the chain of commits, that the last acknowledged commit is there, and
    that the journal leads a fresh scheduler to the same commands. Exits with 2 where something is damaged or
    missing, with 1 where the journal replays otherwise. Nothing is written.
    """
    if not path.is_dir():
        if not path.exists():
            raise RunError(f"{path}: there is no such file or directory")
        backups.check_file(path)
        with backups.judged_as_backup(path):
            _check(path, backups.marker_beside(path))
        return
    found = backups.read_marker(path / MARKER)
    check_regular(path / NAME)
    if not (path / NAME).is_file():
        raise RunError(f"{path / NAME}: is missing")
    _check(path / NAME, found)
    for name, then in DISPENSABLE_DATABASES.items():
        file = path / name
        if os.path.lexists(file) and not is_whole(file):
            print(f"{file}: is damaged; the next server sets it aside, and {then}", flush=True)
    _check_metrics(path / METRICS)
    check_lock(path)


def _check_metrics(path: Path) -> None:
    """Say what becomes of the metrics of jobs where their file is damaged."""
    if not os.path.lexists(path) or is_whole(path):
        return
    then = "the next server sets it aside" if not is_database(path) else "move it away"
    print(f"{path}: is damaged; {then}, and the metrics of jobs begin anew", flush=True)


def _note(directory: Path, action: str, about: str) -> None:
    """Write into the audit log what was done. A directory that may only be read can be backed up without."""
    try:
        AuditLog(directory, NEVER_ROTATE).append([local_entry(action, about)])
    except StoreError as problem:
        print(f"fairlead: not in the audit log: {problem}", file=sys.stderr)


def _check(state: Path, found: MarkerContent | None) -> None:
    """Check a database, and say what it has. found: its marker, None for a backup, which has none."""
    try:
        with closing(reader(state)) as store:
            store.execute("BEGIN")
            verified = verify(store, state, found)
            print(f"{state}: {_content(verified)}", flush=True)
            count, segments = replay_segments(store, state)
            print(f"{state}: {_ends(verified)}; {verified.commits} links of the chain hold")
            if found is not None and found.mark is not None:
                at = state.parent / MARKER
                print(f"{at}: commit {found.mark.number} was acknowledged, and is there")
            print(f"{state}: {count} records in {segments} segments, all commands are the same")
            print(f"{state}: all as it was written")
    except DATABASE_ERRORS as problem:
        raise unreadable(state, problem) from None


def _content(verified: Verified) -> str:
    rows = verified.rows
    return (
        f"{rows['jobs']:,} jobs, {rows['attempts']:,} attempts, {rows['nodes']:,} nodes, "
        f"{rows['users']:,} users, {rows['journal']:,} journal records"
    )


def _ends(verified: Verified) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(verified.newest.time_s))
    return f"ends at commit {verified.newest.number:,} of {at}"
