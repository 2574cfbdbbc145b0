"""The simulated cluster: it owns the clock, says what happened, and makes commands so."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fairlead.errors import SimulationError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsSubmitted,
    NodeLost,
    NodeRecovered,
    RequirementsChanged,
    RoundEnded,
    Solved,
    Stalled,
)
from fairlead.model.job import Arrival, Job
from fairlead.model.plan import PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.placement.servers import are_scattered
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.round_kernels import (
    RoundEnd,
    RoundForecast,
    RoundStart,
    RoundUnits,
    TrueRates,
    begin,
    finish,
    forecast_of,
)
from fairlead.simulator.shockwave_reference.round_rules import (
    SPARED_S,
    ReleasedEnd,
    ReleasedRules,
    finish_released,
)
from fairlead.simulator.stages import Stages, follow
from fairlead.simulator.true_jobs import Adopted, TrueJobs

_NO_PAIRS: Floats = np.zeros((0, 0, 0))
_Report: TypeAlias = tuple[Floats, Floats, Ints, Floats]  # of ``RoundEnded``


@dataclass(frozen=True, slots=True)
class MeasuredJobs:
    """Measure jobs first .. stop-1 by order of submission; the run ends when all of them have ended."""

    first: int
    stop: int


class SimBackend:
    """A backend of events in place of machines. Jobs whose devices are spread run at the spread rates
    of the table, if it has any.

    ``next()`` gives the next event or None at the end; ``perform(command)`` takes a command.
    At one time, a node's events come first, then arrivals, then the end of the round, which is told after
    the changes of batch size that it brings.
    """

    def __init__(
        self,
        arrivals: Iterable[Arrival],
        cluster: Cluster,
        throughputs: Throughputs,
        solve: Callable[[Snapshot, PlannerState], PlannerAnswer],
        ground_truth: GroundTruth | None = None,
        *,
        whole_steps: bool = False,
        measured_jobs: MeasuredJobs | None = None,
        stop_at_s: float | None = None,
        solve_s: float = 0.0,
        released: bool = False,
        now_s: float = 0.0,
        adopted: Iterable[Adopted] = (),
        early_s: float = np.inf,
    ) -> None:
        """throughputs: the true rates before noise; solve: the planner's heavy part; whole_steps: cut
        steps per round to integers and split them over devices, as Gavel does; solve_s: how long a
        solve takes in simulated time; released: the world of Shockwave's release
        (``fairlead.simulator.shockwave_reference.round_rules``), whose restart costs are those of the
        world by its own rule; now_s:
        when the simulation begins; early_s: a round of this age ends when one of its units has, if jobs
        wait, as on a live cluster; adopted: jobs that the scheduler has by then. Where no command comes
        first, the first event, a submission of no jobs, makes the core decide about them."""
        self.now_s = now_s
        self.ground_truth = ground_truth or GroundTruth()
        self.cluster = cluster
        self.throughputs = throughputs.on(cluster)
        self.solve = solve
        self.whole_steps = whole_steps
        self.measured_jobs = measured_jobs
        self.stop_at_s = stop_at_s
        self.solve_s = solve_s
        self.early_s = early_s
        self.submitted = 0
        self.ended = 0
        self.measured_left = (
            0 if measured_jobs is None else measured_jobs.stop - measured_jobs.first
        )
        self._arrivals: Iterator[Arrival] = iter(arrivals)
        self._next_arrival = next(self._arrivals, None)
        self._node_events: list[tuple[float, int, bool]] = []
        self._clocks: list[np.random.Generator] = []
        self._lost: Bools = np.zeros(len(cluster.device_node), np.bool_)  # (devices,)
        self._problem: Solve | None = None
        self._round: _Round | None = None
        self._report: RoundEnded | None = None  # to be told next
        self._last_end_s = 0.0
        self._stalled = False
        slots = self.throughputs.slots
        self._type: Ints = np.array([cluster.accelerators.index(s.accelerator) for s in slots])
        self._fewest = cluster.fewest_servers(
            max(one.scale_factor for one in throughputs.job_types)
        )
        pair = self.throughputs.colocated_rate
        self._rates = TrueRates(self.throughputs.rate, _NO_PAIRS if pair is None else pair)
        self._jobs = TrueJobs(len(slots))
        self._stages = Stages(self.throughputs)
        self._released = ReleasedRules(self.throughputs) if released else None
        for one in adopted:
            self._add(one.job, one.steps_done)
            self._jobs.adopt(one)
        self._begins = self.submitted > 0

    # --- what happened ---------------------------------------------------------------------------

    def next(self) -> Event | None:
        """The next event; None when there is nothing left to do."""
        if self._problem is not None and self.solve_s <= 0:
            return self._answer()
        if self._report is not None:
            report, self._report = self._report, None
            return report
        if self._begins:
            self._begins = False
            return JobsSubmitted(self.now_s, ())
        if self._finished():
            return None
        if not self._clocks and self.ground_truth.mtbf_s is not None:
            self._start_clocks()
        event = self._earliest()
        if event is not None:
            self.now_s = event.time_s
        return event

    def _finished(self) -> bool:
        if self.measured_jobs is not None:
            return self.measured_left == 0
        return self._next_arrival is None and self.ended == self.submitted

    def _earliest(self) -> Event | None:
        node_s, arrival_s, answer_s, round_s = self._ahead()
        first = min(node_s, arrival_s, answer_s, round_s)
        if self.stop_at_s is not None and first > self.stop_at_s:
            return self._stop(self.stop_at_s)
        if first == np.inf:
            return self._stall()
        if node_s == first:
            return self._node_event()
        if arrival_s == first:
            return self._submit()
        if answer_s == first:
            return self._answer()
        return self._end_round(round_s)

    def _ahead(self) -> tuple[float, float, float, float]:
        """When the next node fails or is back, jobs come, a solve is done, the round ends; inf = never."""
        node_s = self._node_events[0][0] if self._node_events else np.inf
        arrival_s = np.inf if self._next_arrival is None else self._next_arrival.time_s
        answer_s = np.inf if self._problem is None else self._problem.time_s + self.solve_s
        return node_s, arrival_s, answer_s, np.inf if self._round is None else self._round.end_s

    def _stop(self, time_s: float) -> Event | None:
        """What is running is cut short at the end of the time, so that it counts up to there."""
        if self._round is None or self._round.command.time_s >= time_s:
            return None
        return self._end_round(time_s)

    def _stall(self) -> Event | None:
        if self._stalled:
            jobs = self._jobs.index.jobs()
            named = ", ".join(str(j) for j in jobs[:5]) + (", ..." if len(jobs) > 5 else "")
            raise SimulationError(
                f"at {self.now_s:.0f} s nothing runs, nothing is to come, and {len(jobs)} jobs wait "
                f"for ever (jobs {named})"
            )
        self._stalled = True
        return Stalled(self.now_s)

    def _submit(self) -> Event:
        first = self._next_arrival
        assert first is not None
        batch = []
        arrival: Arrival | None = first
        while arrival is not None and arrival.time_s == first.time_s:
            batch.append(arrival.job)
            self._add(arrival.job)
            arrival = next(self._arrivals, None)
        self._next_arrival = arrival
        self._stalled = False
        return JobsSubmitted(first.time_s, tuple(batch))

    def _add(self, job: Job, steps_done: float = 0.0) -> None:
        row = self.throughputs.row(job.job_type)
        if row is None:
            raise SimulationError(f"job {job.id}: no rate for {job.job_type}")
        bias = self.ground_truth.bias(job, len(self.cluster.accelerators))[self._type]
        self._jobs.add(job, table_row=row, truth=self.ground_truth, bias=bias)
        self._stages.add(job, self._released is None, steps_done)
        if self._released is not None:
            self._released.add(job)
        self.submitted += 1

    def _answer(self) -> Solved:
        assert self._problem is not None
        asked = self._problem
        self._problem = None
        answer = self.solve(asked.snapshot, asked.state)
        return Solved.of(asked.time_s + self.solve_s, answer)

    # --- rounds ----------------------------------------------------------------------------------

    def perform(self, command: Command) -> None:
        """Make a command so."""
        self._begins = False
        match command:
            case StartRound():
                self._start_round(command)
            case Solve():
                self._problem = command
            case EndRound():
                assert self._round is not None
                self._round.end_s = command.time_s
            case EndJobs():
                self._end_jobs(command)

    def _end_jobs(self, command: EndJobs) -> None:
        self.ended += len(command.jobs)
        for job in command.jobs.tolist():
            index = self._jobs.index.pop(job)
            if (
                self.measured_jobs is not None
                and self.measured_jobs.first <= index < self.measured_jobs.stop
            ):
                self.measured_left -= 1

    def _start_round(self, command: StartRound) -> None:
        if not len(command.job_groups):
            self._round = None
            return
        self._stalled = False
        jobs = self._jobs
        index = jobs.index.find(command.job_groups)
        noise = np.ones(len(index))
        if self.ground_truth.rate_noise > 0:
            noise = self.ground_truth.noise(command.round, len(index))
        units = RoundUnits(
            job=index,
            slot=self._columns(command),
            kept=command.kept,
            noise=noise,
            first=command.first,
            devices=command.devices,
        )
        start = RoundStart(
            time_s=command.time_s,
            length_s=command.length_s,
            whole_steps=self.whole_steps,
            startup_owed=self._released is None,
        )
        forecast = forecast_of(units)
        end_s = begin(units, jobs.arrays, self._rates, self._stages.table, start, forecast)
        self._round = _Round(command, units, forecast, end_s)
        if self.early_s < np.inf and command.active > int((command.job_groups >= 0).sum()):
            self._end_early(self._round)

    def _end_early(self, current: "_Round") -> None:
        """Jobs wait: the round ends when the first of its units has, but not before its age for that."""
        command = current.command
        finish_s = current.forecast.finish_s
        over = finish_s[finish_s < command.time_s + command.length_s - 1e-9]
        if len(over):
            first_s = max(float(over.min()), command.time_s + self.early_s)
            current.end_s = min(current.end_s, first_s)

    def _columns(self, command: StartRound) -> Ints:
        """(units,) columns of the table: what the devices are, whatever the scheduler takes them for."""
        if len(self._type) == len(self.cluster.accelerators):
            return command.slot
        first, devices, cluster = command.first, command.devices, self.cluster
        kind = cluster.device_type[devices[first[:-1]]]
        column = np.searchsorted(self._type, kind)
        spread = are_scattered(
            first, devices, cluster.device_type, cluster.device_node, self._fewest
        )
        other = self.throughputs.sibling[column]
        return np.where(spread & (other >= 0), other, column)

    def _end_round(self, time_s: float) -> Event:
        now = self._round
        assert now is not None
        self._round = None
        if self._released is None:
            report, changed = self._finish(now, time_s)
        else:
            report, changed = self._finish_released(now, time_s, self._released)
        self._last_end_s = time_s
        told = RoundEnded(time_s, now.command.round, *report)
        if changed is None or not changed.any():
            return told
        self._report = told
        jobs, where = self._jobs.arrays, now.units.job[changed]
        batch = self._stages.batch(where) if self._released is None else self._released.of(where)
        ids = now.command.job_groups[changed]
        return RequirementsChanged(
            time_s, ids, batch, jobs.total_steps[where], jobs.steps_done[where]
        )

    def _finish(self, now: "_Round", time_s: float) -> tuple[_Report, Bools | None]:
        jobs, stages = self._jobs.arrays, self._stages
        end = RoundEnd(
            start_s=now.command.time_s, end_s=time_s, whole_steps=self.whole_steps, lost=self._lost
        )
        report = finish(now.units, now.forecast, jobs, self._rates, stages.table, end)
        if not stages.used:
            return report, None
        return report, follow(now.units.job, jobs, stages.table)

    def _finish_released(
        self, now: "_Round", time_s: float, rules: ReleasedRules
    ) -> tuple[_Report, Bools]:
        jobs, command = self._jobs.arrays, now.command
        end = ReleasedEnd(
            round=command.round,
            from_s=self._last_end_s,
            end_s=time_s,
            least_s=command.length_s - SPARED_S,
            lost=self._lost,
        )
        report = finish_released(now.units, now.forecast, jobs, end)
        return report, rules.follow(now.units.job, report[2], jobs)

    # --- nodes -----------------------------------------------------------------------------------

    def _start_clocks(self) -> None:
        assert self.ground_truth.mtbf_s is not None
        for node in range(len(self.cluster.nodes)):
            clock = self.ground_truth.node_clock(node)
            self._clocks.append(clock)
            at = self.now_s + clock.exponential(self.ground_truth.mtbf_s)
            heapq.heappush(self._node_events, (at, node, False))

    def _node_event(self) -> Event:
        time_s, node, works = heapq.heappop(self._node_events)
        assert self.ground_truth.mtbf_s is not None
        mean = self.ground_truth.mtbf_s if works else self.ground_truth.mttr_s
        later = time_s + self._clocks[node].exponential(mean)
        heapq.heappush(self._node_events, (later, node, not works))
        self._lost[self.cluster.device_node == node] = not works
        name = self.cluster.nodes[node].name
        return NodeRecovered(time_s, name) if works else NodeLost(time_s, name)


@dataclass(slots=True)
class _Round:
    """The round in force."""

    command: StartRound
    units: RoundUnits
    forecast: RoundForecast
    end_s: float
