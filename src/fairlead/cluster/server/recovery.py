"""The recovery of a server as it starts: from the state of the one before it, however that ended."""

import msgspec
from msgspec.structs import replace

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import Rank
from fairlead.cluster.protocol.plausible import described
from fairlead.cluster.server.after_restore import continue_numbering
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.checkpoint_directories import settle_checkpoints
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.collaborators import Collaborators
from fairlead.cluster.server.fleet import RETURN_S
from fairlead.cluster.server.lease_lengths import longest_lease_s
from fairlead.cluster.server.live_node import Inherited
from fairlead.cluster.server.options import DEFAULT_POLICY
from fairlead.cluster.store.replay import judged_as_state, repeated_as_start
from fairlead.cluster.store.rows import (
    AttemptRow,
    JobRow,
    NodeRow,
    TenantTotals,
)
from fairlead.model.job import JobId
from fairlead.scheduler import journal


def recover(state: ClusterState, parts: Collaborators) -> None:
    """Bring registry, fleet, clock and core to where the last commit left them."""
    store, registry = state.store, state.registry
    state.clock.from_meta(store.meta("clock"))
    state.next_job = store.last_job() + 1
    state.ended_counts, state.journal_records = store.ended(), store.records()
    lease_s = longest_lease_s(state)
    _load_nodes(state, lease_s)
    for row in store.open_jobs():
        registry.jobs[row.id] = row
    run = _number_orders(state)
    if (tenants := store.meta("tenants")) is not None:
        registry.tenants = msgspec.json.decode(tenants, type=dict[str, TenantTotals])
    state.policy = state.options.policy or store.meta("policy") or DEFAULT_POLICY
    state.write(lambda t: t.set_meta("policy", state.policy))
    _load_core(state, parts)
    _load_attempts(state, parts, lease_s)
    settle_checkpoints(state)
    parts.jobs.retries.recover()
    parts.attempts.starts.recover()
    _load_grants(state, lease_s)
    _load_round(state, parts)
    continue_numbering(state, parts.attempts.ends, lease_s)
    if parts.attempts.notices is not None:
        parts.attempts.notices.recover()
    admission = parts.jobs.admission
    admission.held.recover(registry.jobs.values(), admission.unplaced)
    parts.nodes.rollback.begin(run)
    _await_nodes(state, parts, lease_s)
    state.rebuild_due = True


def _load_nodes(state: ClusterState, lease_s: float) -> None:
    rows = {row.name: row for row in state.store.nodes()}
    for wished in state.options.nodes or ():
        old = rows.get(wished.name) or NodeRow(name=wished.name, accelerator="", devices=0, host="")
        if (old.accelerator, old.devices) != (wished.accelerator, wished.devices):
            row = replace(old, accelerator=wished.accelerator, devices=wished.devices)
            rows[wished.name] = row
            state.write(lambda t, row=row: t.put_node(row))  # type: ignore[misc]
    wanted = rows.keys() if state.options.nodes is None else {n.name for n in state.options.nodes}
    occupied = {name for attempt in state.store.open_attempts() for name in attempt.nodes}
    for row in rows.values():
        if row.name not in wanted | occupied:
            state.write(lambda t, row=row: t.delete_node(row.name))  # type: ignore[misc]
            continue
        node = state.fleet.add(row.name, row.accelerator, row.devices, row.drained)
        node.leaving = row.name not in wanted
        node.host = described("host", row.host)  # as its agent told an earlier version, perhaps
        node.runs_as = described("runs_as", row.runs_as)
        node.simulated_devices = row.simulated_devices
        node.health.cordoned = row.cordoned
        node.agent.machine = row.machine
        node.agent.superseded = dict.fromkeys(row.superseded)
        node.agent.last_incarnation = row.incarnation
        node.agent.left_s, node.agent.ends_s = row.left_s, row.ends_s
        node.agent.token_hash, node.agent.revoked = row.token_hash, row.revoked
        node.suspect = bool(row.incarnation) and not row.left_s  # until it has registered
        if row.incarnation:  # it may still hold jobs, and must get the time to say so
            node.leases.until = state.fleet.monotonic() + lease_s


def _await_nodes(state: ClusterState, parts: Collaborators, lease_s: float) -> None:
    """Nodes get nothing new before they have registered. Where a round is in force they are only out of use
    once it ends or they have been silent for too long, so that its jobs notice nothing of a restart."""
    now, timeout_s = state.now_s(), max(lease_s, 4 * state.fleet.heartbeat_s)
    state.fleet.await_reports(RETURN_S)
    parts.rounds.clock.wait_for_nodes(now + RETURN_S, now + timeout_s)
    if state.round is None:
        for name in state.fleet.nodes:
            state.disable(name)  # before anything else that the core is told


def _number_orders(state: ClusterState) -> int:
    """Every run of the server numbers its orders above those of all before. Returns the run's number."""
    runs = int(state.store.meta("runs") or 0) + 1
    state.fleet.set_order_seq(runs << 32)
    state.write(lambda t: t.set_meta("runs", str(runs)))
    return runs


