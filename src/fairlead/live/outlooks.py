"""When will it finish, why not now, and what if: the live state run forward, in a process of its own."""

import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.state import SchedulerState, state_of
from fairlead.errors import ConfigError, FairleadError
from fairlead.live.access import Caller
from fairlead.live.facade import ConflictError
from fairlead.live.forecast import Outcome, Question, eta, forecast
from fairlead.live.rates import extended, fits, kind_of, own_rates, table_for
from fairlead.live.reasons import why
from fairlead.live.spec import JobSpec
from fairlead.live.views import Comparison, Explanation, JobView, Outlook, StintView, WhatIf
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import Job, JobId, RestartCosts
from fairlead.model.throughput import Kind, Throughputs
from fairlead.policies import registry
from fairlead.setup import Setup

if TYPE_CHECKING:
    from fairlead.live.engine import Engine

HORIZON_S = 30 * 86_400.0
LIMIT_S = 60.0  # of an answer
NOISE = 0.05  # how far rates are believed to be off, relative; forecasts differ by it
LISTED = 50  # jobs of a comparison that are named


@dataclass(frozen=True, slots=True)
class Present:
    """The live state at one moment."""

    now_s: float
    setup: Setup
    state: SchedulerState
    steps_done: dict[int, float]
    restart_s: float


