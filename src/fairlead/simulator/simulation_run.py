"""A simulation whose inputs are read and checked, and its execution."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from fairlead.client.version import __version__
from fairlead.errors import ConfigError
from fairlead.estimation.estimating_backend import EstimatingBackend
from fairlead.estimation.registry import make_estimator
from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival, RestartCosts
from fairlead.model.near_names import did_you_mean
from fairlead.model.plan import Planner, PlannerAnswer, PlannerState, Policy, Specified
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.driver import Backend, Observer, drive
from fairlead.scheduler.mechanism.round_length import AUTO, automatic_round_s
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.placement.rule import PlacementRule
from fairlead.scheduler.setup import Setup, build, check_policy, traits_of
from fairlead.simulator.admission import AdmissionRule, AdmittingBackend
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.fluid_backend import FluidBackend
from fairlead.simulator.generate import EndlessArrivals
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.options import SimulationOptions, check_options, settings_of
from fairlead.simulator.progress import ProgressObserver, Watch
from fairlead.simulator.recording.contention import profile_exclusive_s
from fairlead.simulator.recording.expected_rounds import ExpectRounds
from fairlead.simulator.recording.fluid_recorder import FluidRecorder
from fairlead.simulator.recording.metrics import Result, measure, unfinished_note
from fairlead.simulator.recording.recorder import Recorder
from fairlead.simulator.recording.run_tables import RunTables
from fairlead.simulator.recording.running_groups import ChargingRules
from fairlead.simulator.run_log import RunLog
from fairlead.simulator.shockwave_reference.profiles import released_job_exclusive_s
from fairlead.simulator.shockwave_reference.round_rules import LOSS, ReleasedRules
from fairlead.simulator.simulation_jobs import SimulationJobs, as_released, read_jobs
from fairlead.simulator.submissions import MeasuredJobs
from fairlead.simulator.timed_solver import TimedSolver
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs
from fairlead.simulator.traces.trace import Trace, summarise

Solve: TypeAlias = Callable[[Snapshot, PlannerState], PlannerAnswer]

_COLLECT = 50_000  # objects that are made before Python looks for cycles of them


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Python looks for cycles of objects less often: a run makes none, and looking takes 3% of its time."""
    first, *others = before = gc.get_threshold()
    gc.set_threshold(first and max(first, _COLLECT), *others)  # 0: somebody has switched it off
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """The traits of whoever decides shares from outside; see ``fairlead.Environment``."""

    name: str = "agent"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """Never called: the environment's actions are the answers."""
        raise NotImplementedError(f"{self.name}: actions decide (at {snapshot.now_s} s)")


def _check_costs(what: str, costs: RestartCosts, rates: Throughputs, jobs: SimulationJobs) -> None:
    """ConfigError names a family or a job that there is not. Of a stream nobody knows the jobs."""
    for family in costs.by_family:
        if family not in rates.families:
            raise ConfigError(
                f"{what}: {family!r} is not in the throughput table"
                f"{did_you_mean(family, rates.families)}"
            )
    if not costs.by_job or jobs.n is None:
        return
    known = {arrival.job.id for arrival in jobs.arrivals} | {row.job for row in jobs.skipped}
    for job in costs.by_job:
        if job not in known:
            raise ConfigError(f"{what}: there is no job {job} in {jobs.name}")


def _automatic_round_s(truth: GroundTruth, jobs: SimulationJobs) -> float:
    """The shortest round by what a switch costs: the mean over the devices that jobs ask for; of a stream,
    the cost of all families."""
    costs = truth.resume_costs or truth.restart_costs
    known = [] if jobs.n is None else [arrival.job for arrival in jobs.arrivals]
    switches = [(job.scale_factor, costs.of(job)) for job in known]
    return automatic_round_s(switches, costs.default_s)


