"""Simulate a cluster: the whole of Fairlead in one call."""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any, Protocol

import fairlead
from fairlead.analysis.report.run_folder import (
    begin_record,
    make_folder,
    write_json,
    write_result,
)
from fairlead.errors import CheckError, ConfigError, RunError
from fairlead.estimation.estimating_backend import EstimatingBackend
from fairlead.estimation.estimator import make_estimator
from fairlead.model.batch_size_rules import exclusive_s, released
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, Solved
from fairlead.model.job import Arrival, Job, RestartCosts
from fairlead.model.limits import MAX_JOBS, MAX_NUMBER, MAX_SECONDS, check_seed, is_duration
from fairlead.model.plan import Planner, PlannerAnswer, PlannerState, Policy
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler.driver import (
    Backend,
    Observer,
    drive,
)
from fairlead.scheduler.journal import (
    Journal,
    answers,
    records,
)
from fairlead.scheduler.mechanism.settings import (
    PROFILES,
    MechanismSettings,
    fluid,
)
from fairlead.scheduler.setup import (
    Setup,
    build,
    check_policy,
    traits_of,
)
from fairlead.simulator.backend import MeasuredJobs, SimBackend
from fairlead.simulator.fluid_backend import FluidBackend
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.recording.expected_rounds import ExpectRounds
from fairlead.simulator.recording.fluid_recorder import FluidRecorder
from fairlead.simulator.recording.metrics import Result, measure
from fairlead.simulator.recording.recorder import Recorder
from fairlead.simulator.shockwave_reference.round_rules import LOSS
from fairlead.simulator.traces.atomic_write import write_atomically
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs
from fairlead.simulator.traces.trace import (
    Skipped,
    Trace,
    checked,
    only_usable,
    summarise,
    usable,
)
from fairlead.simulator.user_estimates import UserEstimates


class Watch(Protocol):
    """Told now and then how far a run has come."""

    def __call__(self, done: float, note: str = "") -> None:
        """done: jobs that have ended."""


@dataclass(frozen=True, slots=True)
class Options:
    """Everything about a simulation besides trace, cluster and policy; each has its default."""

    throughputs: Throughputs | str | Path = "builtin"
    profile: str | MechanismSettings = "default"
    round_s: float | None = None  # None: the profile's
    seed: int = 0
    preemption_hysteresis: float | None = None  # None: the profile's
    window: tuple[int, int] | None = None  # measure jobs s .. e-1, and stop when they have ended
    stop_at_s: float | None = None  # stop at this time
    ground_truth: GroundTruth | None = None
    solve_s: float = 0.0  # simulated seconds that a solve takes
    believed_costs: RestartCosts | None = None  # of restarts, by the scheduler; None: the world's
    estimator: str = "oracle"  # of rates; see ``fairlead.estimation.estimator``
    user_estimates: UserEstimates | None = None  # what users say of their jobs' rates
    # no rounds: jobs progress at their shares all the time (fairlead.simulator.fluid_backend)
    ideal: bool = False
    solve_interval_s: float | None = None  # least time between solves; None: the profile's


