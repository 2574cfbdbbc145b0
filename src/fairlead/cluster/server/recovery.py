"""What a server finds when it starts: the state of the one before it, however that ended."""

from typing import TYPE_CHECKING

import msgspec

from fairlead.cluster.protocol.messages import Rank
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Inherited
from fairlead.cluster.server.restored import reserve
from fairlead.cluster.store.rows import (
    AttemptRow,
    JobRow,
    NodeRow,
    TenantSums,
)
from fairlead.model.job import JobId
from fairlead.scheduler import journal

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop

DEFAULT_POLICY = "max_min_fairness_perf"  # of a new cluster: LAS with regard to types


def recover(engine: "ServerLoop") -> None:
    """Bring book, fleet, clock and core to where the last commit left them."""
    store = engine.store
    engine.clock.from_meta(store.meta("clock"))
    engine.next_job = store.last_job() + 1
    engine.ended_counts, engine.journal_records = store.ended(), store.records()
    _load_nodes(engine)
    for row in store.open_jobs():
        engine.book.jobs[row.id] = row
    _number_orders(engine)
    if (kept := store.meta("tenants")) is not None:
        engine.book.tenants = msgspec.json.decode(kept, type=dict[str, TenantSums])
    engine.policy = engine.options.policy or store.meta("policy") or DEFAULT_POLICY
    engine.write(lambda t: t.set_meta("policy", engine.policy))
    _load_core(engine)
    _load_starts(engine)
    engine.retries.recover()
    _load_grants(engine)
    _load_round(engine)
    for start in [s for starts in engine.book.live.values() for s in starts]:
        for node in start.nodes:
            if node not in engine.fleet.nodes:
                engine.backend.abandon(node, [start], "its node is no longer in the cluster")
    reserve(engine)
    options = engine.options
    engine.backend.settled_s = engine.clock.now_s() + max(
        options.lease_s, 4 * engine.fleet.heartbeat_s
    )
    engine.rebuild()


def _load_nodes(engine: "ServerLoop") -> None:
    rows = {row.name: row for row in engine.store.nodes()}
    for node in engine.options.nodes or ():
        old = rows.get(node.name)
        if old is None or (old.accelerator, old.devices) != (node.accelerator, node.devices):
            row = NodeRow(
                name=node.name, accelerator=node.accelerator, devices=node.devices, host=""
            )
            rows[node.name] = row
            engine.write(lambda t, row=row: t.put_node(row))  # type: ignore[misc]
    wanted = None if engine.options.nodes is None else {n.name for n in engine.options.nodes}
    for row in rows.values():
        if wanted is not None and row.name not in wanted:
            engine.write(lambda t, row=row: t.delete_node(row.name))  # type: ignore[misc]
            continue
        engine.fleet.add(row.name, row.accelerator, row.devices, row.drained)
        engine.fleet.nodes[row.name].host = row.host
        engine.fleet.nodes[row.name].simulated_devices = row.simulated_devices
        engine.fleet.nodes[row.name].cordoned = row.cordoned
        engine.fleet.nodes[row.name].machine = row.machine
        engine.fleet.nodes[row.name].superseded = dict.fromkeys(row.superseded)
        engine.fleet.nodes[row.name].last_incarnation = row.incarnation
        if row.incarnation:  # it may still hold jobs, and must get the time to say so
            lease_s = engine.options.lease_s * (1 + engine.options.rate_bound)
            engine.fleet.nodes[row.name].lease_until = engine.fleet.monotonic() + lease_s


def _number_orders(engine: "ServerLoop") -> None:
    """Every run of the server numbers its orders above those of all before."""
    runs = int(engine.store.meta("runs") or 0) + 1
    engine.fleet.count_from(runs << 32)
    engine.write(lambda t: t.set_meta("runs", str(runs)))


