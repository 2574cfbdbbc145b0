"""Nodes that only say that they run jobs: what the benchmarks of the live cluster drive a server with.

Jobs start, train at the rate of the throughput table and stop as those of a real node do, but there are no
processes: a thousand nodes fit into one.
"""

from dataclasses import dataclass, field

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    Assignment,
    AttemptStatus,
    Orders,
)
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.throughput_tables import read_throughputs

TYPES = ("v100", "p100", "k80")  # of the nodes, in turn; all in the builtin table
START_S, STOP_S = 0.3, 0.1  # to start and load a job; to save and stop it
SAVE_S = 0.05


def families() -> list[str]:
    """Families that run on one device of each of the types."""
    table = read_throughputs("builtin")
    return [
        one.name
        for one in table.job_types
        if one.scale_factor == 1 and all(_rate(table, one.name, t) for t in TYPES)
    ]


def _rate(table: Throughputs, family: str, accelerator: str) -> float:
    row = table.row(JobType.parse(family))
    rates = () if row is None else zip(table.slots, table.rate[row].tolist(), strict=True)
    return max((r for s, r in rates if s.accelerator == accelerator), default=0.0)


def rates_of(names: list[str]) -> dict[str, dict[str, float]]:
    """Family -> accelerator type -> steps/s."""
    table = read_throughputs("builtin")
    return {name: {t: _rate(table, name, t) for t in TYPES} for name in names}


def job_spec(
    number: int, names: list[str], rates: dict[str, dict[str, float]], s: float
) -> JobSpec:
    """A job of one device that would take so many seconds on a v100."""
    family = names[number % len(names)]
    return JobSpec(
        command=("python", "train.py", "--seed", str(number)),
        family=family,
        name=f"job-{number}",
        total_steps=max(int(s * rates[family]["v100"]), 1),
        env={"FAMILY": family},
        cwd="/home/user/project",
    )


@dataclass(slots=True)
class Start:
    """One start of a job on a node. Times are those of the node's clock, in seconds."""

    order: Assignment
    rate: float  # steps/s
    trains_s: float  # training begins
    from_step: int = 0
    ends_s: float | None = None  # all is saved, and the last rank gone
    step: int = 0
    state: str = "starting"

    def advance(self, now: float) -> None:
        """To what it is at this time."""
        if self.state == "ended":
            return
        until = now if self.ends_s is None else min(now, self.ends_s)
        if until >= self.trains_s:
            self.step = self.from_step + int((until - self.trains_s) * self.rate)
            self.step = min(self.step, self.order.total_steps)
            self.state = "running" if self.ends_s is None else "stopping"
        if self.step >= self.order.total_steps or (self.ends_s is not None and now >= self.ends_s):
            self.state = "ended"

    def statuses(self, now: float) -> AttemptStatus:
        """As the node reports it."""
        trained = self.step > self.from_step or self.state == "running"
        over = self.state == "ended"
        return AttemptStatus(
            job=self.order.job,
            attempt=self.order.attempt,
            order_id=self.order.order_id,
            state=self.state,  # type: ignore[arg-type]
            step=self.step if trained else -1,
            loaded_step=self.from_step if trained else -1,
            saved_step=self.step if over else self.from_step,
            exit_code=0 if over else None,
            completed=over and self.step >= self.order.total_steps,
            wait_s=0.0,
            start_s=START_S if trained else -1.0,
            load_s=0.0 if trained else -1.0,
            ran_s=max(now - self.trains_s, 0.0) if trained else 0.0,
            save_s=SAVE_S if over else -1.0,
            stop_s=STOP_S if over else -1.0,
        )


@dataclass(slots=True)
class Node:
    """A node. ``saved`` is shared by all nodes, as a file system would be: job -> newest step there."""

    name: str
    accelerator: str
    rates: dict[str, dict[str, float]]
    saved: dict[int, int]
    starts: dict[tuple[int, int], Start] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)  # job -> its newest start here
    orders_seq: int = -1
    lease_s: dict[int, float] = field(default_factory=dict)  # job -> its lease was renewed at
    longest_gap_s: float = 0.0  # between two renewals of one lease

    def follow(self, orders: Orders, now: float, asked: float | None = None) -> list[float]:
        """Do as ordered. asked: when the report was sent that this answers. Returns the times at which
        something will have changed here."""
        for job in orders.leases if asked is not None else ():
            assert asked is not None
            self.longest_gap_s = max(self.longest_gap_s, asked - self.lease_s.get(job, asked))
            self.lease_s[job] = asked
        if orders.seq <= self.orders_seq:
            return []
        self.orders_seq = orders.seq
        for key in orders.forget:
            self.starts.pop(key, None)
        wanted = {(order.job, order.attempt): order for order in orders.desired}
        self.lease_s = {
            job: at for job, at in self.lease_s.items() if any(job == j for j, _ in wanted)
        }
        times = [self._stop(s, now) for key, s in self.starts.items() if key not in wanted]
        for key, order in wanted.items():
            if key[1] > self.newest.get(order.job, 0):
                times.append(self._start(order, now))
        return [time for time in times if time > now]

    def _start(self, order: Assignment, now: float) -> float:
        rate = self.rates[order.env["FAMILY"]][self.accelerator]
        start = Start(order, rate, now + START_S, self.saved.get(order.job, 0))
        start.step = start.from_step
        self.starts[order.job, order.attempt] = start
        self.newest[order.job] = order.attempt
        return start.trains_s

    def _stop(self, start: Start, now: float) -> float:
        if start.ends_s is None and start.state != "ended":
            start.ends_s = now + STOP_S
        return start.ends_s or now

    def next_s(self) -> float | None:
        """When something changes here next by itself."""
        times = [
            s.ends_s or s.trains_s + (s.order.total_steps - s.from_step) / s.rate
            if s.state == "running" or s.ends_s is not None
            else s.trains_s
            for s in self.starts.values()
            if s.state != "ended"
        ]
        return min(times, default=None)

    def holds(self, now: float) -> tuple[AttemptStatus, ...]:
        """Return the attempts' statuses for the next report, and save the steps of those that have ended."""
        for (job, _), start in self.starts.items():
            start.advance(now)
            if start.state == "ended":
                self.saved[job] = max(self.saved.get(job, 0), start.step)
        return tuple(start.statuses(now) for start in self.starts.values())
