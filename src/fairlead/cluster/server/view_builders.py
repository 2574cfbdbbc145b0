"""Views of a live cluster, made from what the server has in memory."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec.structs import replace

import fairlead
from fairlead.cluster.front.recent_results import RecentResults
from fairlead.cluster.front.visible_tenants import storage_trouble_for, tenants_for
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    ENDED_STATES,
    AttemptView,
    JobState,
    JobView,
    NodeView,
    ParkedView,
    Sample,
    StatusView,
    TenantView,
)
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.node_states import without_foreign_jobs
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempt_statuses import measured_rate
from fairlead.cluster.server.attempts import Attempt, holder
from fairlead.cluster.server.being_stopped import describe_stop, ended_by_agent, failed_rank
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.explain_placement import waits_for_others
from fairlead.cluster.server.forecast_obstacles import forecast_obstacles
from fairlead.cluster.server.job_pinning import JobPinning
from fairlead.cluster.server.least_times import least_s
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.live_progress import latest_status, steps_by_now, unheard
from fairlead.cluster.server.loaded_checkpoint import RESUMED, describe_accepted_loss
from fairlead.cluster.server.node_condition import NodeCondition, condition, lacking_nodes, usable
from fairlead.cluster.server.rates import rate_is_known
from fairlead.cluster.server.round_usage import RoundUsage
from fairlead.cluster.server.save_failures import last_save_failed
from fairlead.cluster.server.silence import silence, silence_of_stopping
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.cluster.server.storage_waits import StorageWaits
from fairlead.cluster.server.tally import Tally, TenantTally
from fairlead.cluster.server.unbooked_ends import unbooked_end
from fairlead.cluster.store.backup import backup_age_s
from fairlead.cluster.store.failures import waiting, waiting_for_storage
from fairlead.cluster.store.job_views import (
    attempt_views,
    cannot_start,
    job_view,
    reported_so_far,
    under_way_s,
)
from fairlead.cluster.store.rows import (
    ON_DEVICES,
    OPEN_STATES,
    AttemptRow,
    JobRow,
    TenantTotals,
)
from fairlead.model.commands import StartRound
from fairlead.model.duration_text import duration
from fairlead.policies import registry

# Of jobs that wait: no word on why they go on waiting
_OLD_REASONS = ("", AttemptEnd.NODE_LOST)
HALTED = "the cluster is halted: see `fairlead status`"


class ViewBuilder:
    """Reads what the driver's thread changes, without a lock: single values, each whole by itself."""

    def __init__(
        self,
        state: ClusterState,
        *,
        admission: Admission,
        pinning: JobPinning,
        solves: SolveCoordinator,
        storage: StorageWaits,
    ) -> None:
        self._state = state
        self._admission = admission
        self._pinning = pinning
        self._solves = solves
        self._storage = storage
        self._usage = RoundUsage()
        self._usable: RecentResults[dict[str, int]] = RecentResults(state.fleet.monotonic)

    def jobs(self, rows: list[JobRow]) -> list[JobView]:
        """Many of them."""
        return [self.job(row) for row in rows]

    def job(self, row: JobRow) -> JobView:
        """A job, with what is known of it now."""
        cluster = self._state
        row = cluster.registry.jobs.get(row.id, row)
        live = list(cluster.registry.live.get(row.id, ()))
        attempt, holds = live[-1] if live else None, holder(live)
        reporting = None if holds is None or holds.lost else holds  # also while it is being stopped
        ends = attempt is None or attempt.stopping or attempt.lost
        running = None if ends else reporting  # while it moves, where it still is
        steps = row.steps
        latest = None if reporting is None else latest_status(cluster.fleet, reporting)
        if reporting is not None and latest is not None and row.state != "completed":
            steps = steps_by_now(cluster.fleet, reporting)
        state, ended_s, reason = self._displayed(row)
        if not cluster.halted:
            stop = describe_stop(cluster.fleet, live, self._now())
            quiet = silence_of_stopping(cluster, live)
            reason = "; ".join(filter(None, [reason, stop, quiet]))
        counted_s = (
            row.counted_s if reporting is not None and unheard(cluster.fleet, reporting) else None
        )
        progress_age_s = None if counted_s is None else max(self._now() - counted_s, 0.0)
        if progress_age_s is not None:
            reason = "; ".join(
                filter(None, [reason, f"its steps are of {duration(progress_age_s)} ago"])
            )
        silent = bool(self._silence(row))  # its rate of now is not known then
        rates, measured = self._admission.rates(row), self._measured(row, reporting)
        measured_on = self._measured_on(row, reporting)
        known = rate_is_known(row, cluster.options.catalogue, measured)
        least = 0.0
        if not row.spec.devices:
            least = least_s(row.total_steps - steps, rates, measured, measured_on)
        return job_view(
            row,
            None if running is None else running.record,
            self._now(),
            under_way_s=under_way_s([one.record for one in live], self._now()),
            state=state,
            ended_s=ended_s,
            reason=reason,
            steps=steps,
            rates=rates,
            measured_rate=None if silent else measured,
            measured_on=measured_on,
            status=latest,
            progress_age_s=progress_age_s,
            rate_known=known,
            least_s=least if known else 0.0,
            no_end=forecast_obstacles(cluster, row.id, state).no_end
            if state not in ENDED_STATES
            else "",
        )

    def displayed_state(self, row: JobRow) -> JobState:
        """The state of a job as it is shown."""
        return self._standing(row, row.state)[0]

    def _displayed(self, row: JobRow) -> tuple[JobState, float | None, str]:
        """State, end and reason. What has ended in the round in force stands as it will at its report."""
        state = row.state  # the driver may end the job while this is found out
        displayed_state, ended_s = self._standing(row, state)
        if state not in OPEN_STATES:
            return displayed_state, ended_s, row.reason
        if self._state.halted:  # nothing starts, moves or ends, whatever its node does
            return displayed_state, None, f"as an older copy of the state has it; {HALTED}"
        if ended_s is not None:
            return displayed_state, ended_s, row.reason if state in ON_DEVICES else ""
        reason = self._silent(row) or self._reason(row, state)
        if not reason and displayed_state != state and not self._is_lost(row):
            reason = "takes part again in the next round"
        return displayed_state, None, reason

    def _standing(self, row: JobRow, state: JobState) -> tuple[JobState, float | None]:
        """State and end, as they are shown. state: of the row. Asked of thousands of jobs at once."""
        if state not in OPEN_STATES:
            return state, row.ended_s
        if self._state.halted:
            return state, None
        if state in ON_DEVICES and self._is_lost(row):
            return row.off_devices, None
        current = self._state.round
        over = None if current is None else current.ended.get(row.id)
        if over is None or self._silent(row):
            return state, None
        if over.completed:  # paused just now, perhaps
            return "completed", over.time_s
        return (row.off_devices if state in ON_DEVICES else state), None

    def _is_lost(self, row: JobRow) -> bool:
        """Return whether the newest attempt of a job is lost."""
        attempt = self._state.registry.newest(row.id)
        return attempt is not None and attempt.lost

    def _silent(self, row: JobRow) -> str:
        """Return why nothing is known of a job now; "" = it is."""
        return self._silence(row) or self._pinning.reason(row.id)

    def _reason(self, row: JobRow, state: JobState) -> str:
        """Return why an open job is in this state, "" = there is no more to say."""
        waits = state not in (*ON_DEVICES, "paused")
        reason = row.stall or self._end(row) or self._obstacle(row) or self._directory(row)
        if waits:
            reason = reason or self._admission.why_held(row) or self._admission.why_waits(row)
            if row.reason in _OLD_REASONS:
                reason = reason or self._out_of_use(row)
        reason = reason or self._handover(row) or row.reason
        reason = self._next_try(row, reason) or reason
        return _beginning(row, reason)

    def _next_try(self, row: JobRow, reason: str) -> str:
        """After how many failures a job is tried again, when, and why it failed; "" = it did not fail, or
        waits for something else. reason: what is known besides."""
        outside = self._admission.is_outside(row.id)
        if row.retry_s is not None:
            left_s, why = row.retry_s - self._now(), reason.removeprefix("failed: ")
        elif row.failed and row.recent_failures and row.state != "paused" and not outside:
            left_s, why = 0.0, row.recent_failures[-1].reason
        else:
            return ""
        if row.recent_failures and row.recent_failures[-1].of_storage:
            own = row.recent_failures[-1].of_checkpoints
            return waiting_for_storage(left_s, why, own=own)
        return waiting(row.failures_in_a_row, left_s, why, in_all=row.failures)

    def _silence(self, row: JobRow) -> str:
        """Return what is known of a job whose node is silent; "" = none is."""
        attempt = self._state.registry.newest(row.id)
        quiet = attempt is not None and not attempt.stopping and row.state in ON_DEVICES
        return silence(self._state, attempt) if quiet and attempt is not None else ""

    def _end(self, row: JobRow) -> str:
        """Return how the processes of a job with devices have ended, or why its agent ends them."""
        if row.state not in ON_DEVICES:
            return ""
        attempt = self._state.registry.newest(row.id)
        if ended := unbooked_end(self._state.fleet, attempt):
            return ended
        failed = failed_rank(self._state.fleet, attempt)
        why = failed or ended_by_agent(self._state.fleet, attempt)
        again = attempt is not None and not attempt.broken
        if why and attempt is not None and again and attempt.finishing and not failed:
            return f"its agent lets it finish, for as long as its grace: {why}"
        return f"is being ended{', and starts again' * again}: {why}" if why else ""

    def _handover(self, row: JobRow) -> str:
        """Return why a job that was given devices has not begun there."""
        attempt = self._state.registry.newest(row.id)
        if row.state not in ON_DEVICES or attempt is None:
            return ""
        waits = waits_for_others(self._state, attempt)
        return "waits for its devices, which another job has not left yet" if waits else ""

    def _out_of_use(self, row: JobRow) -> str:
        """Return why a job that waits could not run even if nobody else did."""
        if self._state.setup is None or self._state.registry.live.get(row.id):  # told otherwise
            return ""
        types = [name for name, rate in self._admission.rates(row).items() if rate > 0]
        devices = self._usable.of("", self._usable_devices)
        return lacking_nodes(row.scale_factor, types, devices)

    def _usable_devices(self) -> dict[str, int]:
        """Accelerator type -> devices on nodes that may be given jobs."""
        found: dict[str, int] = {}
        now = self._state.fleet.monotonic()
        for node in list(self._state.fleet.nodes.values()):
            if usable(node, now):
                found[node.accelerator] = found.get(node.accelerator, 0) + node.devices
        return found

    def _obstacle(self, row: JobRow) -> str:
        """Return what on its node keeps a job from starting there; "" = nothing."""
        attempt = self._state.registry.newest(row.id)
        return "" if attempt is None else cannot_start(attempt.obstacles)

    def _directory(self, row: JobRow) -> str:
        """Return the problem with the directory that a job saves to; "" = none."""
        attempt = self._state.registry.newest(row.id)
        problems = {} if attempt is None else attempt.directory_problems
        text = "; ".join(f"node {node}: {problem}" for node, problem in problems.items())
        on_devices = attempt is not None and row.state in ON_DEVICES
        return text or (last_save_failed(row, self._now()) if on_devices else "")

    def _now(self) -> float:
        return self._state.now_s()

    def _measured(self, row: JobRow, running: Attempt | None) -> float | None:
        if running is not None and running.leader is not None:
            status = self._state.fleet.status(running.first_node, running.key)
            since = None if running.is_colocated else running.solo_since
            now = None if status is None else measured_rate(status, since)
            if now is not None:
                return now
        return row.measured_rate

    def _measured_on(self, row: JobRow, running: Attempt | None) -> str:
        """Return where the rate that ``_measured`` gives was measured; "" = co-located with another job."""
        if running is None or self._measured(row, running) == row.measured_rate:
            return row.measured_on
        return "" if running.is_colocated else running.record.accelerator

    def attempts(self, rows: Iterable[AttemptRow]) -> list[AttemptView]:
        """Starts of a job, in this order."""
        return attempt_views(rows, self._as_now)

    def _as_now(self, row: AttemptRow) -> AttemptRow:
        """The record of an attempt, with what its node said last if it goes on."""
        attempts = list(self._state.registry.live.get(row.job, ()))
        attempt = next((one for one in attempts if one.record.attempt == row.attempt), None)
        if attempt is None or row.ended_s is not None:
            return row
        fleet = self._state.fleet
        status, done = latest_status(fleet, attempt), steps_by_now(fleet, attempt)
        if status is None:
            return replace(row, to_step=done)
        return reported_so_far(row, status, done, unmanaged=attempt.row.spec.unmanaged)

    def status(self, caller: Caller, tally: Tally) -> StatusView:
        """The cluster in one screen."""
        state, now = self._state, self._now()
        current = state.round
        states = Counter(tally.ended) + tally.states
        return StatusView(
            version=fairlead.__version__,
            now_s=now,
            policy=registry.listed_name(state.policy),
            profile=state.options.profile.name,
            round=-1 if state.scheduler is None else state.scheduler.data.round.number,
            round_s=state.round_s,
            round_ends_in_s=None if current is None else max(current.end_s - now, 0.0),
            jobs={state: n for state, n in states.items() if n},
            devices=tally.devices,
            solve=self._solves.state,
            solve_s=self._solves.took_s,
            decide_s=state.decide_s,
            journal_records=state.journal_records,
            tenants=tenants_for(caller, self._tenants(tally)),
            backup_age_s=backup_age_s(state.store.directory),
            halted=state.halted,
            unwritable=state.commit_error,
            checkpoints_trouble=storage_trouble_for(
                caller, self._storage.trouble, self._storage.count
            ),
            await_storage=self._storage.count,
            cannot_save=len(tally.unsaved_since),
            cannot_save_s=tally.unsaved_s(now),
            n_past_deadline=tally.past_deadline(now),
            runs_as=dict(Counter(n.runs_as for n in state.fleet.nodes.values() if n.runs_as)),
            restart_s=None if state.setup is None else state.setup.restart_costs.default_s,
        )

    def _held_devices(self, node: LiveNode) -> dict[int, tuple[int, ...]]:
        """Job -> devices of a node that it holds."""
        attempts = list(self._state.registry.on_node.get(node.name, {}).values())
        return {
            s.row.id: tuple(d for rank in s.nodes[node.name] for d in rank.devices)
            for s in attempts
            if s.ordered and not s.has_left(node.name)
        }

    def _tenants(self, tally: Tally) -> list[TenantView]:
        names = sorted({*list(self._state.registry.tenants), *tally.tenants})
        in_all = sum(tenant.weight for tenant in tally.tenants.values()) or 1.0
        device_s = self._received(names)
        received = sum(device_s.values()) or 1.0
        return [
            self._tenant(
                name, tally.tenants.get(name, TenantTally()), in_all, device_s[name], received
            )
            for name in names
        ]

    def _received(self, tenants: Iterable[str]) -> dict[str, float]:
        """Tenant -> device-seconds, those of the round in force included."""
        totals = self._state.registry.tenants
        under_way = self._usage.device_s(self._state.round, self._now())
        return {
            name: totals.get(name, TenantTotals()).device_s + under_way.get(name, 0.0)
            for name in tenants
        }

    def _tenant(
        self, name: str, open_: TenantTally, in_all: float, device_s: float, received_s: float
    ) -> TenantView:
        """open_: its open jobs; in_all: weights of all tenants' open jobs."""
        totals = self._state.registry.tenants.get(name, TenantTotals())
        return TenantView(
            name=name,
            jobs=open_.jobs,
            running=open_.running,
            done=totals.done,
            devices=open_.devices,
            share_promised=open_.weight / in_all,
            share_received=device_s / received_s,
            device_s=device_s,
            lost_device_s=totals.lost_device_s,
            mean_rho=totals.rho_sum / totals.rho_count if totals.rho_count else None,
            states={state: n for state, n in open_.states.items() if n},
        )

    def nodes(self, caller: Caller) -> list[NodeView]:
        """All nodes; to a user, jobs of other tenants are -1."""
        now = self._state.fleet.monotonic()
        nodes = sorted(self._state.fleet.nodes.copy().values(), key=lambda n: n.name)
        return [self.node(node, now, caller) for node in nodes]

    def node(self, node: LiveNode, now: float, caller: Caller) -> NodeView:
        """One node. now: monotonic seconds of the fleet."""
        holders: list[list[int]] = [[] for _ in range(node.devices)]
        shown = set[int]()
        for job, devices in self._held_devices(node).items():
            row = self._state.registry.jobs.get(job)
            seen = caller.role == "admin" or (row is not None and row.tenant == caller.tenant)
            if seen:
                shown.add(job)
            for device in devices:
                if device < node.devices:
                    holders[device].append(job if seen else -1)
        current = condition(node, now)
        if self._state.halted:  # whether it registers or not
            current = NodeCondition("waiting", HALTED)
        reason = current.reason
        if current.state == "up":
            reason = "; ".join(filter(None, (self._obstacles(node), reason)))
        return NodeView(
            name=node.name,
            accelerator=node.accelerator,
            devices=node.devices,
            state=current.state,
            host=node.host,
            simulated_devices=node.simulated_devices,
            runs_as=node.runs_as,
            last_seen_s=now - node.observed.seen if node.observed.seen else None,
            jobs=tuple(tuple(jobs) for jobs in holders),
            reason=reason if caller.role == "admin" else without_foreign_jobs(reason, shown),
            state_since_s=now - node.health.state_since if node.health.state_since else None,
            parked=tuple(self._parked(node, now, caller)),
        )

    def _parked(self, node: LiveNode, now: float, caller: Caller) -> Iterator[ParkedView]:
        told_s = max(now - node.observed.seen, 0.0) if node.observed.seen else 0.0
        for one in self._state.fleet.parked(node.name).values():
            row = self._state.registry.jobs.get(one.job)
            if caller.role != "admin" and (row is None or row.tenant != caller.tenant):
                continue
            if any(one.attempt == live.record.attempt for live in self._live_of(one.job)):
                continue  # ranks that have ended of a gang that runs, or what is about to be parked
            yield ParkedView(
                job=one.job,
                attempt=one.attempt,
                memory_bytes=one.memory_bytes,
                age_s=one.age_s + told_s,
            )

    def _live_of(self, job: int) -> list[Attempt]:
        return list(self._state.registry.live.get(job, ()))

    def _obstacles(self, node: LiveNode) -> str:
        """Return what on a node keeps jobs from starting there; "" = nothing."""
        attempts = list(self._state.registry.on_node.get(node.name, {}).values())
        found = {s.obstacles[node.name]: None for s in attempts if node.name in s.obstacles}
        return f"cannot start jobs: {'; '.join(found)}" if found else ""


