"""A scheduler's state: taken over by another, also with other nodes, rates or policies."""

from dataclasses import replace

import numpy as np
import pytest
from tests.job_types import job_types
from tests.scheduler.core.test_scheduler import (
    handle_all,
    round_report,
    started_round,
    submit,
)

from fairlead.errors import ThroughputError
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.events import (
    JobsPaused,
    JobsSubmitted,
    NodeLost,
)
from fairlead.model.job import Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint, take_checkpoint
from fairlead.scheduler.core.paused_jobs import accounts_of
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.journal import (
    decode,
    decode_state,
    encode,
)
from fairlead.scheduler.mechanism.settings import DEFAULT, GAVEL
from fairlead.scheduler.setup import (
    Setup,
    build,
    restore,
)

TWO = Throughputs(
    (SlotType("k80"), SlotType("v100")),
    job_types(("net", 1), ("net", 2)),
    np.array([[4.0, 10.0], [7.0, 18.0]]),
    np.array([[[3.0, 8.0], [0, 0]], [[0, 0], [5.0, 15.0]]]),
)


def nodes(**devices: int) -> Cluster:
    """v100 nodes, and k80 nodes where the name begins with k."""
    made = [Node(n, "k80" if n[0] == "k" else "v100", count) for n, count in devices.items()]
    return Cluster(tuple(made))


def setup(cluster: Cluster, policy: str = "las_aware", table: Throughputs = TWO) -> Setup:
    return Setup(
        version="0", cluster=cluster, throughputs=table, policy=policy, settings=DEFAULT, seed=0
    )


def moved(core: Scheduler, to: Setup) -> Scheduler:
    """By way of the journal."""
    record = encode(take_checkpoint(core.data))
    assert encode(decode(record)) == record
    new = restore(to, decode_state(record))
    invariants.check(new)
    return new


def devices(core: Scheduler) -> dict[int, list[tuple[str, int]]]:
    """job -> (node, place) of its devices in the round in force."""
    command, cluster = core.data.round.in_force, core.data.cluster
    assert command is not None
    first = np.searchsorted(cluster.device_node, np.arange(len(cluster.nodes)))
    out = {}
    for u, job in enumerate(command.job_groups[:, 0].tolist()):
        mine = command.devices[command.offsets[u] : command.offsets[u + 1]]
        where = cluster.device_node[mine]
        out[job] = [
            (cluster.nodes[n].name, int(d - first[n])) for n, d in zip(where, mine, strict=True)
        ]
    return out


def test_the_state_of_a_scheduler_that_has_done_nothing() -> None:
    core = moved(build(setup(nodes(a=2))), setup(nodes(a=2)))
    assert started_round(handle_all(core, submit(1))).job_groups.tolist() == [[1]]


def test_jobs_keep_their_devices_when_a_node_is_added_before_theirs() -> None:
    core = build(setup(nodes(b=2)))
    first = started_round(handle_all(core, submit(1, 2)))
    was = devices(core)
    core = moved(core, setup(nodes(a=4, b=2, k=4)))
    assert devices(core) == was == {1: [("b", 0)], 2: [("b", 1)]}
    second = started_round(handle_all(core, round_report(first, 360.0, 3600.0)))
    assert second.kept.all()
    assert devices(core) == was
    assert core.data.ledger.jobs.done.tolist() == [3600.0, 3600.0]


def test_a_node_that_is_gone_takes_its_devices_but_not_the_report() -> None:
    core = build(setup(nodes(a=2, b=2)))
    first = started_round(handle_all(core, submit(1, 2, devices=2)))
    core = moved(moved(core, setup(nodes(b=2))), setup(nodes(b=2)))  # twice
    second = started_round(handle_all(core, round_report(first, 100.0, 500.0)))
    assert core.data.ledger.jobs.done.tolist() == [500.0, 500.0]
    (runs,) = second.job_groups[:, 0].tolist()
    assert devices(core)[runs] == [("b", 0), ("b", 1)]
    invariants.check(core)


