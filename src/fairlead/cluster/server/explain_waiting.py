"""Explanations of what is in the way of a job that has no devices, and when that may change."""

from collections.abc import Iterator, Sequence

from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.attempt_end import LOST_ENDS
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.being_stopped import stop_sentences
from fairlead.cluster.server.explain_preemption import why_not_on_own_devices, why_not_preempted
from fairlead.cluster.server.explanation_source import (
    ACTIVITY_ORDER,
    ALLOCATED_TO,
    Activity,
    AllocatedDevices,
    DeviceUse,
    ExplanationSource,
    Reader,
    activity_of,
    allocated_to,
    count_devices,
    enumerate_parts,
    waits_for_devices,
)
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.node_condition import condition, lacking_nodes
from fairlead.cluster.server.parked import is_part, parked_on
from fairlead.cluster.server.silence import silence_of_stopping
from fairlead.model.duration_text import duration


def waiting(reader: Reader, job: JobView, attempts: Sequence[AttemptView]) -> Iterator[str]:
    """Yield sentences on what is in the way of a job. attempts: of it, those that have ended too."""
    source = reader.source
    live = list(source.state.registry.live.get(job.id, ()))
    yield from stop_sentences(source.state.fleet, live, source.state.now_s())
    if not live:
        yield _parked(source, job, attempts)
    if quiet := silence_of_stopping(source.state, live):
        yield f"{quiet[:1].upper()}{quiet[1:]}."
    usable = sorted(name for name, rate in job.rates.items() if rate > 0)
    own_reason = (
        job.id if source.state.registry.live.get(job.id) else -1
    )  # the same for all that have no starts
    found = source.device_uses.of(
        (*usable, own_reason), lambda: devices(source, set(usable), own_reason)
    )
    lacking = lacking_nodes(job.scale_factor, usable, found.usable)
    if lacking and own_reason < 0:
        yield f"It {lacking}."
    yield _occupied(reader, found, usable, job.scale_factor)
    if found.unusable:
        parts = ", ".join(
            f"{count_devices(n)} on nodes that are {why}" for why, n in found.unusable.items()
        )
        yield f"Not to be had: {parts}."
    yield _next_decision(reader, job, found)
    if own := _own_devices(source, job):
        yield own
    elif not lacking and not found.has_room(job.scale_factor) and "training" in found.allocated:
        yield why_not_preempted(source.state, job.id)


def _own_devices(source: ExplanationSource, job: JobView) -> str:
    """A sentence on the devices with which a program that is parked as it is goes on; "" for others.
    Who holds them is not said: they may be another tenant's."""
    devices = source.state.bound_devices.get(job.id, ())
    if not devices:
        return ""
    here = [_by_device(source, node).get(index, []) for node, index in devices]
    held = sum(map(bool, here))
    names = enumerate_parts([f"{index} of {node}" for node, index in devices])
    its = f"It goes on with device{'s' * (len(devices) > 1)} {names}"
    if not held:
        return f"{its} (free now)."
    holders = {attempt.row.id for attempts in here for attempt in attempts} - {job.id}
    if holders <= source.state.bound_devices.keys():
        when = "programs of the same devices take turns"
    else:
        when = why_not_on_own_devices(source.state, job.id, holders)
    return f"{its} ({held} of {len(devices)} held by others now): {when}."


def _parked(source: ExplanationSource, job: JobView, attempts: Sequence[AttemptView]) -> str:
    """A sentence on a job that is parked; "" for others. What an attempt did that was lost for the server (it
    has been restored since) nobody has told."""
    found = parked_on(source.state.fleet, job.id)
    if not found:
        return ""
    size = sum(one.memory_bytes for one in found.values())
    ago_s = max(one.age_s for one in found.values())
    row = source.state.registry.jobs.get(job.id)
    text = (
        f"It has been parked on {', '.join(sorted(found))} for {duration(ago_s)}, in {size / 1e6:,.0f} MB of "
        "memory"
    )
    if row is None or not all(is_part(row, one.attempt) for one in found.values()):
        return f"{text}."  # nothing goes on with it
    only = row.spec.is_suspended
    then = "goes on with the same devices there" if only else "can go on there at once"
    lost = any(one.attempt == row.saved_by and one.end in LOST_ENDS for one in attempts)
    where = "where it was parked" if lost else f"from step {job.steps:,.0f}"
    return f"{text}, and {then}, {where}."


def devices(source: ExplanationSource, types: set[str], job: int) -> DeviceUse:
    """Those of these accelerator types. job: whose own starts do not count as others."""
    now = source.state.fleet.monotonic()
    found = DeviceUse({}, {}, {}, {}, {})
    for node in list(source.state.fleet.nodes.values()):
        if node.accelerator not in types:
            continue
        attempts = _by_device(source, node.name)
        for those in attempts.values():
            _hold(source, found, those, job)
        state, left = condition(node, now).state, node.devices - len(attempts)
        if state == "up":
            found.usable[node.accelerator] = found.usable.get(node.accelerator, 0) + node.devices
        if left and state == "up":
            found.free[node.accelerator] = found.free.get(node.accelerator, 0) + left
        elif left:
            found.unusable[state] = found.unusable.get(state, 0) + left
    return found


def _by_device(source: ExplanationSource, node: str) -> dict[int, list[Attempt]]:
    """Index of a device of a node -> starts that have it or wait for it; those of free ones are left out."""
    found: dict[int, list[Attempt]] = {}
    for attempt in list(source.state.registry.on_node.get(node, {}).values()):
        for device in attempt.placement().get(node, ()) if _holds(attempt, node) else ():
            found.setdefault(device, []).append(attempt)
    return found


