"""``python -m fairlead.cluster.chaos.entry CONTROL ARGUMENTS``: the command, with a wall clock that can
be set and,
in an agent, messages that come twice, late and in another order.

CONTROL is a folder. In it ``clock`` holds the seconds by which the wall clock is off; as long as
``unruly-NODE`` is there, messages of that node are doubled and delayed.
"""

import asyncio
import contextlib
import os
import random
import runpy
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace

MAX_DELAY_S = 1.5  # by which a doubled report is late


def shift_clock(control: Path) -> None:
    """From now on ``time.time`` is off by what the control file says."""
    true, monotonic = time.time, time.monotonic
    offset_s, looked_s = 0.0, -1.0

    def shifted() -> float:
        nonlocal offset_s, looked_s
        if monotonic() - looked_s > 0.05:
            looked_s = monotonic()
            with contextlib.suppress(OSError, ValueError):
                offset_s = float((control / "clock").read_text())
        return true() + offset_s

    time.time = shifted


def spare_grpc() -> None:
    """gRPC gives absolute times to its core, which reads the kernel's clock: to set one of two clocks that
    are one in truth would end every call at once."""
    from fairlead.cluster.protocol.quiet_grpc import grpc

    true = SimpleNamespace(**vars(time))
    for module in (sys.modules["grpc.aio._utils"], sys.modules["grpc._cython.cygrpc"]):
        assert vars(module)["time"] is time, grpc.__version__
        vars(module)["time"] = true


def repeat_messages(control: Path, node: str) -> None:
    """Reports of the agent that is about to start are sent again, later ones first, and orders are pushed
    to it twice and out of order, as long as the control file is there."""
    from fairlead.cluster.agent import agent
    from fairlead.cluster.agent.server_client import AgentClient
    from fairlead.cluster.protocol.messages import (
        NodeReport,
        Orders,
        Register,
        WatchRequest,
        Welcome,
    )
    from fairlead.errors import FairleadError

    mark = control / f"unruly-{node}"
    late: set[asyncio.Task[None]] = set()

    class RepeatingClient(AgentClient):
        """Says things more than once."""

        async def report(self, message: NodeReport) -> Orders:
            if mark.exists():
                self._again(message)
                await asyncio.sleep(random.uniform(0.0, 0.2))
            return await super().report(message)

        async def register(self, message: Register) -> Welcome:
            welcome = await super().register(message)
            return await super().register(message) if mark.exists() else welcome

        async def watch(self, message: WatchRequest) -> AsyncGenerator[Orders, None]:
            before: Orders | None = None
            async for orders in super().watch(message):
                yield orders
                if mark.exists() and before is not None:
                    yield before
                    yield orders
                before = orders

        def _again(self, message: NodeReport) -> None:
            task = asyncio.ensure_future(self._later(message))
            late.add(task)
            task.add_done_callback(late.discard)

        async def _later(self, message: NodeReport) -> None:
            for _ in range(random.randint(1, 3)):
                await asyncio.sleep(random.uniform(0.0, MAX_DELAY_S))
                with contextlib.suppress(FairleadError):
                    await super().report(message)

    vars(agent)["AgentClient"] = RepeatingClient


def _end_with(parent: int) -> None:
    """Nothing is left of a harness that is killed itself."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """See the module."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    control, arguments = Path(sys.argv[1]), sys.argv[2:]
    spare_grpc()
    shift_clock(control)
    if arguments[0] == "agent":
        repeat_messages(control, arguments[arguments.index("--node") + 1])
    if arguments[0] == "serve":
        from fairlead.cluster.server import after_restore
        from fairlead.cluster.server import front_supervisor as supervisor

        vars(after_restore)["MIN_GRACE_S"] = 3.0  # as all jobs here have it
        vars(supervisor)["FRONT"] = ("fairlead.cluster.chaos.entry", sys.argv[1], *supervisor.FRONT)
    if arguments[0] == "fairlead.cluster.front":  # the server's, by the same clock as the server
        sys.argv = arguments
        runpy.run_module("fairlead.cluster.front", run_name="__main__")
        return
    sys.argv = ["fairlead", *arguments]
    runpy.run_module("fairlead", run_name="__main__")


if __name__ == "__main__":
    main()