def simulate(
    trace: Trace | Iterable[Arrival] | str | Path,
    cluster: Cluster | str,
    policy: str | Policy | Planner,
    *,
    out: str | Path | None = None,
    expect_rounds: Path | None = None,
    resume: bool = False,
    stop: Callable[[], bool] = lambda: False,
    watch: Watch | None = None,
    **options: Any,
) -> Result:
    """Run a trace on a cluster under a policy.

    trace: a path (any format that ``fairlead trace describe`` knows), what ``read_trace`` gave, or any
    iterable of arrivals in order of time; one without end needs a window or ``stop_at_s``.
    cluster: a ``Cluster`` or text such as "v100=8,k80=24". policy: a name of ``fairlead policies``, or an
    object with the methods of ``Policy`` or ``Planner``.
    out: a new or empty folder, made where it is missing, for what the command writes: run.json, journal,
    tables, report.html; resume: go on with an interrupted run there. stop: asked between events whether
    to break off. The other keywords are the fields of ``Options``.

    Raises InputError for what cannot be used and CheckError when ``expect_rounds`` (a recorded run, see
    ``report.expect``) does not hold. Returns a ``Result`` with metrics and tables.
    """
    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"simulate(): {name!r} is not an option (there are {', '.join(known)})"
            )
    chosen = Options(**options)
    run = SimulationRun.of(trace, cluster, policy, chosen)
    if out is None:
        return run.execute(None, expect_rounds, resume, stop, watch)
    folder = Path(out) if resume else make_folder(Path(out))
    record = begin_record(folder, run.config(), None)
    try:
        result = run.execute(folder, expect_rounds, resume, stop, watch)
    except Exception as problem:
        write_json(folder / "run.json", record | {"status": "failed", "error": str(problem)})
        raise
    write_result(folder, record, result)
    return result


@dataclass(frozen=True, slots=True)
class RunJobs:
    """The jobs of a run, those left out that cannot run on its cluster."""

    name: str  # of the trace
    arrivals: Iterable[Arrival]
    n: int | None  # how many; None: nobody can tell
    notes: tuple[str, ...]
    skipped: list[Skipped]  # grows while a stream is read


