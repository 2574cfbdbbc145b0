"""A day of a live cluster in minutes: does anything grow?

    python benchmarks/live_day.py [--nodes 50 --rounds 240 --round 360 --arrivals 40]

The server's own engine, backend and store run on a clock that the benchmark turns; the nodes are simulated,
and nothing else is: the solver's process, the journal and the commits to disk are real. Each line of the
table is a tenth of the day: what the process and its files hold then. Jobs come and go, so that the number
of open ones stays about level. What is kept of ended jobs (their rows, for `fairlead jobs`) is meant to grow,
and is shown by itself.
"""

import argparse
import gc
import os
import sqlite3
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from command_line import finite, parser_of, run, whole
from simulated_nodes import TYPES, Node, families, job_spec, rates_of

import fairlead
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    NodeReport,
    Register,
)
from fairlead.cluster.server.clock import Clock
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.service import Service

ADMIN = Caller("admin", "", "admin")
DEVICES = 8
HEARTBEAT_S = 30.0  # of the nodes, in simulated time


class Day:
    """The cluster and its time."""

    def __init__(self, given: argparse.Namespace, directory: Path) -> None:
        self.given = given
        self.directory = directory
        self.now_s = 1000.0
        options = live_options(
            None,
            "",
            "default",
            given.round,
            "builtin",
            0,
            120.0,
            HEARTBEAT_S,
            60.0,
            early_round_end=False,
        )
        options = replace(options, segment_records=given.segment)
        self.service = Service(
            directory,
            options,
            clock=Clock(lambda: "a boot", lambda: self.now_s, lambda: self.now_s),
            monotonic=lambda: self.now_s,
            pace_s=0.0,
        )
        engine = self.service.engine
        self.front = LocalFront(engine.state.fleet)
        self.names = families()
        self.rates = rates_of(self.names)
        self.random = np.random.default_rng(0)
        saved: dict[int, int] = {}
        self.saved = saved
        self.nodes = [
            Node(f"node-{i:03}", TYPES[i % len(TYPES)], self.rates, saved)
            for i in range(given.nodes)
        ]
        self.seq = 0
        self.submitted = 0
        self.process = psutil.Process()

    def run(self) -> None:
        """The whole day."""
        self.service.start()
        try:
            for node in self.nodes:
                self.service.register(_register(node)).result(60.0)
            self._submit(self.given.nodes * DEVICES * 2)
            self._head()
            for tenth in range(10):
                for _ in range(self.given.rounds // 10):
                    self._round()
                self._line(tenth + 1)
        finally:
            self.service.stop()

    def _submit(self, n: int) -> None:
        hours = self.random.uniform(0.2, 2.0, n)
        specs = [
            job_spec(self.submitted + i, self.names, self.rates, 3600.0 * float(h))
            for i, h in enumerate(hours)
        ]
        self.submitted += n
        if specs:
            self.service.submit(ADMIN, specs, tenant=f"team-{self.submitted % 7}")

    def _round(self) -> None:
        """The time of a round, heartbeat by heartbeat."""
        open_jobs = len(self.service.engine.state.registry.jobs)
        if open_jobs < 2 * DEVICES * self.given.nodes:
            self._submit(int(self.random.poisson(self.given.arrivals)))
        until = self.now_s + self.given.round
        while self.now_s < until:
            self.now_s += HEARTBEAT_S
            self._beat()

    def _beat(self) -> None:
        """All nodes report; then the driver deals with that before time goes on."""
        self.seq += 1
        for node in self.nodes:
            report = NodeReport(
                node=node.name,
                incarnation="i",
                seq=self.seq,
                holds=node.holds(self.now_s),
                orders_seq=node.orders_seq,
            )
            node.follow(self.front.report(report), self.now_s, self.now_s)
        self._settle()

    def _settle(self) -> None:
        """Wait for the driver: an empty errand comes back when all before it is committed."""
        engine = self.service.engine
        end = time.monotonic() + 60.0
        while True:
            engine.call(_nothing).result(60.0)
            if not engine.state.solving and not engine.state.fleet.unpublished:
                return
            if time.monotonic() > end:
                raise SystemExit("the driver did not settle within a minute")

    # --- what is held ------------------------------------------------------------------------------

    def _head(self) -> None:
        columns = (
            "round",
            "open",
            "ended",
            "starts",
            "RSS MB",
            "python MB",
            "threads",
            "files",
            "journal rows",
            "segments",
            "journal MB",
            "db MB",
            "wal MB",
            "samples",
            "ended MB",
        )
        print("".join(f"{name:>13}" for name in columns), flush=True)

    def _line(self, tenth: int) -> None:
        gc.collect()
        engine = self.service.engine
        traced = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
        with sqlite3.connect(f"file:{self.directory}/state.db?mode=ro", uri=True) as db:
            one: Callable[[str], Any] = lambda query: db.execute(query).fetchone()[0]  # noqa: E731
            rows, segments = (
                one("SELECT count(*) FROM journal"),
                one("SELECT count(*) FROM segments"),
            )
            journal = one("SELECT coalesce(sum(length(record)), 0) FROM journal")
            ended = one("SELECT coalesce(sum(length(row)), 0) FROM jobs WHERE open = 0")
            ended += one("SELECT coalesce(sum(length(row)), 0) FROM attempts WHERE open = 0")
            starts = one("SELECT count(*) FROM attempts")
        db.close()
        values = (
            f"{0 if engine.state.scheduler is None else engine.state.scheduler.data.round.number}",
            f"{len(engine.state.registry.jobs)}",
            f"{sum(engine.state.ended_counts.values())}",
            f"{starts}",
            f"{self.process.memory_info().rss / 1e6:.1f}",
            f"{traced / 1e6:.2f}",
            f"{threading.active_count()}",
            f"{len(os.listdir('/proc/self/fd'))}",
            f"{rows}",
            f"{segments}",
            f"{journal / 1e6:.1f}",
            f"{_size(self.directory / 'state.db'):.1f}",
            f"{_size(self.directory / 'state.db-wal'):.1f}",
            f"{len(self.service.store.samples())}",
            f"{ended / 1e6:.1f}",
        )
        del tenth
        print("".join(f"{value:>13}" for value in values), flush=True)


def _size(path: Path) -> float:
    return path.stat().st_size / 1e6 if path.exists() else 0.0


def _nothing() -> None:
    return None


def _register(node: Node) -> Register:
    return Register(
        protocol=PROTOCOL,
        version=fairlead.__version__,
        node=node.name,
        incarnation="i",
        host="127.0.0.1",
        accelerator=node.accelerator,
        devices=DEVICES,
        simulated_devices=True,
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nodes", type=whole(), default=50)
    parser.add_argument("--rounds", type=whole(), default=240)
    parser.add_argument("--round", type=finite(above=True), default=360.0, help="seconds")
    parser.add_argument(
        "--arrivals", type=finite(above=True), default=60.0, help="jobs a round, on average"
    )
    parser.add_argument("--segment", type=whole(), default=500, help="records of a journal segment")
    parser.add_argument("--trace", action="store_true", help="trace Python's memory, too (slow)")
    given = parser.parse_args()
    if given.trace:
        tracemalloc.start()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fairlead-day-") as name:
        Day(given, Path(name) / "state").run()
    hours = given.rounds * given.round / 3600
    print(f"{hours:.1f} hours in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    run(main)
