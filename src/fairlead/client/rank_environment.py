"""The environment of a rank: which job, which rank, where to save, whom to ask."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from fairlead.errors import ConfigError

EXIT_STORAGE = 73  # the storage of its checkpoints is out of order: see ``fairlead.client.storage``
EXIT_IO = 74  # the state could not be saved: work since the last checkpoint is lost
EXIT_MAY_NOT_RUN = 75  # refused, or another process holds the job's checkpoints
EXIT_RANK_SYNC = 76  # another rank is gone


@dataclass(frozen=True)
class RankEnvironment:
    """Identity of this rank within its job. The defaults are those of a script that is run by hand."""

    socket: str = ""  # of the agent, "" = not under Fairlead
    job: int = 0
    attempt: int = 0
    token: str = ""
    sync_token: str = ""  # shared by the ranks of all nodes; "" = the token, which is a node's own
    checkpoint_dir: str = ""
    total_steps: int = 0  # 0 = the script knows
    batch: int = 0  # 0 = the script knows
    accept_loss: bool = False  # the owner has this start begin with whatever checkpoints are there
    rank_sync: tuple[str, int] | None = None  # host and port where rank 0 listens for the others
    rank: int = 0
    world_size: int = 1


def read_rank_environment(environ: Mapping[str, str]) -> RankEnvironment:
    """The variables of ``fairlead.client.messages``. Raises ConfigError with the variable and its value."""
    world_size = _whole(environ, "WORLD_SIZE", 1, least=1)
    rank = _whole(environ, "RANK", 0)
    if rank >= world_size:
        raise ConfigError(f"RANK: expected less than WORLD_SIZE ({world_size}), got {rank}")
    return RankEnvironment(
        socket=environ.get("FAIRLEAD_SOCKET", ""),
        job=_whole(environ, "FAIRLEAD_JOB", 0),
        attempt=_whole(environ, "FAIRLEAD_ATTEMPT", 0),
        token=environ.get("FAIRLEAD_TOKEN", ""),
        sync_token=environ.get("FAIRLEAD_RANK_SYNC_TOKEN", ""),
        checkpoint_dir=environ.get("FAIRLEAD_CHECKPOINT_DIR", ""),
        total_steps=_whole(environ, "FAIRLEAD_TOTAL_STEPS", 0),
        batch=_whole(environ, "FAIRLEAD_BATCH", 0),
        accept_loss=_whole(environ, "FAIRLEAD_ACCEPT_LOSS", 0) > 0,
        rank_sync=_rank_sync(environ) if world_size > 1 else None,
        rank=rank,
        world_size=world_size,
    )


def _rank_sync(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return the address on which rank 0 listens. Under another launcher (torchrun) the port is the one after
    that of its rendezvous."""
    if not environ.get("FAIRLEAD_RANK_SYNC"):
        port = _whole(environ, "MASTER_PORT", 29500, least=1)
        return environ.get("MASTER_ADDR", "127.0.0.1"), port + 1
    text = environ["FAIRLEAD_RANK_SYNC"]
    host, found, port_text = text.rpartition(":")
    if not found or not host or not port_text.isdecimal() or not 0 < int(port_text) < 65536:
        raise ConfigError(f"FAIRLEAD_RANK_SYNC: expected host:port, got {text!r}")
    return host.strip("[]"), int(port_text)


def _whole(environ: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{name}: expected a whole number >= {least}, got {text!r}")
    return int(text)


def print_to_log(sentence: str) -> None:
    """A word to whoever reads the job's log."""
    print(f"fairlead: {sentence}", file=sys.stderr, flush=True)


def leave(code: int, sentence: str) -> NoReturn:
    """End the process with a word in the job's log."""
    print_to_log(sentence)
    raise SystemExit(code)
