"""Views of a live cluster, made from what the server has in memory."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

import fairlead
from fairlead.commands import StartRound
from fairlead.live.access import Caller
from fairlead.live.backup import backup_age_s
from fairlead.live.failures import waiting
from fairlead.live.fleet import LiveNode
from fairlead.live.node_states import condition, usable
from fairlead.live.protocol import Failure
from fairlead.live.retries import failures_in_a_row
from fairlead.live.rows import ON_DEVICES, OPEN_STATES, JobRow, StintRow, TenantSums
from fairlead.live.starts import LiveStart
from fairlead.live.views import (
    FailureView,
    JobState,
    JobView,
    NodeView,
    Sample,
    StatusView,
    StintView,
    TenantView,
)

if TYPE_CHECKING:
    from fairlead.live.engine import Engine


class Viewer:
    """Reads what the driver's thread changes, without a lock: single values, each whole by itself."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine

    def jobs(self, rows: list[JobRow]) -> list[JobView]:
        """Many of them."""
        return [self.job(row) for row in rows]

    def job(self, row: JobRow) -> JobView:
        """A job, with what is known of it now."""
        engine, spec = self.engine, row.spec
        row = engine.book.jobs.get(row.id, row)
        start = engine.book.newest(row.id)
        running = start if start is not None and not start.stopping else None
        steps = row.steps
        if running is not None and running.leader is not None and row.open:
            latest = engine.fleet.held(running.first_node, running.key)
            if latest is not None and latest.loaded_step >= 0:
                steps = float(min(latest.step, row.total_steps))
        state, ended_s, reason = self._standing(row)
        return JobView(
            id=row.id,
            name=row.name,
            tenant=row.tenant,
            user=row.user,
            family=spec.family,
            scale_factor=spec.scale_factor,
            weight=row.weight,
            state=state,
            total_steps=row.total_steps,
            steps=steps,
            saved_step=row.saved_step,
            submitted_s=row.submitted_s,
            started_s=row.started_s,
            ended_s=ended_s,
            node="" if running is None else running.stint.node,
            accelerator="" if running is None else running.stint.accelerator,
            devices=() if running is None else running.stint.devices,
            epoch=row.epoch,
            starts=row.starts,
            preemptions=row.preemptions,
            failures=row.failures,
            run_s=row.run_s + (0.0 if running is None else self._now() - running.stint.began_s),
            lost_steps=row.lost_steps,
            overhead_s=row.overhead_s,
            rates=engine.admission.rates(row),
            measured_rate=self._measured(row, running),
            slo_s=spec.slo_s,
            reason=reason,
            rho=row.rho,
            claimed=spec.rates,
            measured_on=self._measured_on(row, running),
            failure=_failure(row.failure),
            retry_in_s=None if row.retry_s is None else max(row.retry_s - self._now(), 0.0),
        )

    def _standing(self, row: JobRow) -> tuple[JobState, float | None, str]:
        """State, end and reason. What has ended in the round in force stands as it will at its report."""
        current = self.engine.backend.round
        over = None if current is None else current.ended.get(row.id)
        reason = row.reason
        reason = row.stall or reason
        if row.retry_s is not None and row.open:
            why = reason.removeprefix("failed: ")
            reason = waiting(failures_in_a_row(row), row.retry_s - self._now(), why)
        if row.state not in ON_DEVICES or over is None:
            return row.state, row.ended_s, reason
        if over.completed:
            return "completed", over.time_s, row.reason
        return "preempted", None, reason or "takes part again in the next round"

    def _now(self) -> float:
        return self.engine.clock.now_s()

    def _measured(self, row: JobRow, running: LiveStart | None) -> float | None:
        if running is not None and running.leader is not None and not row.spec.plain:
            held = self.engine.fleet.held(running.first_node, running.key)
            if held is not None and held.loaded_step >= 0 and held.ran_s > 1.0:
                return (held.step - held.loaded_step) / held.ran_s
        return row.measured_rate

    def _measured_on(self, row: JobRow, running: LiveStart | None) -> str:
        """Where the rate was measured that ``_measured`` gives."""
        if running is None or self._measured(row, running) == row.measured_rate:
            return row.measured_on
        return running.stint.accelerator

    def stint(self, row: StintRow) -> StintView:
        """One start of a job."""
        return StintView(
            job=row.job,
            epoch=row.epoch,
            node=row.node,
            accelerator=row.accelerator,
            devices=row.devices,
            began_s=row.began_s,
            ended_s=row.ended_s,
            from_step=row.from_step,
            to_step=self._reached(row),
            why=row.why,
            wait_s=row.wait_s,
            start_s=row.start_s,
            load_s=row.load_s,
            save_s=row.save_s,
            stop_s=row.stop_s,
            lost_steps=row.lost_steps,
            trained_s=row.trained_s,
            traceback=row.traceback,
        )

    def _reached(self, row: StintRow) -> float:
        """Where a start has come to, if it goes on."""
        starts = self.engine.book.live.get(row.job, ())
        mine = [start for start in list(starts) if start.stint.epoch == row.epoch]
        return mine[0].progress() if mine else row.to_step

    def status(self, caller: Caller) -> StatusView:
        """The cluster in one screen."""
        engine, now = self.engine, self._now()
        current = engine.backend.round
        rows = list(engine.book.jobs.values())
        states: Counter[str] = Counter(engine.ended_counts)
        states.update(self._standing(row)[0] for row in rows if row.state in OPEN_STATES)
        return StatusView(
            version=fairlead.__version__,
            now_s=now,
            policy=engine.policy,
            profile=engine.options.profile.name,
            round=-1 if engine.scheduler is None else engine.scheduler.round,
            round_s=engine.options.profile.round_s,
            round_ends_in_s=None if current is None else max(current.end_s - now, 0.0),
            jobs={state: n for state, n in states.items() if n},
            devices=self._devices(),
            solve=engine.trouble or engine.solving.state,
            solve_s=engine.solving.took_s,
            decide_s=engine.decide_s,
            journal_records=engine.journal_records,
            tenants=self._tenants(caller, rows),
            backup_age_s=backup_age_s(engine.store.directory),
        )

    def _devices(self) -> dict[str, tuple[int, int, int]]:
        counts: dict[str, list[int]] = {}
        now = self.engine.fleet.monotonic()
        for node in list(self.engine.fleet.nodes.values()):
            count = counts.setdefault(node.accelerator, [0, 0, 0])
            count[0] += node.devices
            if usable(node, now):
                count[1] += node.devices
            starts = list(self.engine.book.on_node.get(node.name, {}).values())
            ranks = [r for start in starts if start.ordered for r in start.nodes[node.name]]
            count[2] += len({device for rank in ranks for device in rank.devices})
        return {name: (a, b, c) for name, (a, b, c) in sorted(counts.items())}

    def _held(self, node: LiveNode) -> dict[int, tuple[int, ...]]:
        """Job -> devices of a node that it holds."""
        starts = list(self.engine.book.on_node.get(node.name, {}).values())
        return {
            s.row.id: tuple(d for rank in s.nodes[node.name] for d in rank.devices)
            for s in starts
            if s.ordered
        }

    def _tenants(self, caller: Caller, rows: list[JobRow]) -> tuple[TenantView, ...]:
        open_: dict[str, list[JobRow]] = {name: [] for name in list(self.engine.book.tenants)}
        for row in rows:
            if row.state in OPEN_STATES:
                open_.setdefault(row.tenant, []).append(row)
        weights = {name: sum(row.weight for row in jobs) for name, jobs in open_.items()}
        in_all = sum(weights.values()) or 1.0
        device_s = self._received(open_)
        received = sum(device_s.values()) or 1.0
        views = [
            self._tenant(name, open_[name], weights[name] / in_all, device_s[name], received)
            for name in sorted(open_)
        ]
        if caller.role == "admin":
            return tuple(views)
        mine = [view for view in views if view.name == caller.tenant]
        others = [view for view in views if view.name != caller.tenant]
        return (*mine, *([_together(others)] if others else []))

    def _received(self, tenants: Iterable[str]) -> dict[str, float]:
        """Tenant -> device-seconds, those of the round in force included."""
        sums = self.engine.book.tenants
        device_s = {name: sums.get(name, TenantSums()).device_s for name in tenants}
        current, now = self.engine.backend.round, self._now()
        if current is None:
            return device_s
        for job, start in list(current.starts.items()):
            if job not in current.ended and start.row.tenant in device_s:
                lasted_s = now - max(start.stint.began_s, current.started_s)
                device_s[start.row.tenant] += lasted_s * start.row.spec.scale_factor
        return device_s

    def _tenant(
        self, name: str, mine: list[JobRow], promised: float, device_s: float, received_s: float
    ) -> TenantView:
        """mine: its open jobs."""
        sums = self.engine.book.tenants.get(name, TenantSums())
        running = [row for row in mine if row.state in ON_DEVICES]
        return TenantView(
            name=name,
            jobs=len(mine),
            running=len(running),
            done=sums.done,
            devices=sum(row.spec.scale_factor for row in running),
            share_promised=promised,
            share_received=device_s / received_s,
            device_s=device_s,
            lost_device_s=sums.lost_device_s,
            mean_rho=sums.rho_sum / sums.rho_count if sums.rho_count else None,
            states=dict(Counter(row.state for row in mine)),
        )

    def nodes(self, caller: Caller) -> list[NodeView]:
        """All nodes; to a user, jobs of other tenants are -1."""
        now = self.engine.fleet.monotonic()
        nodes = sorted(self.engine.fleet.nodes.copy().values(), key=lambda n: n.name)
        return [self._node(node, now, caller) for node in nodes]

    def _node(self, node: LiveNode, now: float, caller: Caller) -> NodeView:
        holders: list[list[int]] = [[] for _ in range(node.devices)]
        for job, devices in self._held(node).items():
            row = self.engine.book.jobs.get(job)
            seen = caller.role == "admin" or (row is not None and row.tenant == caller.tenant)
            for device in devices:
                if device < node.devices:
                    holders[device].append(job if seen else -1)
        current = condition(node, now)
        return NodeView(
            name=node.name,
            accelerator=node.accelerator,
            devices=node.devices,
            state=current.state,
            host=node.host,
            fake=node.fake,
            last_seen_s=now - node.seen if node.seen else None,
            jobs=tuple(tuple(jobs) for jobs in holders),
            reason=current.reason,
            state_since_s=now - node.state_since if node.state_since else None,
        )