@dataclass(frozen=True)
class SimulationRun:
    """A simulation with all its inputs read and checked, ready to execute."""

    jobs: SimulationJobs
    cluster: Cluster
    throughputs: Throughputs
    policy: str
    made: Policy | Planner
    profile: MechanismSettings
    options: SimulationOptions
    placement: PlacementRule | None = None  # None: that of the profile

    @staticmethod
    def of(
        trace: Trace | Iterable[Arrival] | str | Path,
        cluster: Cluster | str,
        policy: str | Policy | Planner,
        options: SimulationOptions,
        name: str = "arrivals",
        placement: PlacementRule | None = None,
    ) -> "SimulationRun":
        """Read what is named by path or text, and check it all. name: of arrivals without a file."""
        machines = parse_cluster(cluster) if isinstance(cluster, str) else cluster
        table = options.throughputs
        rates = table if isinstance(table, Throughputs) else read_throughputs(table)
        here = rates.columns(machines.slots)  # says which accelerator type has no rates
        jobs = read_jobs(trace, name, here, machines, options.seed)
        check_options(options, jobs.n)
        ends = options.measured_jobs is not None or options.stop_at_s is not None
        if isinstance(trace, EndlessArrivals) and not ends:
            raise ConfigError("an endless stream of jobs needs measured_jobs, stop_at_s or jobs=N")
        truth = options.ground_truth or GroundTruth()
        _check_costs("restart cost", truth.restart_costs, rates, jobs)
        _check_costs("resume cost", truth.resume_costs or RestartCosts(), rates, jobs)
        _check_costs("assumed cost", options.assumed_costs or RestartCosts(), rates, jobs)
        if options.round_s == AUTO:
            options = replace(options, round_s=_automatic_round_s(truth, jobs))
        profile = settings_of(options)
        table = rates.on(machines, profile.scattered)
        make_estimator(
            options.estimator, table, machines, options.seed
        )  # says what is wrong with it
        if isinstance(policy, str):
            label, made = policy, registry.make(policy, seed=options.seed, profile=profile.name)
        else:
            check_policy(policy, "given")
            label, made = policy.name, policy
        if options.ideal and not isinstance(made, Policy):
            raise ConfigError(
                f"policy {label!r} plans rounds itself and has no shares: there is no ideal without rounds"
            )
        return SimulationRun(
            jobs=jobs,
            cluster=machines,
            throughputs=rates,
            policy=label,
            made=made,
            profile=profile,
            options=options,
            placement=placement,
        )

    @property
    def n_measured(self) -> int | None:
        """Jobs whose end is awaited; None where nobody can tell."""
        window = self.options.measured_jobs
        return self.jobs.n if window is None else window[1] - window[0]

    @property
    def ground_truth(self) -> GroundTruth:
        """Return the ground truth; for Shockwave's release with its loss unless another is named."""
        ground_truth = self.options.ground_truth or GroundTruth()
        if self.profile.shockwave.released_world and ground_truth.restart_costs == RestartCosts():
            return replace(ground_truth, restart_costs=LOSS)
        return ground_truth

    def execute(
        self,
        out: Path | None = None,
        expect_rounds: Path | None = None,
        resume: bool = False,
        stop: Callable[[], bool] = lambda: False,
        watch: Watch | None = None,
        keep_intervals: bool = True,
        observers: Sequence[Observer] = (),
        admission: AdmissionRule | None = None,
        around: Callable[[SimBackend], Backend] | None = None,
    ) -> Result:
        """Run it. With ``out``, journal and tables are written there. The table of placement intervals
        takes most of the memory of a long run; without keep_intervals it stays empty, and the metrics are
        the same.
        observers: more of them, who see all events and commands. admission: which arrivals are let in;
        around: makes the backend that is driven, around the simulated one."""
        began = time.process_time()
        scheduler = build(setup := self.setup(), self.made, self.placement)
        solver = TimedSolver(scheduler.data.planning.planner)
        backend = self._backend(solver)
        admitting = self._admitting(backend, admission)
        driven = admitting or (backend if around is None else around(backend))
        recorder = self._recorder(setup, keep_intervals)
        expect = None if expect_rounds is None else ExpectRounds(expect_rounds, self.cluster)
        log = None if out is None else RunLog(out, setup, resume)
        with _rare_collections(), ExitStack() as stack:
            seeing: list[Observer] = [recorder, *observers]
            if log is not None:
                stack.enter_context(log)
                solver.recorded = log.answers
                seeing.append(log)
            if expect is not None:
                seeing.append(expect)
            if watch is not None:
                seeing.append(ProgressObserver(backend.submissions, watch))
            complete = drive(scheduler, self._with_estimator(driven, setup), seeing, stop)
        recorder.finish()
        if expect is not None and complete:
            expect.finish()
        tables = RunTables.of(recorder)
        metrics = measure(
            recorder, tables.jobs, self.options.measured_jobs, self.profile.gavel.charge_idle_gaps
        )
        if out is not None:
            tables.write(out)
        metrics["cpu_s"] = time.process_time() - began
        metrics |= solver.metrics()
        if admitting is not None:
            metrics["n_refused"] = len(admitting.refused)
        if log is not None:
            metrics["journal_sha256"] = log.sha256
        return Result(
            config=self.config(),
            metrics=metrics,
            **tables._asdict(),
            complete=complete,
            skipped=self._notes(log, complete),
            partial=self._partial(tables.jobs),
        )

    def _admitting(
        self, backend: SimBackend, admission: AdmissionRule | None
    ) -> AdmittingBackend | None:
        if admission is None:
            return None
        if self.options.measured_jobs is not None:
            raise ConfigError("measured_jobs counts arrivals: it does not go with admission")
        return AdmittingBackend(backend, admission, self.cluster)

    def _partial(self, jobs: pl.DataFrame) -> tuple[str, ...]:
        """Return why averages are of fewer jobs than the trace has. jobs: the table of them."""
        unfinished = unfinished_note(jobs, self.options.measured_jobs)
        return (*summarise(self.jobs.skipped), *([] if unfinished is None else [unfinished]))

    def _notes(self, log: RunLog | None, complete: bool) -> tuple[str, ...]:
        """Return notes on the run, for people."""
        notes = (*self.jobs.notes, *summarise(self.jobs.skipped))
        if log is None or complete or log.caught_up:
            return notes
        return (
            *notes,
            "interrupted before it was back where the run had been; the journal is as it was",
        )

    def setup(self) -> Setup:
        """Setup of the scheduler."""
        options, ground_truth = self.options, self.ground_truth
        costs = options.assumed_costs
        return Setup(
            version=__version__,
            cluster=self.cluster,
            # Where the table was read from is no part of what was run: it may be named otherwise later.
            throughputs=replace(
                self.throughputs.on(self.cluster, self.profile.scattered), origin="journal"
            ),
            policy=self.made.spec if isinstance(self.made, Specified) else self.policy,
            settings=self.profile,
            seed=options.seed,
            restart_costs=ground_truth.restart_costs if costs is None else costs,
            resume_costs=ground_truth.resume_costs,
            overlap_solves=options.solve_s > 0,
            traits=None if isinstance(self.made, Planner) else traits_of(self.made),
            placement="" if self.placement is None else self.placement.name,
        )

    def start(self, solve: Solve) -> tuple[Scheduler, SimBackend]:
        """A fresh scheduler, and a backend that has ``solve`` answer; not driven."""
        return build(self.setup(), self.made, self.placement), self._backend(solve)

    def _backend(self, solve: Solve) -> SimBackend:
        options = self.options
        measured = options.measured_jobs
        return (FluidBackend if options.ideal else SimBackend)(
            self._arrivals(),
            self.cluster,
            self.throughputs,
            solve,
            self.ground_truth,
            whole_steps=self.profile.gavel.whole_steps,
            measured_jobs=None if measured is None else MeasuredJobs(*measured),
            stop_at_s=options.stop_at_s,
            solve_s=options.solve_s,
            released=self._released_rules(),
        )

    def _released_rules(self) -> ReleasedRules | None:
        """Return the rules of a round in the world of Shockwave's release; None = as in the default one."""
        if not self.profile.shockwave.released_world:
            return None
        return ReleasedRules(self.throughputs.on(self.cluster))

    def _recorder(self, setup: Setup, keep_intervals: bool) -> Recorder:
        if self.options.ideal:
            return FluidRecorder(self.cluster, self.throughputs, setup.throughputs.slots)
        return Recorder(
            cluster=self.cluster,
            throughputs=self.throughputs,
            charging=ChargingRules(
                idle_gaps=self.profile.gavel.charge_idle_gaps,
                startup=self.profile.shockwave.charge_startup,
            ),
            solves=setup.traits is not None,
            exclusive_time=released_job_exclusive_s
            if self.profile.shockwave.released_world
            else profile_exclusive_s,
            keep_intervals=keep_intervals,
        )

    def _with_estimator(self, backend: Backend, setup: Setup) -> Backend:
        """The backend, with an estimator beside it where there is one."""
        table, seed = setup.throughputs, self.options.seed
        estimator = make_estimator(self.options.estimator, table, self.cluster, seed)
        if estimator is None:
            return backend
        users = self.options.user_estimates
        return EstimatingBackend(
            backend, estimator, table, None if users is None else users.about(table)
        )

    def _arrivals(self) -> Iterable[Arrival]:
        """The jobs, with their users where these say something; in the world of Shockwave's release, with
        the profiles that it gives them."""
        if self.options.user_estimates is not None:
            return map(self.options.user_estimates.signed, self.jobs.arrivals)
        if not self.profile.shockwave.released_world:
            return self.jobs.arrivals
        here = self.throughputs.columns(self.cluster.slots)
        return map(partial(as_released, rates=here), self.jobs.arrivals)

    def config(self) -> dict[str, Any]:
        """Configuration of the run, for people and for ``run.json``."""
        options = self.options
        counts = dict(zip(self.cluster.accelerators, map(int, self.cluster.capacity), strict=True))
        return {
            "version": __version__,
            "trace": self.jobs.name,
            "n_jobs": self.jobs.n,
            "throughputs": self.throughputs.origin,
            "cluster": counts,
            "prices": dict(self.cluster.prices),
            "policy": self.policy,
            "profile": self.profile.name,
            "round_s": None if options.ideal else self.profile.round_s,
            "ideal": options.ideal,
            "preemption_hysteresis": self.profile.preemption_hysteresis,
            "solve_interval_s": self.profile.solve_interval_s,
            "seed": options.seed,
            "window": options.measured_jobs,
            "stop_at_s": options.stop_at_s,
            "solve_s": options.solve_s,
            "estimator": options.estimator,
            "user_estimates": options.user_estimates,
            "world": options.ground_truth,
            **({} if self.placement is None else {"placement": self.placement.name}),
        }
