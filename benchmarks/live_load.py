"""A real server on one core, under load: 1,000 simulated nodes, 8,000 running and 10,000 queued jobs.

    python benchmarks/live_load.py [--agents 1000 --running 8000 --queued 10000 --round 60 --seconds 300]
    python benchmarks/live_load.py --agents 5000 --devices 2 --running 10000 --queued 2000 --round 60

`fairlead serve` (driver, front, and the process that solves) is bound to one core, the nodes and the users to
all others. The driver has no idle moment: users ask it about jobs all the time, besides what rounds and
submissions give it to do. Everything is measured from outside: lease renewals as the nodes see them,
submissions as users do, the rest as `status`, `/metrics` and the kernel tell it. The wait of the load itself
is printed too: what it adds to the times of the nodes is not the server's. Neither is what the disk takes to
make a page durable, for which every submission waits at least twice; TMPDIR=/dev/shm does without a disk.
"""

import argparse
import asyncio
import contextlib
import gc
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil
from command_line import finite, parser_of, run, whole
from disk_probe import DiskProbe
from load_users import UsersPlan, UsersSeen, run_users
from simulated_nodes import TYPES, Node, families, job_spec, rates_of

import fairlead
from fairlead.cluster.agent.heartbeat import until_heartbeat_s
from fairlead.cluster.agent.server_client import (
    AgentClient,
    RegisterAgainError,
    ServerUnreachableError,
)
from fairlead.cluster.protocol.api_models import Sample, StatusView
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    NodeReport,
    Orders,
    Register,
    WatchRequest,
)
from fairlead.cluster.readiness import ReadyPipe

GAP_S = 0.003  # between two reports of a node, as the agent has it
BURST_S = 5.0  # behind the end of a round: nodes get new orders and report what came of them


@dataclass
class Seen:
    """Measurements by the nodes and users; times are monotonic seconds."""

    report_at: list[float] = field(default_factory=list)
    report_s: list[float] = field(default_factory=list)
    failures: int = 0
    registered: int = 0
    lag_at: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)  # of this process's own event loop
    users: UsersSeen = field(default_factory=UsersSeen)
    status: list[tuple[float, float, StatusView]] = field(default_factory=list)  # asked, took
    memory: list[int] = field(default_factory=list)  # bytes of the server


class Agent:
    """One node's talk with the server, like that of ``fairlead agent``."""

    def __init__(self, node: Node, devices: int, address: str, token: str, seen: Seen) -> None:
        self.node = node
        self.devices = devices
        self.client = AgentClient(address, token)
        self.seen = seen
        self.phase = random.random()
        self.heartbeat_at = 0.0
        self.news = asyncio.Event()
        self.urgent = asyncio.Event()
        self.gap_s = 0.0
        self.seq = 0
        self.heartbeat_s = 1.0

    async def run(self) -> None:
        """Until it is cancelled."""
        async with self.client:
            watch: asyncio.Task[None] | None = None
            try:
                while True:
                    await self._register()
                    watch = watch or asyncio.create_task(self._watch())
                    with contextlib.suppress(RegisterAgainError):
                        await self._reports()
            finally:
                if watch is not None:
                    watch.cancel()

    async def _register(self) -> None:
        while True:
            try:
                welcome = await self.client.register(
                    Register(
                        protocol=PROTOCOL,
                        version=fairlead.__version__,
                        node=self.node.name,
                        incarnation=f"i-{self.node.name}",
                        host="127.0.0.1",
                        accelerator=self.node.accelerator,
                        devices=self.devices,
                        simulated_devices=True,
                        holds=self.node.holds(time.monotonic()),
                    )
                )
                self.seen.registered += 1
                self.heartbeat_s = welcome.heartbeat_s
                return
            except ServerUnreachableError:
                self.seen.failures += 1
                await asyncio.sleep(1.0)

    async def _reports(self) -> None:
        while True:
            next_s = self.node.next_s()
            wait_s = self.heartbeat_at - time.monotonic()
            if next_s is not None:
                wait_s = min(wait_s, next_s - time.monotonic())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, 0.0)):
                    await self.news.wait()
            self.news.clear()
            self.urgent.clear()
            await self._report()
            await asyncio.sleep(GAP_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self.gap_s - GAP_S, 0.0)):
                    await self.urgent.wait()

    async def _report(self) -> None:
        self.seq += 1
        holds = self.node.holds(time.monotonic())
        report = NodeReport(
            node=self.node.name,
            incarnation=f"i-{self.node.name}",
            seq=self.seq,
            holds=holds,
            orders_seq=self.node.orders_seq,
        )
        asked = time.monotonic()
        try:
            orders = await self.client.report(report)
        except ServerUnreachableError:
            self.seen.failures += 1
            return
        now = time.monotonic()
        self.heartbeat_s = orders.heartbeat_s or self.heartbeat_s
        self.gap_s = orders.gap_s
        self.heartbeat_at = now + until_heartbeat_s(
            heartbeat_s=self.heartbeat_s, phase=self.phase, now=now
        )
        self.seen.report_at.append(asked)
        self.seen.report_s.append(now - asked)
        self._follow(orders, now, asked)

    async def _watch(self) -> None:
        request = WatchRequest(node=self.node.name, incarnation=f"i-{self.node.name}")
        while True:
            with contextlib.suppress(ServerUnreachableError, RegisterAgainError):
                async for orders in self.client.watch(request):
                    self._follow(orders, time.monotonic(), None)
            await asyncio.sleep(0.5)

    def _follow(self, orders: Orders, now: float, asked: float | None) -> None:
        before = self.node.orders_seq
        self.node.follow(orders, now, asked)
        if self.node.orders_seq > before:
            self.news.set()
            self.urgent.set()