def _load_core(engine: "ServerLoop") -> None:
    number, records = engine.store.segment()
    if number < 0:
        engine.admission.unplaced.update(engine.book.jobs)
        return
    name = f"{engine.store.path}: segment {number}"
    setup, state, tail = journal.begin(records, name)
    found = journal.recover(setup, state, tail, name=name)
    core = found.scheduler
    engine.scheduler, engine.setup = core, setup
    engine.backend.cluster = setup.cluster
    engine.backend.lost_nodes = {
        node.name
        for i, node in enumerate(core.cluster.nodes)
        if not core.running.site.works[core.cluster.device_node == i].all()
    }
    for job, row in engine.book.jobs.items():
        if JobId(job) in core.ledger:
            books = core.ledger
        elif JobId(job) in core.paused_jobs:
            books = core.paused_jobs
            if row.state != "paused" and row.retry_s is None:
                engine.admission.unfit.add(job)
        else:
            engine.admission.unplaced.add(job)
            continue
        row.acknowledged_total = float(books.jobs.total[books.row(JobId(job))])
        if row.acknowledged_total != row.total_steps:
            engine.backend.adapted.add(job)
        row.credited = float(books.jobs.done[books.row(JobId(job))])


def _load_starts(engine: "ServerLoop") -> None:
    """Starts that had not ended: their nodes will say what became of them."""
    for stint in engine.store.open_stints():
        row = engine.book.jobs.get(stint.job) or engine.store.job(stint.job)
        if row is not None:
            engine.book.jobs[row.id] = row
            engine.book.add(_start(engine, row, stint))
    for starts in engine.book.live.values():
        starts.sort(key=lambda start: start.stint.epoch)
        starts[0].ordered = starts[0].stint.ordered = True
        for start in starts[:-1]:
            start.stopping = "moved"


def _load_grants(engine: "ServerLoop") -> None:
    """Any start that had been ordered may have got a lease of the server before; what an agent had left to
    the one after it may still run for as long."""
    fleet = engine.fleet
    ends = fleet.monotonic() + fleet.lease_s * (1 + fleet.rate_bound) + fleet.silence_s
    for row in engine.store.nodes():
        node = fleet.nodes.get(row.name)
        if node is None:
            continue
        mine = engine.book.on_node.get(row.name, {})
        node.granted.update(key for key, start in mine.items() if start.ordered)
        for job, epoch, incarnation in row.inherited:
            start = mine.get((job, epoch))
            if start is not None:
                until = ends + start.row.spec.longest_grace_s
                node.inherited[job, epoch] = Inherited(incarnation, until)


def _start(engine: "ServerLoop", row: JobRow, stint: AttemptRow) -> Attempt:
    ranks: dict[str, tuple[Rank, ...]] = {}
    for number, (node, device) in enumerate(zip(stint.nodes, stint.devices, strict=True)):
        ranks[node] = (*ranks.get(node, ()), Rank(rank=number, devices=(device,)))
    rate = engine.admission.rates(row).get(stint.accelerator, 0.0)
    # The seconds of an unmanaged job's start, which its node tells, count from where it began.
    from_step = stint.from_step if row.spec.unmanaged else row.steps
    return Attempt(row, stint, ranks, rate, from_step)


def _load_round(engine: "ServerLoop") -> None:
    """The round in force, as the core has it. Whoever runs and is not of it is to stop."""
    core = engine.scheduler
    members: dict[int, Attempt] = {}
    if core is not None and core.active and core.in_force is not None:
        command = core.in_force
        members = engine.backend.resume_round(
            command,
            {
                job: _last_start(engine, job)
                for job in command.job_groups[command.job_groups >= 0].tolist()
            },
        )
    ended = engine.backend.round.ended if engine.backend.round is not None else {}
    for job, row in engine.book.jobs.items():
        if (
            job not in ended and job not in engine.admission.unplaced
        ):  # what the core was about to be told
            engine.backend.correct(row, row.steps)
    for job, starts in engine.book.live.items():
        if members.get(job) is not starts[-1]:
            starts[-1].stopping = starts[-1].stopping or "preempted"
        else:
            engine.backend.order(starts[-1])


def _last_start(engine: "ServerLoop", job: int) -> Attempt:
    """The newest start of a job of the round, which may have ended."""
    start = engine.book.newest(job)
    if start is not None:
        return start
    row = engine.book.jobs.get(job) or engine.store.job(job)
    assert row is not None
    return _start(engine, row, engine.store.stints(job)[-1])