def test_an_accelerator_type_that_is_gone() -> None:
    core = build(setup(nodes(a=1, k=1)))
    first = started_round(handle_all(core, submit(1, 2)))
    core = moved(core, setup(nodes(a=1)))
    again = started_round(handle_all(core, round_report(first, 100.0, 500.0)))
    assert core.data.ledger.jobs.done.tolist() == [500.0, 500.0]
    assert len(again.job_groups) == 1


def test_lost_nodes_stay_lost() -> None:
    core = build(setup(nodes(a=2, b=2)))
    handle_all(core, NodeLost(0.0, "a"))
    core = moved(core, setup(nodes(a=2, b=2, c=1)))
    assert core.data.capacity.tolist() == [3.0]
    first = started_round(handle_all(core, submit(1, devices=2)))
    assert devices(core) == {1: [("b", 0), ("b", 1)]}
    assert len(first.job_groups) == 1


def test_what_jobs_are_owed_survives() -> None:
    """Job 1 was kept waiting; after a change of hands it still comes first."""
    table = replace(TWO, colocated_rate=None)
    core = build(setup(nodes(a=1), table=table))
    commands = handle_all(core, submit(1, 2))
    for number in range(7):
        commands = handle_all(
            core, round_report(started_round(commands), 360.0 * (number + 1), 100.0)
        )
    owed = accounts_of(core.data, core.data.now_s).deficit_s
    core = moved(core, setup(nodes(a=1), table=table))
    assert accounts_of(core.data, core.data.now_s).deficit_s == pytest.approx(owed)
    ran: list[int] = []
    command = core.data.round.in_force
    assert command is not None
    for number in range(7, 27):
        ran += command.job_groups[:, 0].tolist()
        command = started_round(
            handle_all(core, round_report(command, 360.0 * (number + 1), 100.0))
        )
    assert ran.count(1) == ran.count(2)


def test_a_packed_pair_is_reported_to_a_policy_that_packs_nobody() -> None:
    core = build(setup(nodes(a=1), "las_packed"))
    first = started_round(handle_all(core, submit(1, 2, steps=10_000.0)))
    assert first.job_groups.tolist() == [[1, 2]]
    plain = moved(core, setup(nodes(a=1), "fifo_perf"))
    report = round_report(first, 360.0, 0.0)
    report = replace(report, steps=np.array([[2880.0, 2500.0]]), outcome=np.zeros((1, 2), np.int64))
    assert started_round(handle_all(plain, report)).job_groups.tolist() == [[1]]
    assert plain.data.ledger.jobs.done.tolist() == [2880.0, 2500.0]
    packed = moved(moved(core, setup(nodes(a=1), "fifo_perf")), setup(nodes(a=1), "las_packed"))
    handle_all(packed, report)
    assert packed.data.ledger.jobs.done.tolist() == [2880.0, 2500.0]


@pytest.mark.parametrize("policy", ["las", "finish_time_aware", "shockwave", "las_packed", "fifo"])
def test_policies_follow_one_another(policy: str) -> None:
    core = build(setup(nodes(a=2, k=1)))
    commands = handle_all(core, submit(1, 2, 3, 4))
    for number, name in enumerate(["las_aware", policy, "fifo_perf", policy]):
        now = started_round(commands)
        core = moved(core, setup(nodes(a=2, k=1), name))
        report = round_report(now, 360.0 * (number + 1), 10.0)
        width = now.job_groups.shape[1]
        steps = np.where(now.job_groups >= 0, 10.0, 0.0)
        zeros = np.zeros((len(now.job_groups), width), np.int64)
        commands = handle_all(core, replace(report, steps=steps, outcome=zeros))
        invariants.check(core)
    assert core.data.ledger.jobs.n == 4