def _load_core(state: ClusterState, parts: Collaborators) -> None:
    number, records = state.store.segment()
    if number < 0:
        parts.jobs.admission.unplaced.update(state.registry.jobs)
        return
    name = f"{state.store.path}: segment {number}"
    setup, checkpoint, tail = journal.read_beginning(records, name)
    with repeated_as_start(), judged_as_state(state.store.path, number):
        found = journal.recover(setup, checkpoint, tail, name=name)
    core = found.scheduler
    state.scheduler, state.setup = core, setup
    if state.options.automatic_round:
        state.round_s = setup.settings.round_s
    state.lost_nodes = {
        node.name
        for i, node in enumerate(core.data.cluster.nodes)
        if not core.data.running.topology.usable[core.data.cluster.device_node == i].all()
    }
    for job, row in state.registry.jobs.items():
        if JobId(job) in core.data.ledger:
            table = core.data.ledger
        elif JobId(job) in core.data.paused_jobs:
            table = core.data.paused_jobs
            if row.state != "paused" and row.retry_s is None:
                parts.jobs.admission.unfit.add(job)
        else:
            parts.jobs.admission.unplaced.add(job)
            continue
        row.acknowledged_total = float(table.jobs.total[table.row(JobId(job))])
        if row.acknowledged_total != row.total_steps:
            parts.attempts.steps.adapted(job)
        row.acknowledged_steps = float(table.jobs.done[table.row(JobId(job))])


def _load_attempts(state: ClusterState, parts: Collaborators, lease_s: float) -> None:
    """Starts that had not ended: their nodes will say what became of them."""
    for record in state.store.open_attempts():
        row = state.registry.jobs.get(record.job) or state.store.job(record.job)
        if row is not None:
            state.registry.jobs[row.id] = row
            state.registry.add(_attempt(parts, row, record))
    for attempts in state.registry.live.values():
        for attempt in attempts:  # until its node tells that it goes on: nothing outlives its lease
            attempt.known_until_s = (
                state.clock.restored_s + lease_s + attempt.row.spec.longest_grace_s
            )
        attempts.sort(key=lambda attempt: attempt.record.attempt)
        attempts[0].ordered = attempts[0].record.ordered = True
        for attempt in attempts[:-1]:
            attempt.stop(AttemptEnd.MOVED)
        # Its nodes may hold it, and would never begin it again once they have let go of it.
        attempts[-1].standby = attempts[-1].row.spec.standby and not attempts[-1].ordered


def _load_grants(state: ClusterState, lease_s: float) -> None:
    """Any attempt that had been ordered may have got a lease of the server before; what an agent had left to
    the one after it may still run for as long."""
    fleet = state.fleet
    ends = fleet.monotonic() + lease_s + fleet.silence_s
    for row in state.store.nodes():
        node = fleet.nodes.get(row.name)
        if node is None:
            continue
        mine = state.registry.on_node.get(row.name, {})
        node.leases.granted.update(key for key, attempt in mine.items() if attempt.ordered)
        for job, number, incarnation in row.inherited:
            attempt = mine.get((job, number))
            if attempt is not None:
                until = ends + attempt.row.spec.longest_grace_s
                node.agent.inherited[job, number] = Inherited(incarnation, until)


def _attempt(parts: Collaborators, row: JobRow, record: AttemptRow) -> Attempt:
    ranks: dict[str, tuple[Rank, ...]] = {}
    for number, (node, device) in enumerate(zip(record.nodes, record.devices, strict=True)):
        ranks[node] = (*ranks.get(node, ()), Rank(rank=number, devices=(device,)))
    rate = parts.jobs.admission.rates(row).get(record.accelerator, 0.0)
    # The seconds of an unmanaged job's start, which its node tells, count from where it began.
    from_step = record.from_step if row.spec.unmanaged else row.steps
    return Attempt(row, record, ranks, rate, from_step, resumes=record.resumes)


def _load_round(state: ClusterState, parts: Collaborators) -> None:
    """The round in force, as the core has it. Whoever runs and is not of it is to stop."""
    core = state.scheduler
    members: dict[int, Attempt] = {}
    if core is not None and core.data.round.active and core.data.round.in_force is not None:
        groups = core.data.round.in_force.job_groups
        members = {job: _last_attempt(state, parts, job) for job in groups[groups >= 0].tolist()}
        parts.rounds.starter.resume(core.data.round.in_force, members)
    ended = state.round.ended if state.round is not None else {}
    for job, row in state.registry.jobs.items():
        if (
            job not in ended and job not in parts.jobs.admission.unplaced
        ):  # what the core was about to be told
            parts.attempts.steps.correct(row, row.steps)
    for job, attempts in state.registry.live.items():
        if members.get(job) is not attempts[-1]:
            if not attempts[-1].stopping:
                end = AttemptEnd.without_place(state.registry.jobs[job].state)
                attempts[-1].stop(end)
        else:
            parts.attempts.orders.order(attempts[-1])


def _last_attempt(state: ClusterState, parts: Collaborators, job: int) -> Attempt:
    """The newest attempt of a job of the round, which may have ended."""
    attempt = state.registry.newest(job)
    if attempt is not None:
        return attempt
    row = state.registry.jobs.get(job) or state.store.job(job)
    assert row is not None
    return _attempt(parts, row, state.store.attempts(job)[-1])
