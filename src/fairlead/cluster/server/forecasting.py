"""When will it finish, why not now, and what if.

The reason is read off the state that the server has in memory. What will be is taken from the forecast that
is kept of the present state (``forecaster``); questions are forecasts in another process, by turns of those
who ask. Nobody waits for the driver or for a forecast to be told why a job is where it is.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.cluster.forecasting.forecast import ForecastQuery, ForecastRun
from fairlead.cluster.forecasting.forecast_outcomes import Outcomes
from fairlead.cluster.forecasting.forecast_process import ForecastProcess, ForecastTask
from fairlead.cluster.forecasting.forecaster import (
    CPU_S,
    SEEDS,
    Forecaster,
    JobForecast,
)
from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.front.recent_results import RecentResults
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    ENDED_STATES,
    MAX_ADDED_DEVICES,
    AttemptView,
    Comparison,
    Explanation,
    JobView,
    NoEnd,
    WhatIf,
)
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.admission import job_of
from fairlead.cluster.server.comparison import (
    HORIZON_S,
    AbsentJobs,
    VisibleJobs,
    check_reads_no_file,
    comparison,
)
from fairlead.cluster.server.deadline_forecasts import (
    deadlines_of,
    forecast_sentence,
    with_deadline,
)
from fairlead.cluster.server.explain import explanation_facts
from fairlead.cluster.server.explain_placement import changed_s, nodes_changed_s
from fairlead.cluster.server.explain_waiting import nothing_starts
from fairlead.cluster.server.explanation_source import DeviceUse, ExplanationSource
from fairlead.cluster.server.forecast_input import (
    ForecastInput,
    MeasuredJob,
    measured_factors,
    measured_table,
)
from fairlead.cluster.server.forecast_obstacles import forecast_obstacles, is_rate_unknown
from fairlead.cluster.server.held_jobs import is_held_at_first
from fairlead.cluster.server.least_times import least_of, least_times, newest_rate, rates_in
from fairlead.cluster.server.live_progress import steps_by_now
from fairlead.cluster.server.question_queue import QuestionQueue
from fairlead.cluster.server.rates import (
    by_accelerator,
    extended,
    fits,
    has_no_rates,
    job_type_of,
    job_type_of_row,
    missing_rates,
    table_for,
    with_job_types_of,
    with_pairs_of,
)
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.server.start_times import StartForecasts
from fairlead.cluster.store.job_views import story
from fairlead.cluster.store.rows import JobRow
from fairlead.errors import ConfigError, StoreError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import Job, JobId, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.setup import Setup

COPY_S = 120.0  # that the driver may take until it copies the state; it may be writing
WAIT_S = 0.5  # that whoever asks for a reason waits for a forecast, if one can come by then
QUESTION_CPU_S = 3.0  # of the forecast with a change, where nobody else asks
# From when they asked: then a coarse answer will do, as soon as there is one, and
ANSWER_TIMEOUT_S = 8.0
BASELINE_S = 4.0  # of it for the forecast of what will be without the change
ENDING_S = 1.0  # of it for what follows without rounds on those that were simulated
NO_NODES = "the cluster has no nodes yet"
HISTORY = 500  # newest jobs that tell which ones to expect, after a restart of the server


class Forecasting:
    """Answers questions about what will be. Any thread may ask."""

    def __init__(self, loop: ServerLoop, directory: Path) -> None:
        self._loop = loop
        self._state = loop.state
        self._source = ExplanationSource(
            state=loop.state,
            admission=loop.parts.jobs.admission,
            solves=loop.parts.rounds.solves,
            costs=loop.parts.attempts.costs,
            device_uses=RecentResults[DeviceUse](loop.state.fleet.monotonic),
        )
        self._starts = StartForecasts(
            loop.state, loop.parts.attempts.starts, loop.parts.jobs.retries.program_starts
        )
        self._outcomes = Outcomes(directory / "forecasts.db")
        self.forecaster = Forecaster(self._task, loop.state.round_s, self._outcomes)
        self._questions = ForecastProcess("what-if", niceness=0)
        self._questions_in_turn = QuestionQueue()

    def start(self) -> None:
        """Take up what is known of earlier jobs and forecasts; before the driver starts."""
        store = self._state.store
        for row in store.jobs(after=store.last_job() - HISTORY, limit=HISTORY):
            if not is_held_at_first(row):
                self._loop.recent.submitted(row.submitted_s, [job_of(row)])
        self._outcomes.open()
        self._loop.listen_to_ends(self.forecaster.track_record.ended)
        self.forecaster.start()

    def close(self) -> None:
        """End the processes, whatever they compute."""
        self.forecaster.close()
        self._questions.close()
        self._outcomes.close()

    def explain(self, caller: Caller, job: JobView, attempts: list[AttemptView]) -> Explanation:
        """The story of a job."""
        obstacles = forecast_obstacles(self._source.state, job.id, job.state)
        forecast: JobForecast | None = None
        forecast_kind = ""
        if self._has_forecast(job, obstacles.no_end):
            since_s = changed_s(self._state, job, attempts, nodes_changed_s(self._state))
            forecast = self.forecaster.forecast_of(job.id, WAIT_S, least_of(job), changed_s=since_s)
            forecast_kind = "none yet" if forecast is None else forecast.kind
        given = None if forecast is None else forecast.interval
        job = with_deadline(job, forecast)
        found = explanation_facts(
            self._source, job, attempts, None if caller.role == "admin" else caller.tenant
        )
        if not self._state.halted:
            found.extend(filter(None, [forecast_sentence(job, forecast)]))
        return Explanation(
            job=job,
            why_here=" ".join(found),
            facts=tuple(found),
            finish_s=None if given is None else given.left_s,
            finish_low_s=None if given is None else given.low_s,
            finish_high_s=None if given is None else given.high_s,
            forecasts=0 if forecast is None else forecast.forecasts,
            forecast_kind=forecast_kind,  # type: ignore[arg-type]
            forecast_age_s=None if forecast is None else forecast.age_s,
            forecast_exact_s=None if forecast is None else forecast.exact_s,
            forecast_error=None if given is None else given.error,
            forecast_outcomes=None if given is None else given.outcomes,
            no_end="" if job.state in ENDED_STATES else obstacles.no_end,
            stands_still=obstacles.stands_still,
            waits_for_node=obstacles.waits_for_node,
            rate_known=obstacles.rate_known,
            attempts=tuple(attempts),
            events=story(job, attempts),
        )

    def with_deadlines(self, jobs: Iterable[JobView]) -> list[JobView]:
        """Return the jobs; those with a deadline also say whether their present forecast meets it."""
        nodes_s = nodes_changed_s(self._state)
        return [
            with_deadline(job, self._forecast_at_once(job, nodes_s))
            if job.deadline == "open" and self._has_forecast(job, job.no_end)
            else job
            for job in jobs
        ]

    def _forecast_at_once(self, job: JobView, nodes_s: Mapping[str, float]) -> JobForecast | None:
        """Return the forecast there is of a job as it is now. nodes_s: when nodes changed, by accelerator."""
        since_s = changed_s(self._state, job, (), nodes_s)
        return self.forecaster.at_once(job.id, least_of(job), changed_s=since_s)

    def _has_forecast(self, job: JobView, no_end: NoEnd) -> bool:
        """Return whether the end of a job can be forecast. no_end: what stands against it."""
        takes_part = job.state in ("running", "waiting", "preempted") and not no_end
        waits = self._loop.parts.jobs.admission.is_outside(job.id)
        return takes_part and not self._state.halted and not waits

    def compare(self, caller: Caller, question: WhatIf) -> Comparison:
        """Return a comparison of the forecasts without and with the changes that are asked about."""
        check_reads_no_file(caller, question)
        if self._state.halted:
            raise StoreError(self._state.halted)
        if self._state.setup is None:
            raise ConflictError(NO_NODES)
        if on_hold := nothing_starts(self._state.fleet):
            raise ConflictError(f"{on_hold}; ask again then")
        asked_at = time.monotonic()
        with self._questions_in_turn.turn_of(caller.user) as waiting:
            self._questions.start()
            latest = self.forecaster.recent(asked_at + BASELINE_S)
            base = latest.task
            setup, policy = base.setup, question.policy or None
            if policy is not None:
                made = registry.make(policy, seed=setup.seed, profile=setup.settings.name)
                setup = self._paired(setup) if made.space_sharing else setup
            setup = self._changed(setup, question)
            setup, jobs, notes = self._added(setup, caller, question.add_jobs)
            absent = self._absent(setup)
            now = latest.outcomes[0]
            # Both with as many rounds as the other, or the difference would be one of methods.
            asked = replace(
                base.query,
                add_jobs=(*jobs, *absent.joining(self._loop.parts.jobs.admission.unplaced)),
                paused_s={**base.query.paused_s, **dict.fromkeys(absent.freed, 0.0)},
                policy=policy,
                rounds_s=now.exact_s,
            )
            then = now
            if question != WhatIf():
                then = self._forecast_change(
                    ForecastTask(setup, base.state, asked), asked_at + ANSWER_TIMEOUT_S, waiting
                )
                now = now if then.exact_s > 0 else latest.coarse
            no_end = self._no_end(base.query.unknown, absent)
            over = self._ended(now, then, {job.id for job in jobs}).union(no_end)
            age_s = latest.age_s
            now = now.without(over, HORIZON_S).after(age_s, least_times(self._state, base.setup))
            then = then.without(over, HORIZON_S).after(age_s, least_times(self._state, setup, jobs))
        return comparison(
            now,
            then,
            visible=self._visible(caller, jobs),
            absent=absent,
            no_end=no_end,
            deadlines=self._deadlines(jobs),
            added_notes=notes,
            age_s=age_s,
            error=self.forecaster.error(latest, then if then.coarse else now),
        )

    def _visible(self, caller: Caller, added: Sequence[Job]) -> VisibleJobs:
        """The open jobs that the caller may see, and those that would be added."""
        if caller.role == "admin":
            return VisibleJobs(None)
        rows = self._state.registry.jobs.copy().values()
        own = {row.id for row in rows if row.tenant == caller.tenant}
        return VisibleJobs(frozenset(own.union(int(job.id) for job in added)))

    def _deadlines(self, added: Sequence[Job]) -> dict[int, float]:
        """Open job, or one of those that would be added -> seconds until its deadline."""
        rows = list(self._state.registry.jobs.copy().values())
        open_rows = [row for row in rows if row.deadline_s is not None and self._is_open(row)]
        return deadlines_of(open_rows, self._state.now_s(), added)

    def _absent(self, setup: Setup) -> AbsentJobs:
        """The open jobs that take no part as it is, or would not under this setup."""
        rows = [row for row in self._state.registry.jobs.copy().values() if self._is_open(row)]
        paused = frozenset(row.id for row in rows if row.state == "paused")
        admission = self._loop.parts.jobs.admission
        held = frozenset(row.id for row in rows if row.id not in paused and admission.held.has(row))
        rows = [row for row in rows if row.id not in held]
        without = {
            row.id: row
            for row in rows
            if row.id not in paused and not fits(rates_in(setup, row), row.spec, setup.cluster)
        }
        now = {row.id: row for row in rows if row.id not in paused and admission.is_outside(row.id)}
        return AbsentJobs(
            paused=paused, held=held, now=frozenset(now), then=frozenset(without), rows=now
        )

    def _no_end(self, unknown: Collection[int], absent: AbsentJobs) -> dict[int, NoEnd]:
        """Open jobs of which no end is forecast, though they take part, and why; as ``explain`` says.
        unknown: those that the forecast has left out, for their rates were not known."""
        shown = self._loop.parts.view_parts.builder.displayed_state
        outside = absent.paused | absent.held | (absent.now & absent.then)
        found: dict[int, NoEnd] = {}
        for row in sorted(self._state.registry.jobs.copy().values(), key=lambda row: row.id):
            state = shown(row)
            if row.id in outside or state in ENDED_STATES:
                continue
            left_out: NoEnd = "rate unknown" if row.id in unknown else ""
            if why := forecast_obstacles(self._source.state, row.id, state).no_end or left_out:
                found[row.id] = why
        return found

    def _open_of(self, jobs: Collection[int]) -> frozenset[int]:
        """Return those of these jobs that have not ended."""
        rows = [self._state.registry.jobs.get(job) for job in jobs]
        return frozenset(row.id for row in rows if row is not None and self._is_open(row))

    def _is_open(self, row: JobRow) -> bool:
        """Return whether a job has not ended, as is shown."""
        return self._loop.parts.view_parts.builder.displayed_state(row) not in ENDED_STATES

    def _ended(self, now: ForecastRun, then: ForecastRun, added: Collection[int]) -> frozenset[int]:
        """Jobs of forecasts that have ended since their state was copied. added: those made up."""
        forecast = {*now.finish_s, *now.unfinished, *then.finish_s, *then.unfinished}.difference(
            added
        )
        return frozenset(forecast) - self._open_of(forecast)

    def _forecast_change(self, task: ForecastTask, until: float, waiting: int) -> ForecastRun:
        """Forecast a change. until: when a coarse answer will do (monotonic); waiting: others who wait."""
        left_s = until - time.monotonic()
        wall_s = left_s - ENDING_S
        rounds = wall_s > 0 and task.query.rounds_s > 0
        cpu_s = QUESTION_CPU_S / (1 + waiting) if rounds else 0.0
        return self._questions.run(replace(task, cpu_s=cpu_s, wall_s=wall_s), max(left_s, 0.0))[0]

    def _task(self) -> tuple[float, ForecastTask]:
        """The present state, to be run forward as it is."""
        inputs = self.forecast_input()
        asked = ForecastQuery(
            now_s=inputs.now_s,
            horizon_s=HORIZON_S,
            steps_done=inputs.steps_done,
            paused_s=inputs.paused_s,
            measured=measured_factors(inputs),
            unknown=inputs.unknown,
            restart_costs=RestartCosts(inputs.restart_s),
            start_s=self._starts.start_s(),
            starting=self._starts.left_s(),
            history=inputs.history,
            early_s=self._state.early_s,
        )
        setup = replace(inputs.setup, throughputs=measured_table(inputs))
        return inputs.now_s, ForecastTask(setup, inputs.state, asked, tuple(range(SEEDS)), CPU_S)

    def forecast_input(self) -> ForecastInput:
        """The live state, copied on the driver's thread: arrays, and what has moved since the core heard of
        it. What can be worked out later is."""
        loop, state = self._loop, self._state

        def copy() -> ForecastInput:
            if state.scheduler is None or state.setup is None:
                raise ConflictError(NO_NODES)
            known = state.scheduler.data.beliefs.known
            return ForecastInput(
                now_s=state.now_s(),
                setup=replace(state.setup, throughputs=known),
                state=take_checkpoint(state.scheduler.data),
                steps_done=self._ended_steps() | self._running_steps(),
                paused_s=self._paused_s(),
                restart_s=loop.parts.attempts.starts.restart_s(),
                history=loop.recent.history(),
                measured=() if loop.parts.rounds.estimating.on else self._rates(),
                unknown=self._unknown(),
            )

        return loop.call(copy).result(COPY_S)

    def _ended_steps(self) -> dict[int, float]:
        """Steps of jobs whose starts have ended in the round in force. The core takes them to go on."""
        state = self._state
        ended = {} if state.round is None else state.round.ended
        rows = [state.registry.jobs[job] for job in ended if job in state.registry.jobs]
        return {
            row.id: row.total_steps if ended[row.id].completed else row.countable(row.steps)
            for row in rows
            if row.open
        }

    def _running_steps(self) -> dict[int, float]:
        """Steps that count of jobs whose starts go on."""
        fleet, live = self._state.fleet, self._state.registry.live
        attempts = [s for attempts in live.values() for s in attempts if not s.stopping]
        return {s.row.id: s.row.countable(steps_by_now(fleet, s)) for s in attempts}

    def _paused_s(self) -> dict[int, float]:
        """Jobs that the core holds, though nobody has paused them: for their next try, or for a node of which
        nobody knows when it is back."""
        state, now_s = self._state, self._state.now_s()
        rows = [row for row in state.registry.jobs.values() if row.open and row.state != "paused"]
        pinned, outside = (
            self._loop.parts.jobs.pinned,
            self._loop.parts.jobs.admission.is_outside,
        )
        return {
            row.id: 0.0 if row.retry_s is None else max(row.retry_s - now_s, 0.0)
            for row in rows
            if (row.retry_s is not None or pinned.has(row.id)) and not outside(row.id)
        }

    def _rates(self) -> tuple[MeasuredJob, ...]:
        """Return the measured rates of jobs. With an estimator they are in the state, as beliefs."""
        found = []
        for row in self._state.registry.jobs.values():
            rate, where = newest_rate(self._state, row)
            if row.starts and rate is not None and rate > 0:
                found.append(
                    MeasuredJob(row.id, job_type_of_row(row), where, rate, self._has_no_rates(row))
                )
        return tuple(found)

    def _has_no_rates(self, row: JobRow) -> bool:
        return has_no_rates(row, self._state.options.catalogue)

    def _unknown(self) -> frozenset[int]:
        """Jobs of whose rates nobody knows anything."""
        return frozenset(
            row.id
            for row in self._state.registry.jobs.values()
            if is_rate_unknown(self._source.state, row)
        )

    def _changed(self, setup: Setup, question: WhatIf) -> Setup:
        """The setup with other nodes."""
        nodes = list(setup.cluster.nodes)
        names = {node.name for node in nodes}
        for name in question.remove_nodes:
            if name not in names:
                raise ConfigError(f"remove_nodes: there is no node {name[:80]!r}")
        nodes = [node for node in nodes if node.name not in question.remove_nodes]
        for number, (accelerator, devices) in enumerate(question.add_nodes.items()):
            if not 1 <= devices <= MAX_ADDED_DEVICES or not 0 < len(accelerator) <= 64:
                raise ConfigError(
                    f"to add {accelerator[:80]!r}: from 1 to {MAX_ADDED_DEVICES:,} devices, got {devices}"
                )
            nodes.append(Node(f"what-if-{number}", accelerator, devices))
        if not nodes:
            raise ConfigError("remove_nodes: without them no node would be left")
        if not question.add_nodes and not question.remove_nodes:
            return setup
        left = {node.accelerator for node in nodes}
        prices = {a: p for a, p in setup.cluster.prices.items() if a in left}
        cluster = Cluster(tuple(nodes), prices)
        paired = setup.throughputs.pair_rates is not None
        table = self._table(cluster, setup.throughputs, space_sharing=paired)
        table = with_job_types_of(table, setup.throughputs)
        here = table.columns(cluster.slots)
        able = {
            s.accelerator for s, rates in zip(here.slots, here.rate.T, strict=True) if rates.any()
        }
        for name in question.add_nodes:
            if name not in able:
                raise ConfigError(
                    f"to add {name!r}: neither the catalogue nor a job has a rate on it "
                    f"(known: {', '.join(sorted(able))})"
                )
        return replace(
            setup, cluster=cluster, throughputs=table.on(cluster, setup.settings.scattered)
        )

    def _table(
        self, cluster: Cluster, current: Throughputs | None, *, space_sharing: bool
    ) -> Throughputs:
        jobs = self._state.registry.jobs.copy()
        catalogue = self._state.options.catalogue
        return table_for(catalogue, cluster, jobs, current, space_sharing=space_sharing)

    def _paired(self, setup: Setup) -> Setup:
        """The setup with rates of jobs side by side: the core has none unless its policy asks for them."""
        known = setup.throughputs
        if known.pair_rates is not None:
            return setup
        table = self._table(setup.cluster, None, space_sharing=True)
        if table.pair_rates is None:
            return setup
        return replace(setup, throughputs=with_pairs_of(known, table))

    def _added(
        self, setup: Setup, caller: Caller, specs: Sequence[JobSpec]
    ) -> tuple[Setup, list[Job], list[str]]:
        """The setup with the kinds of the jobs that would be added, and these."""
        jobs, notes, table = [], [], setup.throughputs
        job_types: dict[JobType, Floats] = {}
        for place, spec in enumerate(specs):
            job_type = job_type_of(spec, self._state.options.catalogue)
            more = missing_rates(spec, job_type, table)
            rate = more[job_type] if job_type in more else table.rate[table.row(job_type)]
            if not fits(by_accelerator(table.slots, rate), spec, setup.cluster):
                notes.append(f"job {place + 1} of those to be added fits nowhere in the cluster")
                continue
            job_types |= more
            id_ = JobId(self._state.next_job + place)
            notes.append(f"job {place + 1} of those to be added is called {id_} here")
            jobs.append(
                Job(
                    id=id_,
                    family=job_type.name,
                    scale_factor=job_type.scale_factor,
                    devices=spec.devices,
                    total_steps=float(spec.total_steps),
                    weight=spec.weight,
                    tenant=caller.tenant or "default",
                    slo_s=spec.slo_s,
                )
            )
        return replace(setup, throughputs=extended(table, job_types)), jobs, notes
