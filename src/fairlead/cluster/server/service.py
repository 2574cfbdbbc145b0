"""The live cluster as the driver's process offers it to the front; see ``facade``."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar, Unpack

import numpy as np
from prometheus_client.exposition import generate_latest

from fairlead.cluster.autoscaling.autoscaler import Autoscaler
from fairlead.cluster.front.caller_roles import check_admin, check_person
from fairlead.cluster.front.facade import ConflictError, NotFoundError
from fairlead.cluster.front.visible_jobs import existing, seen_by, task_ids
from fairlead.cluster.front.visible_tenants import may_see, without_others
from fairlead.cluster.protocol.access import Caller, Role, TokenKind
from fairlead.cluster.protocol.api_models import (
    ENDED_STATES,
    AttemptView,
    Comparison,
    Explanation,
    JobView,
    NodeView,
    ReloadAnswer,
    Sample,
    StatusView,
    UserView,
    WhatIf,
)
from fairlead.cluster.protocol.engine_views import EngineView
from fairlead.cluster.protocol.job_search import matches_state
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Register, Welcome
from fairlead.cluster.protocol.read_job_spec import SPECS, check_spec, check_weight
from fairlead.cluster.protocol.study import StudySpec
from fairlead.cluster.server.admission import job_of
from fairlead.cluster.server.array_tasks import count_tasks
from fairlead.cluster.server.asked_nodes import with_nodes_asked_for
from fairlead.cluster.server.cancellation import cancel_job
from fairlead.cluster.server.durable_answers import DurableAnswers
from fairlead.cluster.server.forecasting import Forecasting
from fairlead.cluster.server.held_jobs import is_held_at_first
from fairlead.cluster.server.lost_work import lost_by_drain, lost_by_pause
from fairlead.cluster.server.options import LiveOptions
from fairlead.cluster.server.resumption import resume
from fairlead.cluster.server.retention import Retention
from fairlead.cluster.server.runtime_options import RuntimeOptions
from fairlead.cluster.server.search_audit import SearchAudit
from fairlead.cluster.server.search_controller import SearchController
from fairlead.cluster.server.search_doors import SearchDoors
from fairlead.cluster.server.server_loop import LoopArguments, ServerLoop
from fairlead.cluster.server.submission_checks import (
    check_count,
    check_dependencies,
    check_rates_known,
    check_single,
)
from fairlead.cluster.server.submissions import Submission, SubmissionQueue
from fairlead.cluster.server.tenant_limits import TenantAdmission
from fairlead.cluster.server.user_accounts import UserAccounts
from fairlead.cluster.store.rows import AttemptRow, JobRow, NodeRow, UserRow
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.tokens import check_name, check_tenant
from fairlead.errors import ConfigError, StoreError
from fairlead.model.events import JobsPaused, JobsReweighted
from fairlead.policies import registry

_Result = TypeVar("_Result")


class Service:
    """Implements ``facade.Facade``, but for what the front answers by itself, and
    ``relay.DriverInterface``."""

    def __init__(
        self,
        directory: Path,
        options: LiveOptions,
        *,
        users_changed: Callable[[list[UserRow]], None] | None = None,
        nodes_known: Callable[[list[NodeRow]], None] | None = None,
        reload: Callable[[], ReloadAnswer] | None = None,
        **loop: Unpack[LoopArguments],
    ) -> None:
        """users_changed: told of all users, whenever one comes or goes; nodes_known: told of the nodes that
        there are at the start; reload: takes over what the configuration file says now; loop: further
        arguments of ``ServerLoop``."""
        self.store = Store(directory, options.keep_segments)
        self.engine = ServerLoop(self.store, options, **loop)
        self.counters = self.engine.state.counters
        self.viewer = self.engine.parts.view_parts.builder
        self.forecasting = Forecasting(self.engine, directory)
        self.submissions = SubmissionQueue(
            self.engine.state,
            self.engine.parts.inbox,
            admit=self._admit,
            answer=self.engine.parts.commits.answer,
            has_ended=lambda row: self.viewer.displayed_state(row) in ENDED_STATES,
        )
        self.engine.parts.commits.join(self.submissions)
        self._answers = DurableAnswers(self.engine.state)
        self._tenants = TenantAdmission(options.runtime.tenant_limits, self._open_jobs)
        self.accounts = UserAccounts(
            self.engine, changed=users_changed or _ignore, await_durable=self._answers.wait
        )
        self._nodes_known = nodes_known or _ignore
        self._reload = reload
        self.autoscaler: Autoscaler | None = None  # None: nodes come by themselves
        self.retention = Retention(self.engine, self.submissions, directory)
        state_of, audit = self.viewer.displayed_state, SearchAudit(directory)
        doors = SearchDoors(self._cancel, self._reweight, state_of, self._change, audit)
        self.searches = SearchController(
            self.engine, directory, self.submissions, self._tenants, doors
        )

    def start(self, opened: Callable[[], None] = lambda: None) -> None:
        """Open the state directory, recover what is in it, and drive. opened: called when it is ours."""
        self.store.open()
        opened()
        self._nodes_known(self.store.nodes())
        self.accounts.changed(self.store.users())
        self.forecasting.start()
        self.engine.start()
        self.submissions.start()
        self.searches.start()

    def stop(self) -> None:
        """Commit, and let go of the state directory."""
        self.searches.close()
        self.retention.close()
        self.submissions.close()
        self.engine.stop()
        self.forecasting.close()
        self.store.close()

    # --- people ----------------------------------------------------------------------------------
    def add_user(
        self, caller: Caller, user: str, tenant: str, role: Role, lasts_s: float | None = None
    ) -> str:
        """Return the new token, which is not stored."""
        check_admin(caller)
        return self.accounts.add(user, tenant, role, lasts_s)

    def remove_user(self, caller: Caller, user: str) -> None:
        """Refuse a user's token from now on; their jobs stay."""
        check_admin(caller)
        if user == caller.user:
            raise ConfigError(f"user {user!r}: you cannot remove yourself")
        self.accounts.remove(user)

    def users(self, caller: Caller) -> list[UserView]:
        """Return all users."""
        check_admin(caller)
        return self.accounts.views()

    # --- jobs ------------------------------------------------------------------------------------
    def submit(
        self, caller: Caller, specs: list[JobSpec], tenant: str = "", key: str = ""
    ) -> list[int]:
        """Ids of the jobs, once they are durable."""
        check_person(caller)
        if tenant and tenant != caller.tenant:
            check_admin(caller)
            check_tenant(tenant)
        for position, spec in enumerate(specs):
            where = f"{SPECS}[{position}]" if len(specs) > 1 else "job"
            check_spec(spec, where)
            check_rates_known(where, spec, self.engine.state.options.catalogue)
            check_dependencies(where, spec, partial(self._find, caller))
        n_jobs = sum(map(count_tasks, specs))
        check_count(n_jobs)
        owner = tenant or caller.tenant or "default"
        mark = f"{caller.user}/{key}" if key else ""
        known = bool(mark) and self.store.key(mark) is not None  # it is asked again
        if known:
            self._tenants.check_change(caller)
        elif caller.role != "admin":
            self._tenants.check(owner, n_jobs, specs)
        submission = Submission(user=caller.user, tenant=owner, specs=specs, key=mark)
        ids = self.submissions.submit(submission)
        self._tenants.follow(owner, n_jobs, ids)
        return self._answers.wait(ids, partial(self.submissions.withdraw, submission))

    def submit_search(
        self, caller: Caller, study: StudySpec, tenant: str = "", key: str = ""
    ) -> int:
        """Id of the search, once it is durable."""
        return self.searches.create(caller, study, tenant, key)

    def stop_search(self, caller: Caller, search: int) -> None:
        """End it and its trials for good."""
        self.searches.stop(caller, search)

    def _open_jobs(self, tenant: str) -> int:
        known = self.engine.parts.view_parts.published.tally.tenants.get(tenant)
        return 0 if known is None else known.jobs

    def _admit(self, rows: list[JobRow]) -> None:
        """New jobs, whose rows are durable, take part from now on (the driver's thread)."""
        if not rows:
            return
        engine, now = self.engine, self.engine.state.now_s()
        for row in rows:
            engine.state.registry.jobs[row.id] = row
            engine.state.registry.dirty_jobs.add(row.id)
        self.counters.submissions.inc(len(rows))
        engine.state.capacity_changed = True
        arrivals = [job_of(row) for row in rows if not is_held_at_first(row)]
        engine.recent.submitted(now, arrivals)
        self.forecasting.forecaster.outdate()
        engine.parts.jobs.admission.admit(rows, now)

    def cancel(self, caller: Caller, job: int) -> None:
        """Stop it for good. A job that has ended stays as it is."""
        self._on_open(caller, job, self._cancel)

    def cancel_array(self, caller: Caller, array: int) -> list[int]:
        """Stop all its tasks for good that have not ended, as one. Returns their ids."""
        check_person(caller)
        ids = task_ids(array, self._find(caller, array))
        self._tenants.check_change(caller)

        def run() -> list[int]:
            rows = self.engine.state.registry.jobs
            found = [rows[job] for job in ids if job in rows and self._is_open(rows[job])]
            for row in found:
                self._cancel(row)
            self.forecasting.forecaster.outdate()
            return [row.id for row in found]

        return self._change(run)

    def _is_open(self, row: JobRow) -> bool:
        """Return whether a job has not ended. In its row it has only once its round is reported: it stands as
        it is shown."""
        return row.open and self.viewer.displayed_state(row) not in ENDED_STATES

    def _cancel(self, row: JobRow) -> None:
        cancel_job(self.engine, row)

    def pause(self, caller: Caller, job: int) -> list[str]:
        """It saves, stops, and waits to be resumed. Returns sentences about work that is lost."""
        return self._on_open(caller, job, self._pause)

    def _pause(self, row: JobRow) -> list[str]:
        if row.state == "paused":
            return []
        engine = self.engine
        waits = engine.parts.jobs.retries.storage.reasons()
        lost = lost_by_pause(engine.state, row, waits)
        row.state, row.reason = "paused", "paused by its owner"
        engine.state.registry.dirty_jobs.add(row.id)
        self.forecasting.forecaster.track_record.interrupted(row.id)
        if not engine.parts.jobs.admission.is_outside(row.id):
            now = engine.state.now_s()
            engine.state.emit(JobsPaused(now, np.array([row.id]), True))
        return lost

    def resume(self, caller: Caller, job: int, accept_loss: bool = False) -> None:
        """A paused job takes part again; with ``accept_loss`` also one that waits for its checkpoints."""
        accepted_by = caller.user if accept_loss else ""
        self._on_open(caller, job, lambda row: resume(self.engine, row, accepted_by))

    def set_weight(self, caller: Caller, job: int, weight: float) -> None:
        """Set the weight of a job, from the next round on."""
        check_weight(weight)
        self._on_open(caller, job, lambda row: self._reweight(row, weight))

    def _reweight(self, row: JobRow, weight: float) -> None:
        engine = self.engine
        row.weight = weight
        engine.state.registry.dirty_jobs.add(row.id)
        if row.id not in engine.parts.jobs.admission.unplaced:
            now = engine.state.now_s()
            engine.state.emit(JobsReweighted(now, np.array([row.id]), np.array([weight])))

    def _on_open(self, caller: Caller, job: int, do: Callable[[JobRow], _Result]) -> _Result:
        """Run an action on a job that has not ended."""
        check_person(caller)
        self._row(caller, job)
        self._tenants.check_change(caller)

        def run() -> _Result:
            row = self.engine.state.registry.jobs.get(job)
            if row is None or not self._is_open(row):
                raise ConflictError(f"job {job}: has ended already")
            result = do(row)
            self.forecasting.forecaster.outdate()
            return result

        return self._change(run)

    def jobs(
        self,
        caller: Caller,
        state: str = "",
        tenant: str = "",
        after: int = -1,
        limit: int = 1000,
        array: int | None = None,
    ) -> list[JobView]:
        """Return the jobs in order of id."""
        if caller.role != "admin":
            if tenant not in ("", caller.tenant):
                return []
            tenant = caller.tenant
        ids = None if array is None else task_ids(array, self._find(caller, array))
        after = after if ids is None else max(after, ids.start - 1)
        below = None if ids is None else ids.stop
        found = {job.id: job for job in self._ended_in_round(state, tenant, after, below)}
        listed = 0
        while True:
            rows = self.store.jobs(state, tenant, after, limit, below)
            views = [job for job in self.viewer.jobs(rows) if matches_state(job.state, state)]
            found |= {job.id: job for job in self.forecasting.with_deadlines(views)}
            listed += len(views)
            if len(rows) < limit or listed >= limit:
                return [job for _, job in sorted(found.items())][:limit]
            after = rows[-1].id

    def jobs_of(self, caller: Caller, ids: list[int]) -> list[JobView]:
        """Those of these jobs that there are and that the caller may see, in order of id."""
        rows = [row for row in self.store.jobs_of(ids) if may_see(caller, row.tenant)]
        return self.forecasting.with_deadlines(self.viewer.jobs(rows))

    def _ended_in_round(
        self, state: str, tenant: str, after: int, below: int | None
    ) -> list[JobView]:
        """Jobs of ids between these that have ended like this in the round in force."""
        if state not in ENDED_STATES:
            return []
        rows = [
            row
            for row in self.engine.state.registry.jobs.copy().values()
            if row.open and row.id > after and tenant in ("", row.tenant)
            if below is None or row.id < below
        ]
        return self.viewer.jobs([row for row in rows if self.viewer.displayed_state(row) == state])

    def _row(self, caller: Caller, job: int) -> JobRow:
        return existing(job, self._find(caller, job))

    def _find(self, caller: Caller, job: int) -> JobRow | None:
        """A job that the caller may see; None = there is none, as far as they may know."""
        row = self.engine.state.registry.jobs.get(job) or (
            self.store.job(job) if 0 <= job < 1 << 62 else None
        )
        return seen_by(caller, row)

    def job(self, caller: Caller, job: int) -> JobView:
        """One job."""
        (view,) = self.forecasting.with_deadlines([self.viewer.job(self._row(caller, job))])
        return view

    def attempts(self, caller: Caller, job: int) -> list[AttemptView]:
        """Its attempts, oldest first."""
        self._row(caller, job)
        return self.viewer.attempts(self._attempts(job))

    def _attempts(self, job: int) -> list[AttemptRow]:
        """Return the attempts as new as the job is shown, including those not yet on disk."""
        changed = {
            row.attempt: row
            for row in self.engine.state.registry.dirty_attempts.copy().values()
            if row.job == job
        }
        known = {row.attempt: row for row in self.store.attempts(job)}
        return [row for _, row in sorted((known | changed).items())]

    def explain(self, caller: Caller, job: int) -> Explanation:
        """Its story."""
        view = self.viewer.job(self._row(caller, job))
        attempts = self.viewer.attempts(self._attempts(job))
        told = self.forecasting.explain(caller, view, attempts)
        return (
            told if self.autoscaler is None else with_nodes_asked_for(told, self.autoscaler.view())
        )

    # --- cluster ---------------------------------------------------------------------------------
    def status(self, caller: Caller) -> StatusView:
        """The cluster in one screen."""
        return self.viewer.status(caller, self.engine.parts.view_parts.published.tally)

    def nodes(self, caller: Caller) -> list[NodeView]:
        """All nodes."""
        return self.viewer.nodes(caller)

    def drain(self, caller: Caller, node: str) -> list[str]:
        """Jobs leave the node, saved, and none comes to it. Returns sentences about work that is lost."""

        def run() -> list[str]:
            state = self.engine.state
            waits = self.engine.parts.jobs.retries.storage.reasons()
            lost = lost_by_drain(state, node, waits)
            self.engine.parts.nodes.service.drain(node, True)
            return lost

        return self._on_node(caller, node, run)

    def undrain(self, caller: Caller, node: str) -> None:
        """The node takes jobs again."""
        self._on_node(caller, node, lambda: self.engine.parts.nodes.service.drain(node, False))

    def remove_node(self, caller: Caller, node: str) -> None:
        """Forget a node that is drained, offline or lost."""
        self._on_node(caller, node, lambda: self.engine.parts.nodes.membership.remove(node))

    def revoke_node(self, caller: Caller, node: str) -> None:
        """Nothing that a node says counts any more; it is lost."""
        membership = self.engine.parts.nodes.membership
        self._on_node(caller, node, lambda: membership.revoke(node))

    def _on_node(self, caller: Caller, node: str, do: Callable[[], _Result]) -> _Result:
        check_admin(caller)

        def run() -> _Result:
            if node not in self.engine.state.fleet.nodes:
                raise NotFoundError(f"node {node[:80]!r}: there is none")
            return do()

        return self._change(run)

    def engine_plan(self, caller: Caller) -> EngineView:
        """What the engine is asked for now, and why."""
        check_admin(caller)
        if self.autoscaler is None:
            raise ConflictError("this server starts no nodes (`fairlead serve --engine`)")
        return self.autoscaler.view()

    def set_policy(self, caller: Caller, policy: str) -> None:
        """From the next round on."""
        check_admin(caller)
        options = self.engine.state.options
        registry.make(policy, seed=options.seed, profile=options.profile.name)
        self._change(lambda: self.engine.set_policy(policy))

    def what_if(self, caller: Caller, question: WhatIf) -> Comparison:
        """Return the forecasts without and with the changes that are asked about; nothing is touched."""
        check_person(caller)
        for number, spec in enumerate(question.add_jobs):
            where = f"add_jobs[{number}]"
            check_spec(spec)
            check_rates_known(where, spec, self.engine.state.options.catalogue)
            check_single(where, spec)
        return self.forecasting.compare(caller, question)

    def samples(self, caller: Caller, since_s: float = 0.0) -> list[Sample]:
        """Over time. To a user, tenants other than their own are ``others``."""
        samples = self.store.samples(since_s)
        if caller.role == "admin":
            return samples
        return [without_others(sample, caller.tenant) for sample in samples]

    def take_over(self, options: RuntimeOptions) -> None:
        """These options hold from now on."""
        self._tenants.limits = options.tenant_limits
        self.retention.keep(options)

    def reload(self, caller: Caller) -> ReloadAnswer:
        """Take over what the configuration file says now."""
        check_admin(caller)
        if self._reload is None:
            raise ConflictError("this server reads no configuration file")
        return self._reload()

    # --- agents ----------------------------------------------------------------------------------
    def register(self, message: Register, token: TokenKind = "own") -> "Future[Welcome]":
        """A node comes up. token: with which it comes."""
        check_name("node", message.node)
        check_name("accelerator", message.accelerator)
        if not 1 <= message.devices <= 1024:
            raise ConfigError(f"devices: must be from 1 to 1024, got {message.devices}")
        membership = self.engine.parts.nodes.membership
        return self.engine.call(lambda: membership.register(message, token=token))

    def metrics_text(self) -> str:
        """Return the driver's counters in the text format of Prometheus."""
        return generate_latest(self.counters.registry).decode()

    # --- the driver ------------------------------------------------------------------------------
    def _do(self, do: Callable[[], _Result]) -> _Result:
        """Have it done by the driver's thread; returns when it is durable."""
        future = self.engine.call(do)
        return self._answers.wait(future, future.cancel)

    def _change(self, do: Callable[[], _Result]) -> _Result:
        """Have something changed that is scheduled, or on which. Raises StoreError where nothing may be."""

        def run() -> _Result:
            if self.engine.state.halted:
                raise StoreError(self.engine.state.halted)
            return do()

        return self._do(run)


def _ignore(rows: list[UserRow] | list[NodeRow]) -> None:
    del rows