def test_rates_may_have_changed_but_not_be_lost() -> None:
    core = build(setup(nodes(a=1)))
    handle_all(core, submit(1))
    better = replace(TWO, rate=TWO.rate * 2)
    assert moved(core, setup(nodes(a=1), table=better)).data.ledger.groups.rate[0, 0, 0] == 20.0
    without = Throughputs(
        (SlotType("v100"),),
        job_types(
            ("other", 1),
        ),
        np.array([[1.0]]),
    )
    with pytest.raises(
        ThroughputError, match="no rate for 'net' at scale factor 1, which a job in"
    ):
        restore(setup(nodes(a=1), table=without), take_checkpoint(core.data))


def test_held_and_pending_things_survive() -> None:
    core = build(setup(nodes(a=1)))
    first = started_round(handle_all(core, submit(1, 2, 3)))
    (now,) = first.job_groups[:, 0].tolist()
    others = sorted({1, 2, 3} - {now})
    handle_all(core, JobsPaused(5.0, np.array([now, others[0]]), True))
    core = moved(core, setup(nodes(a=1)))
    assert core.data.paused_jobs.jobs.id.tolist() == others[:1]
    assert core.data.round.ending
    second = started_round(handle_all(core, round_report(first, 6.0, 50.0)))
    assert second.job_groups.tolist() == [others[1:]]
    assert core.data.paused_jobs.jobs.id.tolist() == sorted([now, others[0]])
    core = moved(core, setup(nodes(a=1)))
    handle_all(core, JobsPaused(7.0, np.array([now]), False))
    assert core.data.ledger.jobs.done[core.data.ledger.row(JobId(now))] == 50.0


def test_batch_sizes_and_tenants_survive() -> None:
    names = tuple((f"net (batch size {b})", 1) for b in (16, 32))
    table = Throughputs((SlotType("v100"),), job_types(*names), np.array([[10.0], [6.0]]))
    adapts = Adaptation(Mode.GNS, 160, 20.0, ((0, 16), (5, 32)))
    core = build(setup(nodes(a=1), "shockwave", table))
    job = Job(JobId(1), names[0][0], 1, 200.0, tenant="red", adaptation=adapts)
    plain = Job(JobId(2), names[1][0], 1, 200.0, tenant="blue")
    handle_all(core, JobsSubmitted(0.0, (job, plain)))
    turned = Throughputs((SlotType("v100"),), job_types(*names[::-1]), table.rate[::-1].copy())
    other = moved(core, setup(nodes(a=1), "shockwave", turned))
    assert other.data.ledger.tenants == ("red", "blue")
    mine, theirs = (
        s.data.ledger.regimes.shown(
            s.data.ledger.jobs.job_type, s.data.ledger.jobs.total, s.data.ledger.jobs.done
        )
        for s in (core, other)
    )
    assert mine is not None
    assert theirs is not None
    assert mine.announced == theirs.announced
    assert (mine.batch == theirs.batch).all()
    assert (core.data.throughputs.rate[mine.job_type] == turned.rate[theirs.job_type])[
        mine.job_type >= 0
    ].all()


def test_taking_a_state_changes_nothing_and_shares_nothing() -> None:
    core = build(setup(nodes(a=2, k=1), "las_packed"))
    first = started_round(handle_all(core, submit(1, 2, 3, 4)))
    state: SchedulerCheckpoint = take_checkpoint(core.data)
    before = encode(state)
    width = first.job_groups.shape[1]
    report = round_report(first, 360.0, 10.0)
    zeros = np.zeros((len(first.job_groups), width), np.int64)
    handle_all(
        core, replace(report, steps=np.where(first.job_groups >= 0, 10.0, 0.0), outcome=zeros)
    )
    assert encode(state) == before
    assert encode(take_checkpoint(core.data)) == encode(take_checkpoint(core.data)) != before


def test_gavels_profile_may_take_over() -> None:
    core = build(setup(nodes(a=2, k=1)))
    first = started_round(handle_all(core, submit(1, 2, 3, 4)))
    core = moved(core, replace(setup(nodes(a=2, k=1)), settings=GAVEL))
    assert len(started_round(handle_all(core, round_report(first, 360.0, 100.0))).job_groups) == 3
