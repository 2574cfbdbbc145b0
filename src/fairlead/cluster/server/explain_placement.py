"""Explains where a job with devices, or about to get some, is and what it does there."""

import math
from collections.abc import Iterator, Mapping, Sequence

from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.server.attempts import Attempt, holder
from fairlead.cluster.server.being_stopped import ended_by_agent, failed_rank, stop_sentences
from fairlead.cluster.server.being_stopped import place as place_of
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.explanation_source import (
    Activity,
    ExplanationSource,
    Reader,
    activity_of,
    allocated_to,
    enumerate_parts,
    last_activity,
    waits_for_devices,
)
from fairlead.cluster.server.node_condition import condition
from fairlead.cluster.server.silence import silence
from fairlead.cluster.server.unbooked_ends import EXIT_0, ended_nodes, exit_words, unbooked_end
from fairlead.cluster.store.job_views import cannot_start
from fairlead.model.cluster import Cluster
from fairlead.model.duration_text import duration


def placed(reader: Reader, job: JobView, attempt: Attempt) -> Iterator[str]:
    """Yield sentences on where the job is and what it does there."""
    source = reader.source
    before = holder(list(source.state.registry.live.get(job.id, ())))
    if not attempt.ordered and before is not None:
        yield from _moving(source, before, attempt)
        return
    place = place_of(attempt)
    now = source.state.fleet.monotonic()
    activity = last_activity(source.state, attempt)
    if quiet := silence(source.state, attempt):
        began = attempt.record.trained_s is not None or activity != "starting"
        did = "ran" if began else "was to run"
        yield f"It {did} on {place} when that was last heard of: {quiet}."
        return
    if activity == "stuck":
        yield f"It stands still, and may hang: {_standstill(source, attempt)}."
        yield f"It holds {place}."
    elif activity == "training":
        yield f"It runs on {place}{_faster(job, source.state.cluster)}."
    elif activity == "ended":
        why = unbooked_end(source.state.fleet, attempt)
        yield f"{why[:1].upper()}{why[1:]}."
        yield "What becomes of it is told when that is written down."
    elif activity == "finishing" and (why := failed_rank(source.state.fleet, attempt)):
        yield f"It is being ended on {place}: {why}."
        yield "What becomes of it is decided when all of its processes have ended."
    elif activity == "finishing" and (ended := ended_nodes(source.state.fleet, attempt)):
        left = place_of(attempt, ended)
        how = exit_words(source.state.fleet, attempt, ended)
        yield f"Its ranks on {','.join(ended)} have ended{how}; others run on {left}."
        if how == EXIT_0:
            yield "It is complete when those have ended so too."
        else:
            yield "What becomes of it is decided when those have ended too."
    elif activity == "finishing":
        since = attempt.finishing_since
        ago = "" if since is None else f", for {duration(source.state.now_s() - since)}"
        yield f"All its steps are done; the code behind its training loop runs on {place}{ago}."
        yield "It is complete when that has ended with exit code 0."
        if why := ended_by_agent(source.state.fleet, attempt):
            yield f"Its agent ends it when its grace is over ({why})."
    elif why := ended_by_agent(source.state.fleet, attempt):
        yield f"It is being ended on {place}: {why}."
        if attempt.broken:
            yield "What becomes of it is decided when all of its processes have ended."
        else:
            yield "It starts again when all of its processes have ended."
    else:
        yield f"It is to run on {place}, and has not begun to train."
        yield _start_up(reader, attempt)
    for name in attempt.nodes:
        node = source.state.fleet.nodes.get(name)
        state = None if node is None else condition(node, now)
        if state is not None and state.state != "up":
            yield f"Node {name} is {state.state}: {state.reason}."
        status = source.state.fleet.status(name, attempt.key)
        if status is not None and status.directory_problem:
            yield f"Node {name} says: {status.directory_problem}."


def _moving(source: ExplanationSource, before: Attempt, following: Attempt) -> Iterator[str]:
    """Yield sentences on a job that goes on elsewhere once its previous attempt has ended."""
    if before.lost:
        yield from cannot_go_on(source, before)
    elif following.standby and not before.stopping:
        if before.finishing:
            yield f"All its steps are done; the code behind its training loop runs on {place_of(before)}."
            yield f"Should it not end in time, it is started again for that on {place_of(following)}."
        else:
            there = place_of(following)
            yield f"It runs on {place_of(before)}, while its next start is prepared on {there}."
            yield "It moves when that is ready, or when another job is to have its devices."
    else:
        live = list(source.state.registry.live.get(following.row.id, ()))
        yield from stop_sentences(source.state.fleet, live, source.state.now_s())


def cannot_go_on(source: ExplanationSource, attempt: Attempt) -> Iterator[str]:
    """Yield sentences on a job that cannot go on, though some of it may still run."""
    yield f"Its attempt {attempt.record.attempt} on {place_of(attempt)} cannot go on: {attempt.row.reason}."
    now = source.state.fleet.monotonic()
    for name in attempt.nodes:
        node = source.state.fleet.nodes.get(name)
        if name in attempt.gone or node is None:
            continue
        state = condition(node, now)
        yield f"Node {name} is {state.state}{': ' * bool(state.reason)}{state.reason}."
    yield "It is started anew once nothing of that start can run any more."


def _standstill(source: ExplanationSource, attempt: Attempt) -> str:
    """For how long it has come no further, and where its ranks are, if its agents say so."""
    status = source.state.fleet.status(attempt.first_node, attempt.key)
    if status is None or not status.stall:
        return f"no step for {duration(0.0 if status is None else status.step_age_s)}"
    others = [attempt.statuses[node].stall for node in attempt.nodes if node in attempt.statuses]
    return "; ".join(dict.fromkeys([status.stall, *filter(None, others)]))


