"""Checkpoint directories: each job keeps the directory that was in force when it was submitted."""

import logging
from pathlib import Path

import msgspec

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.store.restore_note import RESTORED
from fairlead.cluster.store.rows import JobRow
from fairlead.errors import RunError

NOTE = "checkpoints"  # key in the table meta
DEFAULT = "checkpoints"  # below the state directory
_log = logging.getLogger(__name__)


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """Note of the server's previous run; absolute paths."""

    state: str  # its state directory
    checkpoints: str  # for jobs submitted then
    known: tuple[str, ...] = ()  # that jobs have used, outside of the state directory


def settle_checkpoints(state: ClusterState) -> None:
    """Set where the checkpoints of new jobs go: the directory of the options, else the one of the run before,
    else one below the state directory. Set where those of open jobs are, which a state directory may have
    brought along when it was moved. Called when jobs and attempts are loaded. Raises RunError where jobs
    would not find their checkpoints."""
    directory = state.store.directory.absolute()
    text = state.store.meta(NOTE)
    before = None if text is None else msgspec.json.decode(text, type=_Note)
    remembered = directory / DEFAULT
    if before is not None:
        _follow(state, Path(before.state), directory)
        remembered = _moved(Path(before.checkpoints), Path(before.state), directory)
    state.checkpoints = state.options.checkpoints or str(remembered)
    if before is None and not state.options.checkpoints:
        _check_found(state, remembered)
    for row in _sharing(state):
        _put(state, row, row.checkpoints or state.checkpoints)
    _report_others(state, changed=before is not None and state.checkpoints != str(remembered))
    restored = state.store.meta(RESTORED) is not None  # perhaps elsewhere, where they are not
    state.known_roots = set() if before is None or restored else set(before.known)
    note = _note(state)
    if note != text:
        state.write(lambda t: t.set_meta(NOTE, note))


def note_used(state: ClusterState, row: JobRow) -> None:
    """The ranks of a job run, so the directory of its checkpoints is there. From now on nobody makes it:
    where it is missing its storage is away. One below the state directory goes where that goes."""
    if not row.has_run:
        row.has_run = True
        state.registry.dirty_jobs.add(row.id)
    root = row.checkpoints
    inside = Path(root).is_relative_to(state.store.directory.absolute())
    if not root or inside or row.spec.checkpoint_dir or root in state.known_roots:
        return
    state.known_roots.add(root)
    note = _note(state)
    state.write(lambda t: t.set_meta(NOTE, note))


def _note(state: ClusterState) -> str:
    note = _Note(
        state=str(state.store.directory.absolute()),
        checkpoints=state.checkpoints,
        known=tuple(sorted(state.known_roots)),
    )
    return msgspec.json.encode(note).decode()


def _follow(state: ClusterState, before: Path, now: Path) -> None:
    """Find the checkpoints below a state directory that was another path before. Raises RunError where they
    came along while jobs may run that save under the old path."""
    restored = state.store.meta(RESTORED) is not None  # then what ran is given up
    astray: list[tuple[Path, Path]] = []
    for row in _sharing(state):
        old = Path(row.checkpoints)
        new = _moved(old, before, now)
        if old == new or not row.checkpoints:
            continue
        if row.starts and not _holds(new, row):
            continue  # they stayed where they were
        if row.id in state.registry.live and not restored and not _is_same(old, new):
            astray.append((old, new))
        _put(state, row, str(new))
    if astray:
        old, new = astray[0]
        raise RunError(
            f"{now}: was moved here from {before} while {_jobs(len(astray))} ran, which may go on saving to "
            f"{old}; put a symbolic link to {new} in its place, and start the server again"
        )


def _check_found(state: ClusterState, directory: Path) -> None:
    """An earlier version did not write down where checkpoints are. Raises RunError where they are not in
    the directory that nobody has named."""
    missing = [
        row
        for row in _sharing(state)
        if row.saved_step > 0 and not row.spec.unmanaged and not _holds(directory, row)
    ]
    if missing:
        raise RunError(
            f"{directory}: does not have the checkpoints of {_jobs(len(missing))}; name their directory with "
            f"--checkpoints DIR, as before (or this one, if those jobs shall begin anew)"
        )


def _report_others(state: ClusterState, *, changed: bool) -> None:
    """Say where else open jobs have theirs. changed: new jobs get another directory than before."""
    others: dict[str, int] = {}
    for row in _sharing(state):
        if row.checkpoints != state.checkpoints:
            others[row.checkpoints] = others.get(row.checkpoints, 0) + 1
    if changed or others:
        kept = "".join(f"; {_jobs(n)} submitted before: {path}" for path, n in others.items())
        _log.warning("checkpoints of new jobs: %s%s", state.checkpoints, kept)


def _sharing(state: ClusterState) -> list[JobRow]:
    """Jobs that do not name a directory of their own."""
    return [row for row in state.registry.jobs.values() if not row.spec.checkpoint_dir]


def _moved(path: Path, before: Path, now: Path) -> Path:
    """Return a path at the new place of its directory; unchanged if it is not in that directory."""
    return now / path.relative_to(before) if path.is_relative_to(before) else path


def _holds(directory: Path, row: JobRow) -> bool:
    """Return whether the folder of a job's checkpoints is in a directory."""
    return (directory / row.checkpoint_folder).exists()


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _put(state: ClusterState, row: JobRow, directory: str) -> None:
    if row.checkpoints != directory:
        row.checkpoints = directory
        state.registry.dirty_jobs.add(row.id)


def _jobs(count: int) -> str:
    return f"{count} open job{'s' if count != 1 else ''}"
