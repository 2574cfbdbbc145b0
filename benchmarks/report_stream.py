"""What a report of a node costs the server: as a call of its own, and in the stream that agents keep open.

    python benchmarks/report_stream.py [--nodes 100 --reports 60]

The server of agents answers every report with empty orders, in a process on one core; the nodes report on
another, each again as soon as it is answered. Both ways are measured in turn, twice. Processor time is that
of the server's process.
"""

import asyncio
import multiprocessing
import os
import statistics
import time
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from typing import Any

import grpc
import msgspec
import psutil
from command_line import parser_of, run, whole

from fairlead.cluster.agent.server_client import AgentClient
from fairlead.cluster.front.transport import AgentServer
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import SERVICE, NodeReport, Orders

TOKEN = "token"


class Handler:
    """Answers reports, and nothing else."""

    def authenticate(self, token: str) -> Caller | None:
        """Return the one caller."""
        return Caller(user="agent", tenant="", role="agent") if token == TOKEN else None

    def needs_own_token(self, node: str) -> bool:
        """Return that none does."""
        del node
        return False

    async def report(self, message: NodeReport) -> Orders:
        """Return no orders."""
        return Orders(seq=message.seq, desired=())

    def __getattr__(self, name: str) -> Any:
        return None


def serve(pipe: Connection, core: int) -> None:
    """Serve on a core until the process is ended; its address goes into the pipe."""
    os.sched_setaffinity(0, {core})

    async def forever() -> None:
        handler: Any = Handler()
        async with AgentServer(handler) as server:
            pipe.send(server.address)
            await asyncio.Event().wait()

    asyncio.run(forever())


async def measure(address: str, server: psutil.Process, given: Any, *, stream: bool) -> str:
    """Return a line of the table."""
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    took_s: list[float] = []
    async with AsyncExitStack() as stack:

        async def node(name: str) -> None:
            message = NodeReport(node=name, incarnation="i", seq=1, holds=())
            if stream:
                client = await stack.enter_async_context(
                    AgentClient(address, TOKEN, timeout_s=60.0)
                )

                async def report() -> None:
                    await client.report(message)
            else:
                options = [("grpc.use_local_subchannel_pool", 1)]
                channel = grpc.aio.insecure_channel(address, options=options)
                call = (await stack.enter_async_context(channel)).unary_unary(
                    f"/{SERVICE}/Report", None, None
                )

                async def report() -> None:
                    await call(msgspec.msgpack.encode(message), metadata=metadata)

            await report()  # connects
            for _ in range(given.reports):
                asked = time.perf_counter()
                await report()
                took_s.append(time.perf_counter() - asked)

        before = sum(server.cpu_times()[:2])
        await asyncio.gather(*(node(f"n{i}") for i in range(given.nodes)))
        cpu_s = sum(server.cpu_times()[:2]) - before
    p50, p99 = (1e3 * statistics.quantiles(took_s, n=100)[at - 1] for at in (50, 99))
    way = "in a stream" if stream else "a call each"
    cost = f"{1e3 * cpu_s / len(took_s):.2f} ms of the server per report"
    return f"{way}: {cost}; answered after p50 {p50:.1f}, p99 {p99:.1f} ms"


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--nodes", type=whole(), default=100)
    parser.add_argument("--reports", type=whole(2), default=60, help="of each node")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    mine, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(other, cores[0]))
    process.start()
    try:
        address = mine.recv()
        os.sched_setaffinity(0, {cores[-1]})
        server = psutil.Process(process.pid)
        for _ in range(2):
            for stream in (False, True):
                print(asyncio.run(measure(address, server, given, stream=stream)), flush=True)
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    run(main)
