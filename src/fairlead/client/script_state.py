"""The state of a script: its own functions that load and save it, and where its loop is in its data.

In a checkpoint every rank that saves has a part of its own, and every other rank that has a loader with a
state a file for that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fairlead.client import crash
from fairlead.client.checkpoint import Checkpoint, Part, sync_parts
from fairlead.client.rank_environment import RankEnvironment
from fairlead.client.rank_sync import Saved
from fairlead.client.save_problem import save_problem
from fairlead.client.storage import own_access, scripts_access
from fairlead.errors import CheckpointError

if TYPE_CHECKING:
    from typing import TypeAlias

PathFunction: TypeAlias = Callable[[Path], None]
CANNOT_SAVE = (OSError, RuntimeError)  # the second is what PyTorch raises for a full disk


class Position(NamedTuple):
    """Position of a loop in its data."""

    loader_epoch: int = 0  # passes that are done
    batches: int = 0  # of the present pass that are done
    loader_state: bytes = b""  # of this rank's loader
    world_size: int = 1  # ranks that saved it


class ScriptState:
    """The functions that load and save a script's state, and what it was loaded from.

    directory: for its checkpoints, "" = that of the scheduler, or none; checkpoint_s: between two that
    nobody asks for; sharded: every rank saves a part of its own, else rank 0 saves alone.
    """

    def __init__(
        self,
        *,
        load: PathFunction,
        save: PathFunction,
        directory: str,
        checkpoint_s: float,
        sharded: bool,
    ) -> None:
        self.directory = directory
        self.checkpoint_s = checkpoint_s
        self.sharded = sharded
        self.loaded = Position()  # that of the checkpoint
        self._load, self._save = load, save
        self._checkpoint: Checkpoint | None = None  # the checkpoint of this start

    def read(self, found: Checkpoint, environment: RankEnvironment) -> None:
        """Have the script load a checkpoint. Raises CheckpointError where other ranks have saved it."""
        manifest = found.manifest
        if self.sharded and manifest.world_size != environment.world_size:
            raise CheckpointError(
                f"{found.path} was saved by {manifest.world_size} ranks with save_ranks='all'; "
                f"this job has {environment.world_size}"
            )
        self._checkpoint = found
        directory = found.path.parent
        with own_access(directory, environment):
            loader_state = _loader_state(found, environment.rank)
        self.loaded = Position(
            manifest.loader_epoch, manifest.position, loader_state, manifest.world_size
        )
        with scripts_access(directory, environment), crash.loading(manifest.step):
            self._load(found.path / part_name(environment.rank if self.sharded else 0))

    def read_again(self, environment: RankEnvironment) -> int | None:
        """Have the script load the checkpoint of this start once more. Its step, None: there was none."""
        if self._checkpoint is None:
            return None
        self.read(self._checkpoint, environment)
        return self._checkpoint.manifest.step

    def states_of_ranks(self, environment: RankEnvironment) -> list[bytes]:
        """Return what every rank that saved the checkpoint of this start kept, its loader's state."""
        found = self._checkpoint
        if found is None:
            return []
        with own_access(found.path.parent, environment):
            return [_loader_state(found, rank) for rank in range(found.manifest.world_size)]

    def write_part(self, partial: Path, rank: int) -> Saved:
        """Have the script save its state to a rank's part of a checkpoint, and bring it to the disk."""
        return _saved(partial, partial / part_name(rank), self._save)


def write_loader_state(partial: Path, rank: int, state: bytes) -> Saved:
    """Write the state of a rank's loader to a checkpoint, and bring it to the disk."""

    def write(part: Path) -> None:
        part.write_bytes(state)

    return _saved(partial, partial / _loader_name(rank), write)


def part_name(rank: int) -> str:
    """Return the name of a rank's file or folder in a checkpoint."""
    return f"rank-{rank}"


def _loader_name(rank: int) -> str:
    """Return the name of the file in a checkpoint with the state of a rank's loader."""
    return f"loader-{rank}"


def _loader_state(found: Checkpoint, rank: int) -> bytes:
    """Return the state that a rank's loader saved; empty = none. That of rank 0 is in the manifest."""
    path = found.path / _loader_name(rank)
    if rank == 0:
        return found.manifest.loader_state
    return path.read_bytes() if path.exists() else b""


def _saved(partial: Path, part: Path, write: PathFunction) -> Saved:
    try:
        write(part)
        return Saved(_synced(partial, part))
    except Exception as error:  # safetensors and HDF5 have types of their own for a full disk
        problem = save_problem(error, partial)
        if not problem.of_storage and not isinstance(error, CANNOT_SAVE):
            raise
        return Saved({}, problem.why, problem.place)


def _synced(partial: Path, part: Path) -> dict[str, Part]:
    if not part.exists():
        raise FileNotFoundError(
            f"save(path) left nothing at {part.name} (np.save adds a suffix to names; give it an open file)"
        )
    return sync_parts(partial, part)