def sample(state: ClusterState, command: StartRound) -> Sample:
    """A round that begins, for the plots."""
    assert state.setup is not None
    cluster = state.setup.cluster
    allocated = np.bincount(
        cluster.device_type[np.unique(command.devices)], minlength=len(cluster.accelerators)
    )
    by_tenant: Counter[str] = Counter()
    for group, first, behind in zip(
        command.job_groups.tolist(),
        command.offsets[:-1].tolist(),
        command.offsets[1:].tolist(),
        strict=True,
    ):
        members = [job for job in group if job >= 0 and job in state.registry.jobs]
        for job in members:
            by_tenant[state.registry.jobs[job].tenant] += (behind - first) / len(members)
    in_all = sum(by_tenant.values()) or 1.0
    running = int((command.job_groups >= 0).sum())
    return Sample(
        time_s=command.time_s,
        allocated=dict(zip(cluster.accelerators, allocated.tolist(), strict=True)),
        capacity=dict(
            zip(cluster.accelerators, cluster.capacity.astype(int).tolist(), strict=True)
        ),
        running=running,
        waiting=max(command.active - running, 0),
        share={name: part / in_all for name, part in by_tenant.items()},
    )


def _beginning(row: JobRow, reason: str) -> str:
    """Return ``reason`` and what is known of the checkpoints that a job begins with, or has begun with."""
    if row.state == "paused" or not (row.loss_accepted or row.origin):
        return reason
    if not row.loss_accepted:
        tells = row.state in ON_DEVICES and not row.origin.startswith(RESUMED)
        return reason or (row.origin if tells else "")
    old = bool(row.recent_failures) and row.recent_failures[-1].of_checkpoints
    return "; ".join(filter(None, [describe_accepted_loss(row), "" if old else reason]))