READY_S = 600.0  # for the server to listen: the first start of all compiles


@contextlib.contextmanager
def server(directory: Path, core: int | None, options: list[str]) -> Iterator[tuple[int, str, str]]:
    """A server on one core, None = on any: its process id, URL and address for agents."""
    cores = os.sched_getaffinity(0) if core is None else {core}
    log = directory / "server.log"
    command = [sys.executable, "-m", "fairlead", "serve", "--inside-job"]
    pipe = ReadyPipe()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                *command,
                "--state",
                str(directory / "state"),
                "--port",
                "0",
                "--agent-port",
                "0",
                *pipe.arguments,
                *options,
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            pass_fds=pipe.fds,
        )
    try:
        ready = pipe.wait(process, READY_S)
        if ready is None:
            raise SystemExit(f"the server did not start: {log.read_text()}")
        yield process.pid, ready.url, ready.agents
    finally:
        process.terminate()
        process.wait()
        print(*log.read_text().splitlines()[4:24], sep="\n")


class Load:
    """The whole run."""

    def __init__(
        self, given: argparse.Namespace, pid: int, url: str, address: str, state: Path
    ) -> None:
        self.given = given
        self.disk = DiskProbe(state.parent)
        self.address = address
        self.process = psutil.Process(pid)
        self.seen = Seen()
        self.names = families()
        self.rates = rates_of(self.names)
        self.random = np.random.default_rng(0)
        self.nodes: list[Node] = []
        self.submitted = 0
        self.orders_before: dict[float, float] = {}
        self.token = (state / "admin.token").read_text().strip()
        self.agent_token = (state / "agent.token").read_text().strip()
        self.http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60.0,
            # The server closes connections that are idle for 5 s: one that is older must not be used.
            limits=httpx.Limits(max_connections=32, keepalive_expiry=2.0),
        )  # fmt: skip

    async def run(self) -> None:
        """All phases."""
        given = self.given
        self.make_nodes()
        tasks = [asyncio.create_task(self._lag()), asyncio.create_task(self._look())]
        try:
            await self._come_up(tasks)
            before = await self._orders_followed()
            await self._fill()
            await self._settle(before)
            gc.freeze()  # a search for cycles would hold up the load, and be taken for the server
            gc.disable()
            cpu_s = {name: sum(p.cpu_times()[:2]) for name, p in self.parts().items()}
            began = time.monotonic() + 1.0  # to start the users' process holds up this one
            print(f"measuring for {given.seconds:.0f} s", flush=True)
            self.orders_before = await self._orders_followed()
            with self.disk:
                self.seen.users = await run_users(self._plan(began))
            samples = msgspec.json.decode(
                (await self.http.get("/v1/samples")).content, type=list[Sample]
            )
            metrics = (await self.http.get("/metrics")).text
            self.report(began, time.monotonic(), samples)
            self._report_orders(self.orders_before, orders_followed(metrics))
            self._report_commits(metrics)
            self.report_processes(cpu_s, time.monotonic() - began)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.http.aclose()

    def make_nodes(self) -> None:
        """Of the types in turn."""
        saved = dict[int, int]()
        self.nodes = [
            Node(f"node-{i:04}", TYPES[i % len(TYPES)], self.rates, saved)
            for i in range(self.given.agents)
        ]

    async def _come_up(self, tasks: list["asyncio.Task[None]"]) -> None:
        began = time.monotonic()
        for node in self.nodes:
            agent = Agent(node, self.given.devices, self.address, self.agent_token, self.seen)
            tasks.append(asyncio.create_task(agent.run()))
            await asyncio.sleep(0.005)
        while self.seen.registered < len(self.nodes):
            await asyncio.sleep(0.1)
        print(f"{len(self.nodes)} nodes registered in {time.monotonic() - began:.1f} s", flush=True)

    def _specs(self, n: int) -> bytes:
        long_s = self.random.uniform(0.2, 8.0, n) * 3600.0
        short = self.random.random(n) < self.given.short
        seconds = np.where(short, self.random.uniform(30.0, 600.0, n), long_s)
        specs = [
            job_spec(self.submitted + i, self.names, self.rates, float(s))
            for i, s in enumerate(seconds)
        ]
        self.submitted += n
        return msgspec.json.encode(specs)

    async def _post(self, n: int, tenant: str) -> None:
        body = self._specs(n)
        answer = await self.http.post(
            "/v1/jobs", params={"tenant": tenant}, content=body,
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        answer.raise_for_status()

    async def _fill(self) -> None:
        """All jobs but those that come singly, then wait until they run."""
        began, left = time.monotonic(), self.given.running + self.given.queued
        left -= int(self.given.rate * self.given.submit_s)
        total = left
        while left > 0:
            await self._post(min(left, 1000), f"team-{left // 1000 % 10}")
            left -= 1000
        print(f"{total} jobs submitted in batches in {time.monotonic() - began:.1f} s", flush=True)
        while (
            not self.seen.status
            or self.seen.status[-1][2].jobs.get("running", 0) < 0.98 * self.given.running
        ):
            if time.monotonic() - began > 300.0:
                print("not all devices are in use after 300 s", flush=True)
                break
            await asyncio.sleep(0.5)
        print(f"all devices in use after {time.monotonic() - began:.1f} s", flush=True)

    async def _orders_followed(self) -> dict[float, float]:
        return orders_followed((await self.http.get("/metrics")).text)

    async def _settle(self, before: dict[float, float]) -> None:
        """Until no node follows first orders any more: those of all nodes at once are shown by themselves."""
        followed = await self._orders_followed()
        for _ in range(20):
            await asyncio.sleep(3.0)
            earlier, followed = followed, await self._orders_followed()
            if followed == earlier:
                break
        print("the first orders of all nodes, at once; ", end="")
        self._report_orders(before, followed)

    def _plan(self, began: float) -> UsersPlan:
        """Return the plan of the users from now on. began: monotonic seconds."""
        given = self.given
        return UsersPlan(
            url=str(self.http.base_url),
            token=self.token,
            askers=given.askers,
            jobs=self.submitted,
            rate=given.rate,
            submit_from=began + given.seconds / 2,
            submit_s=given.submit_s,
            ends=began + given.seconds,
        )

    def parts(self) -> dict[str, psutil.Process]:
        """The processes of the server, by what they do."""
        found = {"driver": self.process}
        for child in self.process.children():
            command = " ".join(child.cmdline())
            name = (
                "front"
                if "cluster.front" in command
                else "solver"
                if "solver" in command
                else "other"
            )
            found[f"{name} {child.pid}"] = child
        return found

    async def _lag(self) -> None:
        """How late this process itself is."""
        while True:
            due = time.monotonic() + 0.02
            await asyncio.sleep(0.02)
            self.seen.lag_at.append(due)
            self.seen.lag_s.append(time.monotonic() - due)

    async def _look(self) -> None:
        """Ask for status and metrics every 3 s, as an open page and a Prometheus do; note the memory."""
        while True:
            asked = time.monotonic()
            answer = await self.http.get("/v1/status")
            took = time.monotonic() - asked
            status = msgspec.json.decode(answer.content, type=StatusView)
            self.seen.status.append((asked, took, status))
            await self.http.get("/metrics")
            self.seen.memory.append(await asyncio.to_thread(self._memory))
            await asyncio.sleep(3.0)

    def _memory(self) -> int:
        """Bytes of all processes of the server; what they share counts once."""
        return sum(map(_memory_of, self.parts().values()))

    # --- what came of it -------------------------------------------------------------------------

    def report(self, began: float, ended: float, samples: list[Sample]) -> None:
        """Print the table."""
        seen = self.seen
        asked, took, status = min(seen.status, key=lambda s: s[1])
        offset = asked + took / 2 - status.now_s  # of the cluster's clock to this one
        ends = [s.time_s + offset for s in samples if began < s.time_s + offset < ended - BURST_S]
        at, took_s = np.array(seen.report_at), np.array(seen.report_s) * 1e3
        inside = (at >= began) & (at < ended)
        burst = inside & _within(at, ends, BURST_S)
        users = seen.users
        single = _within(at, [users.submit_at[0]], users.submit_at[-1] - users.submit_at[0])
        seconds = ended - began
        print(
            f"\n{len(self.nodes)} nodes x {self.given.devices} devices, jobs: {dict(status_of(seen).jobs)}"
        )
        print(f"rounds of {self.given.round:.0f} s, {len(ends)} seen, in {seconds:.0f} s\n")
        _row("lease renewals: all", took_s[inside], "ms", f"{inside.sum() / seconds:.0f}/s")
        _row(f"  within {BURST_S:.0f} s of a new round", took_s[burst], "ms")
        _row("  else", took_s[inside & ~burst], "ms")
        _row("  beside single submissions", took_s[inside & single], "ms")
        lagged = np.array(seen.lag_at) >= began
        lag_at, lag_s = np.array(seen.lag_at)[lagged], np.array(seen.lag_s)[lagged] * 1e3
        _row("the load's own lag", lag_s, "ms")
        _row(
            "  within that of a new round",
            lag_s[_within(lag_at, ends, BURST_S)],
            "ms",
        )
        gaps = np.array([node.longest_gap_s for node in self.nodes])
        _row("longest gap without renewal", gaps, "s", f"{seen.failures} calls failed")
        _row("decision of a round", decisions(seen, began), "s")
        solves = {s.solve_s for a, _, s in seen.status if a > began and s.solve_s is not None}
        _row("solve", np.array(sorted(solves)), "s")
        _row("status", np.array([t for a, t, _ in seen.status if a > began]) * 1e3, "ms")
        done_s = users.submit_at[-1] + users.submit_s[-1] - users.submit_at[0]
        rate = f"{len(users.submit_s) / done_s:.0f}/s"
        _row("single submissions, durable", np.array(users.submit_s) * 1e3, "ms", rate)
        synced = np.array(self.disk.at) >= began
        _row(
            "  a page written to that disk, synced", np.array(self.disk.took_s)[synced] * 1e3, "ms"
        )
        _row("memory of the server", np.array(seen.memory) / 1e6, "MB")
        _row("questions about jobs", np.array(users.asked_s), "s", f"{users.failures} failed")

    def _report_commits(self, metrics: str) -> None:
        for line in metrics.splitlines():
            if line.startswith(("fairlead_commit_seconds_sum", "fairlead_commit_seconds_count")):
                print(line)

    def report_processes(self, before: dict[str, float], seconds: float) -> None:
        """Print how busy each process of the server was."""
        for name, process in self.parts().items():
            busy_s = sum(process.cpu_times()[:2]) - before.get(name, 0.0)
            mb = _memory_of(process) / 1e6
            print(f"{name}: {busy_s / seconds:.0%} of its core, {mb:.0f} MB")
        print("load average: {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()))

    def _report_orders(self, before: dict[float, float], after: dict[float, float]) -> None:
        """Print how soon behind the ends of rounds nodes followed what was ordered then."""
        counts = {bound: n - before.get(bound, 0.0) for bound, n in after.items()}
        in_all = counts.get(math.inf, 0.0)
        if not in_all:
            print("end of round -> orders followed: none seen")
            return
        last_s = next(bound for bound, n in counts.items() if n == in_all)
        parts = [f"{counts[s] / in_all:.1%} in {s:g} s" for s in (0.5, 1.0, 2.0, 5.0, 10.0)]
        print(
            f"end of round -> orders followed: {', '.join(parts)}, all in {last_s:g} s; n {in_all:.0f}"
        )


def orders_followed(metrics: str) -> dict[float, float]:
    """Seconds -> how many orders of rounds nodes followed within them, ascending."""
    found = re.findall(r'fairlead_round_orders_seconds_bucket{le="(.*?)"} (.*)', metrics)
    return {float(bound): float(n) for bound, n in found}


def status_of(seen: Seen) -> StatusView:
    return seen.status[-1][2]


def decisions(seen: Seen, began: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Seconds, one for each round."""
    by_round = {s.round: s.decide_s for a, _, s in seen.status if a > began and s.decide_s}
    return np.array(list(by_round.values()))


def _memory_of(process: psutil.Process) -> int:
    """Bytes, its part of what it shares with others; 0 where it has just ended."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def _within(at: "np.ndarray", begins: list[float], seconds: float) -> "np.ndarray":
    found = np.zeros(len(at), bool)
    for begin in begins:
        found |= (at >= begin) & (at < begin + seconds)
    return found


def _row(name: str, values: "np.ndarray", unit: str, more: str = "") -> None:
    if not len(values):
        print(f"{name:38} none seen")
        return
    p50, p99 = np.percentile(values, [50, 99])
    numbers = f"p50 {p50:9.3f}  p99 {p99:9.3f}  max {values.max():9.3f} {unit:3}"
    print(f"{name:38} {numbers} n {len(values):7} {more}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--agents", type=whole(), default=1000)
    parser.add_argument("--running", type=whole(0), default=8000)
    parser.add_argument("--queued", type=whole(0), default=10_000)
    parser.add_argument("--round", type=finite(above=True), default=60.0, help="seconds")
    parser.add_argument(
        "--seconds", type=finite(above=True), default=240.0, help="of the measurement"
    )
    parser.add_argument("--rate", type=finite(), default=100.0, help="single submissions a second")
    parser.add_argument("--submit-s", type=finite(), default=30.0, help="for so long")
    parser.add_argument(
        "--short", type=finite(), default=0.02, help="part of jobs of 30 s to 10 min"
    )
    parser.add_argument("--lease", type=finite(above=True), default=30.0, help="seconds")
    parser.add_argument("--heartbeat", type=finite(above=True), default=2.0, help="seconds")
    parser.add_argument("--policy", default="", help="see `fairlead policies`")
    parser.add_argument("--devices", type=whole(), default=8, help="of a node")
    parser.add_argument(
        "--askers", type=whole(0), default=2, help="users who ask about jobs all the time"
    )
    parser.add_argument("--core", type=whole(0), default=0, help="the server's")
    parser.add_argument(
        "--shared", action="store_true", help="all cores, for the server and the load"
    )
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if given.shared:
        given.core = None
    else:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {given.core})
    options = ["--round", str(given.round), "--lease", str(given.lease)]
    options += ["--heartbeat", str(given.heartbeat)]
    options += ["--policy", given.policy] if given.policy else []
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-load-") as name,
        server(Path(name), given.core, options) as (pid, url, address),
    ):
        where = "all cores, as the load" if given.core is None else f"core {given.core}"
        print(f"server: process {pid} on {where}", flush=True)
        load = Load(given, pid, url, address, Path(name) / "state")
        asyncio.run(load.run())


if __name__ == "__main__":
    run(main)
