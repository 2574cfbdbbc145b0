"""Ranks of one job, a process each, as if each were on a node of its own."""

import faulthandler
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

from tests.free_port import free_port

RANKS_S = 300.0  # that they may take, together
PORT_TAKEN = 98  # exit code of a rank whose port another process has


def run_ranks(
    ranks: int, target: Callable[..., None], *arguments: Any, prepared: tuple[str, ...] = ("torch",)
) -> list[int]:
    """The exit codes of ``target(rank, *arguments)``, with the environment of ``torchrun``.

    They are forked from a process that has imported the modules ``prepared`` and has no threads. A fork
    of this process could wait for ever: for a lock that a thread of another test held at that moment."""
    codes = _run(ranks, target, arguments, prepared)
    if PORT_TAKEN in codes:  # by another test, since it was found free
        codes = _run(ranks, target, arguments, prepared)
    return codes


def _run(
    ranks: int, target: Callable[..., None], arguments: tuple[Any, ...], prepared: tuple[str, ...]
) -> list[int]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(prepared))
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        context.Process(
            target=_rank, args=(place | {"RANK": str(rank)}, target, arguments), daemon=True
        )
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + RANKS_S
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        if process.exitcode != 0:
            for other in processes:
                other.kill()
    for process in processes:
        process.join()
    return [int(process.exitcode or 0) for process in processes]


def _rank(place: dict[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    faulthandler.dump_traceback_later(RANKS_S - 10)  # where it stands, if it does
    os.environ.update(place, LOCAL_RANK="0")
    try:
        target(int(place["RANK"]), *arguments)
    except RuntimeError as problem:
        if "address already in use" not in str(problem).lower():
            raise
        os._exit(PORT_TAKEN)
    faulthandler.cancel_dump_traceback_later()