def _holds(attempt: Attempt, node: str) -> bool:
    """Return whether an attempt has devices of a node, or is to get them: its ranks there have not ended, or
    those elsewhere go on, for which it keeps all that it was given."""
    leaves = bool(attempt.stopping) or attempt.lost
    return attempt.ordered and not (leaves and attempt.has_left(node))


def _hold(source: ExplanationSource, found: DeviceUse, attempts: list[Attempt], job: int) -> None:
    """Count a device that these attempts have or wait for. It is held by those that have it, while there are
    any: an attempt that it is passed on to has yet to get it."""
    have = [
        attempt
        for attempt in attempts
        if not waits_for_devices(source.state, attempt) or attempt.stopping
    ]
    others = [attempt for attempt in have or attempts if attempt.row.id != job]
    passed = {
        attempt.row.id for attempt in attempts if attempt not in others and attempt.row.id != job
    }
    activity = {attempt.row.id: activity_of(source.state, attempt) for attempt in others}
    for attempt in attempts:
        if attempt.row.id in passed:
            found.jobs.setdefault(attempt.row.id, activity_of(source.state, attempt))
    found.jobs.update(activity)
    if not activity:
        return
    leading = min(activity.values(), key=ACTIVITY_ORDER.index)
    holding = found.allocated.setdefault(leading, AllocatedDevices())
    holding.devices += 1
    holding.jobs.update(one for one, does in activity.items() if does == leading)
    holding.next.update(passed - activity.keys())


def _occupied(reader: Reader, found: DeviceUse, usable: list[str], needed: int) -> str:
    """Return a sentence on the jobs that hold the devices and what they do. needed: devices of one type."""
    names = enumerate_parts(usable or ["its types"])
    free = _free(found, needed)
    if not found.allocated:
        return f"{free}, and no other job holds any." if free else f"No device of {names} is free."
    parts = [
        f"{count_devices(holding.devices)} {allocated_to(reader, sorted(holding.jobs), activity)}"
        f"{_passed(reader, holding)}"
        for activity, holding in sorted(found.allocated.items())
    ]
    return f"Of {names}: {enumerate_parts([*([free] if free else []), *parts])}."


def _free(found: DeviceUse, needed: int) -> str:
    """Which devices are free; "" = none."""
    if not found.free:
        return ""
    parts = [f"{count_devices(count)} of {name}" for name, count in sorted(found.free.items())]
    few = "" if found.has_room(needed) else f" (it needs {needed} of one type)"
    return f"{enumerate_parts(parts)} {'is' if sum(found.free.values()) == 1 else 'are'} free{few}"


def _passed(reader: Reader, holding: AllocatedDevices) -> str:
    """For whom the devices are meant next, "" = for nobody yet."""
    return f" (next: {reader.names(holding.next)})" if holding.next else ""


def nothing_starts(fleet: Fleet) -> str:
    """Return for how long no node is given a job, and why; "" = nodes are."""
    if not fleet.is_on_hold:
        return ""
    left_s = max(fleet.hold.until - fleet.monotonic(), 0.0)
    return f"nothing is started for {duration(left_s)}: {fleet.hold.reason}"


def _next_decision(reader: Reader, job: JobView, found: DeviceUse) -> str:
    """When it is decided anew, and what that waits for."""
    source = reader.source
    current = source.state.round
    if on_hold := nothing_starts(source.state.fleet):
        return f"{on_hold[0].upper()}{on_hold[1:]}."
    if current is None:
        return (
            "No round is in force."
            if source.state.scheduler is not None
            else "No node has come up yet."
        )
    left_s = current.end_s - source.state.now_s()
    if left_s > 0:
        return (
            f"Who runs is decided anew in {duration(left_s)}{_early_round_end(reader, job, found)}."
        )
    late = [one for one, activity in found.jobs.items() if _may_delay_round(source, one, activity)]
    waits = f": {allocated_to(reader, late, 'starting').removeprefix(ALLOCATED_TO)}" if late else ""
    return f"The round has been over for {duration(-left_s)} and has not ended yet{waits}."


def _early_round_end(reader: Reader, job: JobView, found: DeviceUse) -> str:
    """Return the words on an early end of the round; "" where nothing is free, or rounds run to their end."""
    source = reader.source
    if not found.has_room(job.scale_factor) or source.state.early_s == float("inf"):
        return ""
    late = [one for one, activity in found.jobs.items() if activity == "starting"]
    if source.costs.is_applied() or not late:
        return " or earlier, for there is room"
    have = "has" if len(late) == 1 else "have"
    whose = "its start" if len(late) == 1 else "their starts"
    return (
        f", or earlier, once {reader.names(late)} {have} trained for as long as {whose} took, or "
        f"{'was' if len(late) == 1 else 'were'} ordered a round's length ago"
    )


def _may_delay_round(source: ExplanationSource, job: int, activity: Activity) -> bool:
    """Return whether a round may wait for the job's attempt: the policy would take its devices, and it has
    not begun to train, as it still starts or hangs while starting."""
    if source.costs.is_applied():
        return False
    attempt = source.state.registry.newest(job)
    if activity != "stuck" or attempt is None:
        return activity == "starting"
    status = source.state.fleet.status(attempt.first_node, attempt.key)
    return status is None or status.loaded_step < 0