@dataclass(frozen=True)
class SimulationRun:
    """A simulation with all its inputs read and checked, ready to execute."""

    jobs: "RunJobs"
    cluster: Cluster
    throughputs: Throughputs
    policy: str
    made: Policy | Planner
    profile: MechanismSettings
    options: Options

    @staticmethod
    def of(
        trace: Trace | Iterable[Arrival] | str | Path,
        cluster: Cluster | str,
        policy: str | Policy | Planner,
        options: Options,
        name: str = "arrivals",
    ) -> "SimulationRun":
        """Read what is named by path or text, and check it all. name: of arrivals without a file."""
        machines = parse_cluster(cluster) if isinstance(cluster, str) else cluster
        table = options.throughputs
        rates = table if isinstance(table, Throughputs) else read_throughputs(table)
        here = rates.columns(machines.slots)  # says which accelerator type has no rates
        jobs = _jobs(trace, name, here, machines, options.seed)
        _check(options, jobs.n)
        profile = _profile(options)
        for family in (options.ground_truth or GroundTruth()).restart_costs.by_family:
            if family not in rates.families:
                raise ConfigError(f"restart cost: {family!r} is not in the throughput table")
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
        return SimulationRun(jobs, machines, rates, label, made, profile, options)

    @property
    def n_measured(self) -> int | None:
        """Jobs whose end is awaited; None where nobody can tell."""
        window = self.options.window
        return self.jobs.n if window is None else window[1] - window[0]

    @property
    def ground_truth(self) -> GroundTruth:
        """What is true; in the world of Shockwave's release, with its loss unless another is named."""
        ground_truth = self.options.ground_truth or GroundTruth()
        if self.profile.released_world and ground_truth.restart_costs == RestartCosts():
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
    ) -> Result:
        """Run it. With ``out``, journal and tables are written there. The table of placement intervals
        takes most of the memory of a long run; without keep_intervals it stays empty, and the metrics are
        the same.
        observers: more of them, who see all events and commands."""
        options, ground_truth = self.options, self.ground_truth
        setup = Setup(
            fairlead.__version__,
            self.cluster,
            # Where the table was read from is no part of what was run: it may be named otherwise later.
            replace(self.throughputs.on(self.cluster, self.profile.scattered), origin="journal"),
            getattr(self.made, "spec", self.policy),
            self.profile,
            options.seed,
            ground_truth.restart_costs
            if options.believed_costs is None
            else options.believed_costs,
            options.solve_s > 0,
            None if isinstance(self.made, Planner) else traits_of(self.made),
        )
        began = time.process_time()
        scheduler = build(setup, self.made)
        solver = _Solver(scheduler.planner)
        window = None if options.window is None else MeasuredJobs(*options.window)
        backend = (FluidBackend if options.ideal else SimBackend)(
            self._arrivals(),
            self.cluster,
            self.throughputs,
            solver,
            ground_truth,
            whole_steps=self.profile.whole_steps,
            window=window,
            stop_at_s=options.stop_at_s,
            solve_s=options.solve_s,
            released=self.profile.released_world,
        )
        recorder = self._recorder(setup, keep_intervals)
        expect = None if expect_rounds is None else ExpectRounds(expect_rounds, self.cluster)
        with ExitStack() as stack:
            seeing: list[Observer] = [recorder, *observers]
            log = None
            if out is not None:
                log = stack.enter_context(_RunLog(out, setup, resume))
                solver.recorded = log.answers
                seeing.append(log)
            if expect is not None:
                seeing.append(expect)
            if watch is not None:
                seeing.append(_Watcher(backend, watch))
            complete = drive(scheduler, self._told(backend, setup), seeing, stop)
        recorder.finish()
        if expect is not None and complete:
            expect.finish()
        jobs = recorder.job_table()
        rounds, placement_intervals = recorder.round_table(), recorder.interval_table()
        metrics = measure(recorder, jobs, options.window, self.profile.charge_idle_gaps)
        if out is not None:
            for name, table in (
                ("jobs", jobs),
                ("rounds", rounds),
                ("placement_intervals", placement_intervals),
            ):
                with write_atomically(out / f"{name}.parquet") as path:
                    table.write_parquet(path, compression="lz4", statistics=False)
        metrics["cpu_s"] = time.process_time() - began
        metrics["solve_s"] = solver.seconds
        metrics["solve_gap"], metrics["solve_violation"] = solver.gap, solver.violation
        if log is not None:
            metrics["journal_sha256"] = log.sha256
        said = (*self.jobs.notes, *summarise(self.jobs.skipped))
        return Result(self.config(), metrics, jobs, rounds, placement_intervals, complete, said)

    def _recorder(self, setup: Setup, keep_intervals: bool) -> Recorder:
        if self.options.ideal:
            return FluidRecorder(self.cluster, self.throughputs, setup.throughputs.slots)
        return Recorder(
            self.cluster,
            self.throughputs,
            self.profile.charge_idle_gaps,
            setup.traits is not None,
            self.profile.charge_startup,
            self.profile.released_world,
            keep_intervals,
        )

    def _told(self, backend: Backend, setup: Setup) -> Backend:
        """The backend, with an estimator beside it where there is one."""
        table, seed = setup.throughputs, self.options.seed
        estimator = make_estimator(self.options.estimator, table, self.cluster, seed)
        if estimator is None:
            return backend
        user_estimates = self.options.user_estimates
        return EstimatingBackend(
            backend,
            estimator,
            table,
            None if user_estimates is None else user_estimates.about(table),
        )

    def _arrivals(self) -> Iterable[Arrival]:
        """The jobs, with their users where these say something; in the world of Shockwave's release, with
        the profiles that it gives them."""
        if self.options.user_estimates is not None:
            return map(self.options.user_estimates.signed, self.jobs.arrivals)
        if not self.profile.released_world:
            return self.jobs.arrivals
        here = self.throughputs.columns(self.cluster.slots)
        return (replace(one, job=_as_released(one.job, here)) for one in self.jobs.arrivals)

    def config(self) -> dict[str, Any]:
        """What was run, for people and for ``run.json``."""
        options = self.options
        counts = dict(zip(self.cluster.accelerators, map(int, self.cluster.capacity), strict=True))
        return {
            "version": fairlead.__version__,
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
            "window": options.window,
            "stop_at_s": options.stop_at_s,
            "solve_s": options.solve_s,
            "estimator": options.estimator,
            "user_estimates": options.user_estimates,
            "world": options.ground_truth,
        }