def _failure(failure: Failure | None) -> FailureView | None:
    if failure is None:
        return None
    names = FailureView.__struct_fields__
    return FailureView(**{name: getattr(failure, name) for name in names})


def _together(views: list[TenantView]) -> TenantView:
    """Other tenants, as a user is shown them."""
    return TenantView(
        name="others",
        jobs=sum(v.jobs for v in views),
        running=sum(v.running for v in views),
        done=sum(v.done for v in views),
        devices=sum(v.devices for v in views),
        share_promised=sum(v.share_promised for v in views),
        share_received=sum(v.share_received for v in views),
        device_s=sum(v.device_s for v in views),
        lost_device_s=sum(v.lost_device_s for v in views),
        mean_rho=None,
    )


def sample(engine: "Engine", command: StartRound) -> Sample:
    """A round that begins, for the plots."""
    assert engine.setup is not None
    cluster = engine.setup.cluster
    held = np.bincount(
        cluster.device_type[np.unique(command.devices)], minlength=len(cluster.accelerators)
    )
    by_tenant: Counter[str] = Counter()
    for unit, first, behind in zip(
        command.units.tolist(), command.first[:-1].tolist(), command.first[1:].tolist(), strict=True
    ):
        members = [job for job in unit if job >= 0 and job in engine.book.jobs]
        for job in members:
            by_tenant[engine.book.jobs[job].tenant] += (behind - first) / len(members)
    in_all = sum(by_tenant.values()) or 1.0
    running = int((command.units >= 0).sum())
    return Sample(
        time_s=command.time_s,
        held=dict(zip(cluster.accelerators, held.tolist(), strict=True)),
        capacity=dict(
            zip(cluster.accelerators, cluster.capacity.astype(int).tolist(), strict=True)
        ),
        running=running,
        waiting=max(command.active - running, 0),
        share={name: part / in_all for name, part in by_tenant.items()},
    )
