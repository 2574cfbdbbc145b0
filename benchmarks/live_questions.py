"""How long people wait for answers of a real server with a long queue: `explain`, and what-if.

    python benchmarks/live_questions.py [--agents 100 --running 800 --queued 10000 --round 5]

The server and its nodes are those of ``live_load.py``, without a core of its own for the server. Two people
ask one question after another, one of them for the story of any job, the other what would be with other
nodes. Printed are the times that answers took, what kind of forecast they got, the CPU time that the
forecasting processes spent meanwhile, and how busy the machine was. Exits with 1 where an `explain` took more
than 1 s or a what-if more than 10 s.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import msgspec
import numpy as np
from command_line import finite, parser_of, run, whole
from live_load import Load, server

from fairlead.cluster.protocol.api_models import (
    Comparison,
    Explanation,
    WhatIf,
)

EXPLAIN_S, WHAT_IF_S = 1.0, 10.0  # that answers may take


class Questions(Load):
    """A full cluster, and people who ask."""

    slowest: tuple[float, float] = (0.0, 0.0)

    async def run(self) -> None:
        """All phases."""
        tasks: list[asyncio.Task[None]] = [asyncio.create_task(self._look())]
        self.make_nodes()
        try:
            await self._come_up(tasks)
            await self._fill()
            end = time.monotonic() + self.given.seconds
            explained, compared = await asyncio.gather(self._explain(end), self._compare(end))
            self.slowest = max(explained), max(compared)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.http.aclose()

    async def _explain(self, end: float) -> list[float]:
        took, kinds, oldest, exact = [], Counter[str](), 0.0, []
        while time.monotonic() < end:
            job = int(self.random.integers(self.submitted))
            asked = time.monotonic()
            answer = await self.http.get(f"/v1/jobs/{job}/explain")
            took.append(time.monotonic() - asked)
            answer.raise_for_status()
            told = msgspec.json.decode(answer.content, type=Explanation)
            kinds[told.forecast_kind or "has ended"] += 1
            oldest = max(oldest, told.forecast_age_s or 0.0)
            exact.append(told.forecast_exact_s or 0.0)
            await asyncio.sleep(0.1)
        _print("explain", took, kinds)
        print(f"  forecasts up to {oldest:.0f} s old; exact for {np.median(exact) / 3600:.2f} h")
        return took

    async def _compare(self, end: float) -> list[float]:
        took, kinds, errors, spent, exact = [], Counter[str](), [], [], []
        body = msgspec.json.encode(WhatIf(add_nodes={"v100": 80}))
        while time.monotonic() < end:
            asked, before_s = time.monotonic(), self._forecasting_s()
            answer = await self.http.post(
                "/v1/what-if", content=body, headers={"Content-Type": "application/json"}
            )
            took.append(time.monotonic() - asked)
            spent.append(self._forecasting_s() - before_s)
            answer.raise_for_status()
            told = msgspec.json.decode(answer.content, type=Comparison)
            exact.append(told.forecast_exact_s or 0.0)
            kinds[told.forecast_kind] += 1
            errors.append(told.forecast_error or 0.0)
            await asyncio.sleep(1.0)
        _print("what-if", took, kinds)
        print(f"  stated error {np.median(errors):.0%}, exact for {np.median(exact) / 3600:.2f} h")
        print(
            f"  CPU time of forecasting processes: median {np.median(spent):.1f}, {max(spent):.1f} s"
        )
        load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"load average {load} on {os.cpu_count()} cores")
        return took

    def _forecasting_s(self) -> float:
        """CPU seconds so far of the server's processes other than driver, front and solver."""
        others = [part for name, part in self.parts().items() if name.startswith("other")]
        return sum(sum(part.cpu_times()[:2]) for part in others)


def _print(name: str, took: list[float], kinds: "Counter[str]") -> None:
    p50, p99 = np.percentile(took, [50, 99])
    message = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    print(f"{name:8} p50 {p50:.2f} p99 {p99:.2f} max {max(took):.2f} s, n {len(took)}: {message}")


def main() -> int:
    """Print the times; exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--agents", type=whole(), default=100)
    parser.add_argument("--devices", type=whole(), default=8, help="of a node")
    parser.add_argument("--running", type=whole(0), default=800)
    parser.add_argument("--queued", type=whole(0), default=10_000)
    parser.add_argument("--round", type=finite(above=True), default=5.0, help="seconds")
    parser.add_argument("--seconds", type=finite(above=True), default=60.0, help="of asking")
    parser.add_argument("--policy", default="", help="see `fairlead policies`")
    given = parser.parse_args()
    given.rate, given.submit_s, given.short = 0.0, 0.0, 0.02
    options = ["--round", str(given.round)]
    options += ["--policy", given.policy] if given.policy else []
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-questions-") as name,
        server(Path(name), None, options) as (pid, url, address),
    ):
        asked = Questions(given, pid, url, address, Path(name) / "state")
        try:
            asyncio.run(asked.run())
        except httpx.HTTPStatusError as problem:
            print(problem.response.text)
            return 1
    explain_s, what_if_s = asked.slowest
    return 0 if explain_s <= EXPLAIN_S and what_if_s <= WHAT_IF_S else 1


if __name__ == "__main__":
    run(main)