def _jobs(
    source: Trace | Iterable[Arrival] | str | Path,
    name: str,
    rates: Throughputs,
    cluster: Cluster,
    seed: int,
) -> RunJobs:
    """Read and check what was given as a trace. rates: for the accelerator types of the cluster."""
    free = [a for a in cluster.accelerators if a not in cluster.prices]
    said = (f"no price for {', '.join(free)}: counted as 0 in the cost",) if free else ()
    if isinstance(source, str | Path):
        trace = read_trace(source, rates, seed=seed)
    elif isinstance(source, list | tuple):
        trace = Trace(name, "arrivals", list(checked(source)))
    elif isinstance(source, Trace):
        trace = source
    else:
        skipped: list[Skipped] = []
        stream = only_usable(checked(source), rates, cluster, skipped)
        return RunJobs(name, stream, None, said, skipped)
    if not trace.arrivals:
        raise ConfigError(f"{trace.name}: there are no jobs")
    trace = usable(trace, rates, cluster)
    if not trace.arrivals:
        raise ConfigError(
            f"{trace.name}: no job of the trace can run on this cluster: {summarise(trace.skipped)[0]}"
        )
    arrivals = trace.arrivals
    return RunJobs(trace.name, arrivals, len(arrivals), (*trace.notes, *said), list(trace.skipped))


def _as_released(job: Job, rates: Throughputs) -> Job:
    """The job with its profile by Shockwave's release, whose running time takes the place of the trace's."""
    adaptation = released(job)
    if adaptation is None:
        return job
    alone_s = exclusive_s(adaptation, job.family, job.scale_factor, rates, released=True).min()
    duration_s = float(int(alone_s)) if alone_s < inf else job.duration_s
    return replace(job, adaptation=adaptation, duration_s=duration_s)


def _named_profile(options: Options) -> MechanismSettings:
    if isinstance(options.profile, MechanismSettings):
        return options.profile
    if options.profile in PROFILES:
        return PROFILES[options.profile]
    names = ", ".join(sorted(PROFILES))
    raise ConfigError(f"profile {options.profile!r} is not known (choose from {names})")


def _profile(options: Options) -> MechanismSettings:
    profile = _named_profile(options)
    if options.round_s is not None:
        profile = replace(profile, round_s=options.round_s)
    if options.solve_interval_s is not None:
        profile = replace(profile, solve_interval_s=options.solve_interval_s)
    if options.ideal:
        return fluid(profile)
    return (
        profile
        if options.preemption_hysteresis is None
        else replace(profile, preemption_hysteresis=options.preemption_hysteresis)
    )


def _check(options: Options, n_jobs: int | None) -> None:
    check_seed(options.seed)
    if options.round_s is not None and not 10 <= options.round_s <= MAX_SECONDS:
        raise ConfigError(
            f"round: must be from 10 to {MAX_SECONDS:g} seconds, got {options.round_s}"
        )
    if options.stop_at_s is not None and not options.stop_at_s > 0:
        raise ConfigError(f"stop-at: must be a number of seconds > 0, got {options.stop_at_s}")
    if not is_duration(options.solve_s):
        raise ConfigError(
            f"solve time: must be from 0 to {MAX_SECONDS:g} seconds, got {options.solve_s}"
        )
    if (
        options.preemption_hysteresis is not None
        and not 0 <= options.preemption_hysteresis <= MAX_NUMBER
    ):
        raise ConfigError(
            f"preemption-hysteresis: must be a number from 0 to {MAX_NUMBER:g}, "
            f"got {options.preemption_hysteresis}"
        )
    interval_s = options.solve_interval_s
    if interval_s is not None and not is_duration(interval_s):
        raise ConfigError(
            f"solve interval: must be from 0 to {MAX_SECONDS:g} seconds, got {interval_s}"
        )
    if options.ideal:
        _check_ideal(options)
    if options.window is None:
        return
    first, stop = options.window
    if stop > MAX_JOBS:
        raise ConfigError(f"window {first}:{stop}: at most {MAX_JOBS} jobs")
    if not 0 <= first < stop:
        raise ConfigError(f"window {first}:{stop}: must be S:E with 0 <= S < E")
    if n_jobs is not None and stop > n_jobs:
        raise ConfigError(f"window {first}:{stop}: only {n_jobs} jobs of the trace can run here")