class Outlooks:
    """Answers questions about what will be. Any thread may ask."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the process, whatever it computes."""
        self._end_process()

    def explain(self, job: JobView, stints: list[StintView]) -> Explanation:
        """The story of a job."""
        finish_s = low_s = high_s = None
        n = 0
        known = job.state in ("running", "finishing", "waiting", "preempted")
        if known and not self.engine.admission.outside(job.id):
            present = self.present()
            seeds = _seeds(len(present.state.books.jobs["id"]))
            outcomes = self._run(present.setup, present, (), None, seeds, NOISE)
            found = eta(outcomes, job.id)
            finish_s, low_s, high_s, n = (
                found.finish_s,
                found.low_s,
                found.high_s,
                found.forecasts,
            )
        return Explanation(
            job=job,
            why_here=why(self.engine, job),
            finish_s=finish_s,
            finish_low_s=low_s,
            finish_high_s=high_s,
            forecasts=n,
            stints=tuple(stints),
            events=_story(job, stints),
        )

    def compare(self, caller: Caller, question: WhatIf) -> Comparison:
        """What would be, beside what will be."""
        present = self.present()
        setup = self._changed(present.setup, question)
        setup, jobs, notes = self._added(setup, caller, question.add_jobs)
        policy = question.policy or None
        if policy is not None:
            registry.make(policy, seed=setup.seed, profile=setup.profile.name)
        now = self._run(present.setup, present, (), None, (0,), 0.0)[0]
        then = self._run(setup, present, jobs, policy, (0,), 0.0)[0]
        changed = [
            (job, now.finish_s[job], then.finish_s[job])
            for job in sorted(now.finish_s.keys() & then.finish_s.keys())
            if abs(now.finish_s[job] - then.finish_s[job]) > 1e-6
        ]
        changed.sort(key=lambda c: -abs(c[2] - c[1]))
        return Comparison(
            now=_outlook(now),
            then=_outlook(then),
            changed=tuple(changed[:LISTED]),
            notes=tuple(notes),
        )

    def present(self) -> Present:
        """The live state, copied on the driver's thread."""
        engine = self.engine

        def copy() -> Present:
            if engine.scheduler is None or engine.setup is None:
                raise ConflictError("the cluster has no nodes yet")
            starts = [s for starts in engine.book.live.values() for s in starts if not s.stopping]
            return Present(
                engine.clock.now_s(),
                replace(engine.setup, throughputs=self._measured(engine.scheduler.believed.known)),
                state_of(engine.scheduler),
                {s.row.id: s.progress() for s in starts},
                engine.restart_s(),
            )

        return engine.call(copy).result(LIMIT_S)

    def _measured(self, believed: Throughputs) -> Throughputs:
        """The table in force, with the rows of jobs that run as they were measured to. Where there is an
        estimator, what was measured is in the state: beliefs about jobs."""
        if self.engine.estimating.on:
            return believed
        ratios: dict[Kind, list[float]] = {}
        for row in self.engine.book.jobs.values():
            rate, where = row.measured_rate, row.measured_on
            start = self.engine.book.newest(row.id)
            if start is not None and (now := start.measured()) is not None:
                rate, where = now, start.stint.accelerator
            before = self.engine.admission.rates(row).get(where, 0.0)
            if rate is not None and rate > 0 and before > 0:
                ratios.setdefault((row.kind, row.spec.scale_factor), []).append(rate / before)
        known = {kind: believed.row(*kind) for kind in ratios}
        rows = [
            believed.rate[at] * median(ratios[kind]) for kind, at in known.items() if at is not None
        ]
        kinds = tuple(kind for kind, at in known.items() if at is not None)
        return believed.learned(kinds, believed.slots, np.array(rows)) if rows else believed

    def _changed(self, setup: Setup, question: WhatIf) -> Setup:
        """The setup with other nodes."""
        nodes = list(setup.cluster.nodes)
        names = {node.name for node in nodes}
        for name in question.remove_nodes:
            if name not in names:
                raise ConfigError(f"remove_nodes: there is no node {name[:80]!r}")
        nodes = [node for node in nodes if node.name not in question.remove_nodes]
        for number, (accelerator, devices) in enumerate(question.add_nodes.items()):
            if not 1 <= devices <= 100_000 or not 0 < len(accelerator) <= 64:
                raise ConfigError(
                    f"add_nodes: {accelerator[:80]!r}: 1 to 100000 devices, got {devices}"
                )
            nodes.append(Node(f"what-if-{number}", accelerator, devices))
        if not nodes:
            raise ConfigError("remove_nodes: no node would be left")
        if not question.add_nodes and not question.remove_nodes:
            return setup
        left = {node.accelerator for node in nodes}
        prices = {a: p for a, p in setup.cluster.prices.items() if a in left}
        cluster = Cluster(tuple(nodes), prices)
        table = table_for(
            self.engine.options.catalogue, cluster, self.engine.book.jobs.copy(), setup.throughputs
        )
        here = table.columns(cluster.slots)
        able = {
            s.accelerator for s, rates in zip(here.slots, here.rate.T, strict=True) if rates.any()
        }
        for name in question.add_nodes:
            if name not in able:
                raise ConfigError(
                    f"add_nodes: {name!r}: neither the catalogue nor a job has a rate on it "
                    f"(known: {', '.join(sorted(able))})"
                )
        return replace(setup, cluster=cluster, throughputs=table.on(cluster, setup.profile.spread))

    def _added(
        self, setup: Setup, caller: Caller, specs: Sequence[JobSpec]
    ) -> tuple[Setup, list[Job], list[str]]:
        """The setup with the kinds of the jobs that would be added, and these."""
        jobs, notes, kinds = [], [], {}
        table = setup.throughputs
        for number, spec in enumerate(specs):
            kind: Kind = (kind_of(spec, self.engine.options.catalogue), spec.scale_factor)
            row = table.row(*kind)
            rate = own_rates(spec, table.slots) if row is None else table.rate[row]
            by_type = {s.accelerator: r for s, r in zip(table.slots, rate.tolist(), strict=True)}
            if not fits(by_type, spec, setup.cluster):
                notes.append(f"job {number + 1} of those to be added fits nowhere in the cluster")
                continue
            if row is None:
                kinds[kind] = rate
            id_ = JobId(self.engine.next_job + number)
            notes.append(f"job {number + 1} of those to be added is called {id_} here")
            tenant = caller.tenant or "default"
            jobs.append(Job(id_, *kind, float(spec.total_steps), spec.weight, tenant, spec.slo_s))
        return replace(setup, throughputs=extended(table, kinds)), jobs, notes

    def _run(
        self,
        setup: Setup,
        present: Present,
        jobs: Sequence[Job],
        policy: str | None,
        seeds: Sequence[int],
        noise: float,
    ) -> list[Outcome]:
        asked = Question(
            now_s=present.now_s,
            horizon_s=HORIZON_S,
            steps_done=present.steps_done,
            rate_bias=noise,
            restart_costs=RestartCosts(present.restart_s),
            add_jobs=jobs,
            policy=policy,
        )
        try:
            return (
                self._process()
                .submit(_forecast, setup, present.state, asked, seeds)
                .result(LIMIT_S)
            )
        except (BrokenProcessPool, TimeoutError):
            self._end_process()
            raise ForecastError(f"the forecast took more than {LIMIT_S:.0f} s, or failed") from None

    def _process(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(
                    1, context, initializer=_end_with, initargs=(os.getpid(),)
                )
            return self._pool

    def _end_process(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in list(pool._processes.values()):
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


class ForecastError(FairleadError):
    """No forecast could be made."""


def _end_with(parent: int) -> None:
    """The process ends soon after the server, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _forecast(
    setup: Setup, state: SchedulerState, asked: Question, seeds: Sequence[int]
) -> list[Outcome]:
    """In the process."""
    return forecast(setup, state, asked, seeds)


def _seeds(jobs: int) -> range:
    """As many forecasts as can be made in a few seconds."""
    return range(10 if jobs <= 100 else 5 if jobs <= 1000 else 1)


def _outlook(outcome: Outcome) -> Outlook:
    return Outlook(
        makespan_s=outcome.makespan_s,
        mean_left_s=outcome.mean_left_s,
        finish_s=dict(outcome.finish_s),
        utilization=outcome.utilization,
    )


def _story(job: JobView, stints: list[StintView]) -> tuple[tuple[float, str], ...]:
    """What happened to a job, oldest first."""
    events = [(job.submitted_s, f"submitted by {job.user} for {job.tenant}")]
    for stint in stints:
        devices = ",".join(map(str, stint.devices))
        where = f"{stint.accelerator} {devices} of {stint.node}"
        events.append((stint.began_s, f"start {stint.epoch} on {where}"))
        if stint.ended_s is not None:
            lost = f", {stint.lost_steps:.0f} steps lost" if stint.lost_steps > 0 else ""
            if stint.lost_steps < 0:
                lost = f", {-stint.lost_steps:.0f} steps that seemed lost were saved"
            events.append(
                (
                    stint.ended_s,
                    f"start {stint.epoch} {stint.why} at step {stint.to_step:.0f}{lost}",
                )
            )
    if job.ended_s is not None:
        events.append((job.ended_s, job.state))
    return tuple(sorted(events, key=lambda event: event[0]))