def stands_still(state: ClusterState, job: int) -> bool:
    """Return whether the attempt of a job hangs, as far as is known. Its end cannot be forecast then."""
    attempt = holder(list(state.registry.live.get(job, ())))
    if attempt is None or not attempt.stopping:
        return attempt is not None and activity_of(state, attempt) == "stuck"
    status = state.fleet.status(attempt.first_node, attempt.key)
    return status is not None and status.state == "stopping" and bool(status.stall)


def waits_for_node(state: ClusterState, job: int) -> bool:
    """Return whether an attempt of a job may still run on a silent node. Its end cannot be forecast until
    that is known."""
    attempts = list(state.registry.live.get(job, ()))
    return any(attempt.lost or silence(state, attempt) for attempt in attempts)


def runs_outside_rounds(state: ClusterState, newest: Attempt | None) -> bool:
    """Return whether the newest attempt of a job goes on, on a node that is given no jobs: the core, and so a
    forecast, does not count on it there."""
    if newest is None or not newest.ordered or newest.stopping or newest.lost:
        return False
    now, nodes = state.fleet.monotonic(), state.fleet.nodes
    return any(
        name in nodes and condition(nodes[name], now).state == "unhealthy" for name in newest.nodes
    )


def changed_s(
    state: ClusterState,
    job: JobView,
    attempts: Sequence[AttemptView],
    nodes_changed_s: Mapping[str, float],
) -> float:
    """Cluster's time since which the situation of a job is as it is: it was given devices, or told to leave
    them, or lost them; of one without devices also: a node that it could use came or went. attempts: of the
    job, those that have ended too where that is to count; nodes_changed_s: see the function."""
    live = list(state.registry.live.get(job.id, ()))
    times = [attempt.began_s for attempt in attempts] + [one.record.began_s for one in live]
    times += [attempt.ended_s for attempt in attempts if attempt.ended_s is not None]
    times += [one.stop_ordered_s for one in live if one.stop_ordered_s is not None]
    if not job.node:
        times += [at_s for name, at_s in nodes_changed_s.items() if job.rates.get(name, 0.0) > 0]
    return max(times, default=-math.inf)


def nodes_changed_s(state: ClusterState) -> dict[str, float]:
    """Accelerator type -> cluster's time at which a node of it came or went last."""
    ahead_s = state.now_s() - state.fleet.monotonic()  # of the monotonic clock
    found: dict[str, float] = {}
    for node in list(state.fleet.nodes.values()):
        since_s = node.health.state_since + ahead_s
        found[node.accelerator] = max(since_s, found.get(node.accelerator, -math.inf))
    return found


def _start_up(reader: Reader, attempt: Attempt) -> str:
    """Return how far an attempt has come that does not train yet."""
    source = reader.source
    begun_s = duration(max(source.state.now_s() - attempt.record.since_s, 0.0))
    status = source.state.fleet.status(attempt.first_node, attempt.key)
    if status is None:
        return f"It was ordered {begun_s} ago, and {attempt.first_node} has not taken it up yet."
    if attempt.obstacles:
        text = cannot_start(attempt.obstacles)
        return f"{text[0].upper()}{text[1:]}. It is tried again until it can be."
    others = _sharers(source, attempt)
    if waits_for_devices(source.state, attempt) and others:
        holders = enumerate_parts(
            allocated_to(reader, jobs, activity) for activity, jobs in others.items()
        )
        return f"It waits for devices {holders}."
    return f"It was ordered {begun_s} ago and is starting."


def _sharers(source: ExplanationSource, attempt: Attempt) -> dict[Activity, list[int]]:
    """Other jobs that hold devices of an attempt, by what they do."""
    found: dict[Activity, list[int]] = {}
    for other in _others_there(source.state, attempt):
        found.setdefault(activity_of(source.state, other), []).append(other.row.id)
    return found


def _others_there(state: ClusterState, attempt: Attempt) -> Iterator[Attempt]:
    """The attempts of other jobs that were ordered onto devices of this one; of each, once per node."""
    for node, devices in attempt.placement().items():
        for other in list(state.registry.on_node.get(node, {}).values()):
            mine = other.placement().get(node, ())
            if other.ordered and other.row.id != attempt.row.id and set(devices) & set(mine):
                yield other


def waits_for_others(state: ClusterState, attempt: Attempt) -> bool:
    """Return whether an attempt cannot begin yet, since another job has not left its devices."""
    if attempt.stopping or attempt.lost or not attempt.ordered:
        return False
    return waits_for_devices(state, attempt) and any(_others_there(state, attempt))


def _faster(job: JobView, cluster: Cluster) -> str:
    """Compare with the type on which it would be fastest, of those that have enough devices for it."""
    here = job.rates.get(job.accelerator, 0.0)
    capacities = zip(cluster.accelerators, cluster.capacity.tolist(), strict=True)
    wide = {name for name, devices in capacities if devices >= job.scale_factor}
    others = {a: r for a, r in job.rates.items() if a != job.accelerator and a in wide and r > 0}
    if not others or here <= 0:
        return ""
    name, rate = max(others.items(), key=lambda item: item[1])
    if f"{max(here, rate) / min(here, rate):.1f}" == "1.0":  # or nothing is known of either
        return ""
    if here >= rate:
        return f", where it is {here / rate:.1f} times as fast as on {name}"
    return f", though {name} would be {rate / here:.1f} times as fast"