def _check_ideal(options: Options) -> None:
    """What is about rounds and starts has no meaning without them."""
    ground_truth = options.ground_truth or GroundTruth()
    given = {
        "a length of rounds": options.round_s is not None,
        "preemption_hysteresis": options.preemption_hysteresis is not None,
        "a solve interval": options.solve_interval_s is not None,
        "a time for solves": options.solve_s > 0,
        "restart costs": ground_truth.restart_costs != RestartCosts(),
        "noise or bias of rates": ground_truth.rate_noise > 0 or ground_truth.rate_bias > 0,
        "early ends": ground_truth.early_termination > 0,
        "the world of Shockwave's release": _named_profile(options).released_world,
    }
    for name, there in given.items():
        if there:
            raise ConfigError(f"the ideal has no rounds and no starts: it does not go with {name}")


class _Solver:
    """The planner's heavy part, timed; answers that a journal holds are taken from there."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.recorded: Iterable[Solved] = ()
        self.seconds = 0.0
        self.gap: float | None = None
        self.violation = 0.0

    def __call__(self, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
        began = time.perf_counter()
        known = next(iter(self.recorded), None)
        answer = None if known is None else known.answer
        if answer is None:
            answer = self.planner.solve(snapshot, state)
        gap = answer.report.gap
        if gap is not None:
            self.gap = max(self.gap or 0.0, gap)
        self.violation = max(self.violation, answer.report.violation)
        self.seconds += time.perf_counter() - began
        return answer


class _RunLog(Journal):
    """The journal of a run directory.

    To go on with an interrupted run, the run is driven again from its start with the allocations of the
    old journal in place of solves, and the new records are compared with the old ones as they come.
    """

    def __init__(self, out: Path, setup: Setup, resume: bool) -> None:
        super().__init__(out / ("journal.resumed" if resume else "journal"))
        self.final = out / "journal"
        self.setup = setup
        self.resume = resume
        self.old = records(self.final) if resume else iter(())
        self.answers = answers(self.final) if resume else iter(())
        self.caught_up = not resume

    def __enter__(self) -> "_RunLog":
        self._lock = os.open(self.final.parent, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RunError(f"{self.final.parent}: another process writes this run") from None
        if self.resume:
            _adopt(self.path, self.final)
        self.open(self.setup)
        return self

    def _append(self, record: bytes) -> None:
        super()._append(record)
        if not self.caught_up:
            old = next(self.old, None)
            self.caught_up = old is None
            if old is not None and old != record:
                raise CheckError(
                    f"{self.final}: record {self.records - 1} differs from the run that it is to "
                    "go on with: was the trace, the table or the version changed?"
                )

    def __exit__(self, *_: object) -> None:
        self.close()
        if self.path != self.final:
            if self.caught_up:
                self.path.replace(self.final)
            else:
                self.path.unlink()
        os.close(self._lock)


def _adopt(resumed: Path, final: Path) -> None:
    """Take over the journal of an earlier attempt to go on, if that was killed after it had got further."""
    if resumed.exists() and resumed.stat().st_size > final.stat().st_size:
        pairs = zip_longest(records(final), records(resumed))
        if all(old in (None, new) for old, new in pairs):
            resumed.replace(final)


class _Watcher:
    """Tells a progress bar, at every end of a round."""

    def __init__(self, backend: SimBackend, watch: Watch) -> None:
        self.backend = backend
        self.watch = watch

    def event(self, event: Event) -> None:
        """How many jobs have ended; under a window, of its jobs."""
        window = self.backend.window
        done = self.backend.ended
        if window is not None:
            done = window.stop - window.first - self.backend.window_open
        self.watch(done, f"day {event.time_s / 86400:.1f}")

    def command(self, command: object) -> None:
        """Nothing to tell."""
