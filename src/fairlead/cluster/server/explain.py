"""Why a job is where it is, or not yet anywhere: a list of facts, each checked against the present state.

Read from any thread without waiting for the driver: what the core decided is copied when it decides
(``standing``), and what nodes hold is looked up. What is past is told with its time, never as the present.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.read_job_spec import colocates
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.kept_devices import kept_by_hysteresis
from fairlead.cluster.server.node_condition import condition
from fairlead.cluster.server.pairing import why_unpaired
from fairlead.cluster.server.recent_results import RecentResults
from fairlead.cluster.server.restart_costs import RestartCostsOfJobs
from fairlead.cluster.server.silence import silence
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.cluster.store.job_views import cannot_start
from fairlead.model.duration_text import duration
from fairlead.model.job import JobId

WORTH_SAYING = 0.1  # relative difference of a stated rate from the measured one
STUCK_S = 30.0  # without a step, and
STUCK_STEPS = 20.0  # as many times what a step takes, after which a job may hang
NAMED = 3  # jobs or nodes that a sentence names
# What a device is said to be held for, where the jobs on it do different things.
FIRST_SAID: tuple["Doing", ...] = ("stuck", "training", "finishing", "stopping", "starting")
ENDINGS = (AttemptEnd.FAILED, AttemptEnd.NODE_LOST)  # how starts end that somebody should hear of

Doing: TypeAlias = Literal["training", "starting", "stopping", "stuck", "finishing"]


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The devices on which a job could run, by what is in their way. Each counts once."""

    free: int
    jobs: dict[int, Doing]  # other jobs that hold some, or are to have some -> what they do
    held: dict[Doing, "Holding"]  # by what those jobs do that hold them
    away: dict[str, int]  # state of nodes that may not be used -> their free devices


@dataclass(slots=True)
class Holding:
    """Devices held by jobs that do the same."""

    devices: int = 0
    jobs: set[int] = field(default_factory=set)
    next: set[int] = field(default_factory=set)  # jobs whose starts wait for these devices


@dataclass(frozen=True, slots=True)
class ExplanationSource:
    """What explanations are read from."""

    state: ClusterState
    admission: Admission
    solves: SolveCoordinator
    costs: RestartCostsOfJobs
    device_uses: RecentResults[DeviceUse]


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom it is told: jobs of other tenants are not named to users."""

    source: ExplanationSource
    tenant: str | None  # None = sees all

    def names(self, jobs: Iterable[int]) -> str:
        """Some jobs in words, a few of them by number."""
        all_ = sorted(jobs)
        seen = [job for job in all_ if self._sees(job)][:NAMED]
        more = len(all_) - len(seen)
        if not seen:
            return "1 job" if more == 1 else f"{more} jobs"
        names = f"job{'s' * (len(seen) != 1)} {', '.join(map(str, seen))}"
        return f"{names} and {more} more" if more else names

    def _sees(self, job: int) -> bool:
        row = self.source.state.registry.jobs.get(job)
        return self.tenant is None or (row is not None and row.tenant == self.tenant)


def explanation_facts(
    source: ExplanationSource,
    job: JobView,
    attempts: Sequence[AttemptView] = (),
    tenant: str | None = None,
) -> list[str]:
    """Sentences, the most important first, for a job in any state. tenant: of the user who is told, None =
    may see all jobs."""
    reader = Reader(source, tenant)
    return [sentence for sentence in _facts(reader, job, attempts) if sentence]


def _facts(reader: Reader, job: JobView, attempts: Sequence[AttemptView]) -> Iterator[str]:
    source = reader.source
    if job.state in ("completed", "cancelled"):
        yield f"It is {job.state}."
        yield stated(job)
        return
    if job.state in ("dropped", "killed"):
        yield f"It was {job.state}: {job.reason or 'no reason was given'}."
        return
    if job.state == "paused":
        yield "It is paused: `fairlead resume` lets it take part again."
        return
    if job.retry_in_s is not None:
        yield f"It waits without holding devices: {job.reason}."
        row = source.state.registry.jobs.get(job.id)
        if row is not None and row.avoids:
            yield f"It is placed off {', '.join(row.avoids)} if it can be."
        return
    if source.admission.outside(job.id):
        yield f"It waits: there is {job.reason or 'no room for it'}."
        return
    start = source.state.registry.newest(job.id)
    if start is not None and start.lost:
        yield from _lost(source, start)
    elif start is not None and not start.stopping:
        yield from _placed(reader, job, start)
    else:
        yield from _waiting(reader, job, start)
    yield _share(source, job)
    yield _pair(reader, job)
    yield starts_over(job)
    yield stated(job)
    yield past(job, attempts, source.state.now_s())


def starts_over(job: JobView) -> str:
    """A sentence on a job whose progress is not kept; "" for others."""
    return "It starts again from zero when it is stopped." if job.starts_over else ""


def stated(job: JobView) -> str:
    """A sentence that holds what the owner stated against what was measured; "" where either is missing or
    they agree."""
    claimed, measured = job.claimed.get(job.measured_on, 0.0), job.measured_rate
    if not claimed or measured is None or abs(measured - claimed) <= WORTH_SAYING * claimed:
        return ""
    return f"You said {claimed:.3g} steps/s on {job.measured_on}, measured {measured:.3g}."


def past(job: JobView, attempts: Sequence[AttemptView], now_s: float) -> str:
    """What went wrong last, and when; "" where nothing did since it last trained."""
    ended = [attempt for attempt in attempts if attempt.ended_s is not None]
    if not ended or job.state in ("running", "finishing"):
        return ""
    last = max(ended, key=lambda attempt: attempt.attempt)
    if last.end not in ENDINGS or last.ended_s is None:
        return ""
    return f"Its last start ended {duration(now_s - last.ended_s)} ago: {last.why}."


# --- a job that has devices ------------------------------------------------------------------------------


def _placed(reader: Reader, job: JobView, start: Attempt) -> Iterator[str]:
    """Where it is, and what it does there."""
    source = reader.source
    place = f"{len(start.record.devices)} x {start.record.accelerator} of {start.record.node}"
    now = source.state.fleet.monotonic()
    doing = what_it_does(source, start)
    if quiet := silence(source.state, start):
        began = start.record.trained_s is not None or doing != "starting"
        did = "ran" if began else "was to run"
        yield f"It {did} on {place} when that was last heard of: {quiet}."
        return
    if doing == "stuck":
        yield f"It stands still, and may hang: {_standstill(source, start)}."
        yield f"It holds {place}."
    elif doing == "training":
        yield f"It runs on {place}{_faster(job)}."
    elif doing == "finishing":
        since = start.finishing_since
        ago = "" if since is None else f", for {duration(source.state.now_s() - since)}"
        yield f"All its steps are done; the code behind its training loop runs on {place}{ago}."
        yield "It is complete when that has ended with exit code 0."
    else:
        yield f"It is to run on {place}, and has not begun to train."
        yield _start_up(reader, job, start)
    for name in start.nodes:
        node = source.state.fleet.nodes.get(name)
        state = None if node is None else condition(node, now)
        if state is not None and state.state != "up":
            yield f"Node {name} is {state.state}: {state.reason}."
        held = source.state.fleet.held(name, start.key)
        if held is not None and held.directory_problem:
            yield f"Node {name} says: {held.directory_problem}."


def _lost(source: ExplanationSource, start: Attempt) -> Iterator[str]:
    """It cannot go on, though some of it may still run."""
    place = f"{len(start.record.devices)} x {start.record.accelerator} of {start.record.node}"
    yield f"Its start {start.record.attempt} on {place} cannot go on: {start.row.reason}."
    now = source.state.fleet.monotonic()
    for name in start.nodes:
        node = source.state.fleet.nodes.get(name)
        if name in start.gone or node is None:
            continue
        state = condition(node, now)
        yield f"Node {name} is {state.state}{': ' * bool(state.reason)}{state.reason}."
    yield "It is started anew once nothing of that start can run any more."


def _standstill(source: ExplanationSource, start: Attempt) -> str:
    """For how long it has come no further, and where its ranks are, if its agents say so."""
    held = source.state.fleet.held(start.first_node, start.key)
    if held is None or not held.stall:
        return f"no step for {duration(0.0 if held is None else held.step_age_s)}"
    others = [start.held[node].stall for node in start.nodes if node in start.held]
    return "; ".join(dict.fromkeys([held.stall, *filter(None, others)]))


def stands_still(source: ExplanationSource, job: int) -> bool:
    """Does the start of a job hang, as far as can be told? Nothing can be said of its end then."""
    start = source.state.registry.newest(job)
    return start is not None and what_it_does(source, start) == "stuck"


def _start_up(reader: Reader, job: JobView, start: Attempt) -> str:
    """How far a start has come that does not train yet."""
    source = reader.source
    earlier = [one for one in source.state.registry.live.get(job.id, ()) if one is not start]
    if earlier:
        return f"Its start {earlier[0].record.attempt} has not ended yet ({earlier[0].stopping})."
    begun_s = duration(max(source.state.now_s() - start.record.since_s, 0.0))
    held = source.state.fleet.held(start.first_node, start.key)
    if held is None:
        return f"It was ordered {begun_s} ago, and {start.first_node} has not taken it up yet."
    if start.obstacles:
        told = cannot_start(start.obstacles)
        return f"{told[0].upper()}{told[1:]}. It is tried again until it can be."
    others = _sharers(source, start)
    if waits_for_devices(source, start) and others:
        return f"It waits for devices {_list(_by(reader, jobs, doing) for doing, jobs in others.items())}."
    return f"It was ordered {begun_s} ago and is starting."


def _sharers(source: ExplanationSource, start: Attempt) -> dict[Doing, list[int]]:
    """Other jobs that hold devices of a start, by what they do."""
    found: dict[Doing, list[int]] = {}
    for node, devices in start.placement().items():
        for other in list(source.state.registry.on_node.get(node, {}).values()):
            mine = other.placement().get(node, ())
            if other.ordered and other.row.id != start.row.id and set(devices) & set(mine):
                found.setdefault(what_it_does(source, other), []).append(other.row.id)
    return found


def what_it_does(source: ExplanationSource, start: Attempt) -> Doing:
    """A start that has not ended, by what its node said last."""
    if start.stopping:
        return "stopping"
    held = source.state.fleet.held(start.first_node, start.key)
    if held is None:
        return "starting"
    if held.state == "ended" or held.completed or held.finishing:
        return "finishing"
    if held.state == "stopping":
        return "stopping"
    if held.stall:
        return "stuck"
    if held.state == "starting":
        return "starting"
    if start.row.spec.unmanaged:
        return "training"
    if held.loaded_step < 0:
        return "starting"
    made = held.step - held.loaded_step
    usual_s = held.ran_s / made if made > 0 else 0.0
    if made > 0 and held.step_age_s > max(STUCK_S, STUCK_STEPS * usual_s):
        return "stuck"
    return "training"


def waits_for_devices(source: ExplanationSource, start: Attempt) -> bool:
    """Has the node of rank 0 not said yet that the devices of a start are free for it?"""
    held = source.state.fleet.held(start.first_node, start.key)
    return held is None or (held.state == "starting" and held.wait_s < 0)


def _faster(job: JobView) -> str:
    here = job.rates.get(job.accelerator, 0.0)
    others = {a: r for a, r in job.rates.items() if a != job.accelerator and r > 0}
    if not others or here <= 0:
        return ""
    name, rate = max(others.items(), key=lambda item: item[1])
    if here >= rate:
        return f", where it is {here / rate:.1f} times as fast as on {name}"
    return f", though {name} would be {rate / here:.1f} times as fast"


# --- a job that has none ---------------------------------------------------------------------------------


def _waiting(reader: Reader, job: JobView, start: Attempt | None) -> Iterator[str]:
    """What is in its way."""
    source = reader.source
    if start is not None:
        yield f"Its start {start.record.attempt} is being stopped ({start.stopping})."
    usable = sorted(name for name, rate in job.rates.items() if rate > 0)
    own = (
        job.id if source.state.registry.live.get(job.id) else -1
    )  # the same for all that have no starts
    found = source.device_uses.of((*usable, own), lambda: devices(source, set(usable), own))
    yield _occupied(reader, found, usable)
    if found.away:
        parts = ", ".join(f"{_many(n)} on nodes that are {why}" for why, n in found.away.items())
        yield f"Not to be had: {parts}."
    yield _next_chance(reader, job, found)
    if found.free < job.scale_factor and "training" in found.held:
        yield kept_by_hysteresis(source.state, job.id)


def devices(source: ExplanationSource, types: set[str], job: int) -> DeviceUse:
    """Those of these accelerator types. job: whose own starts do not count as others."""
    now = source.state.fleet.monotonic()
    found = DeviceUse(0, {}, {}, {})
    free = 0
    for node in list(source.state.fleet.nodes.values()):
        if node.accelerator not in types:
            continue
        starts = _by_device(source, node.name)
        for those in starts.values():
            _hold(source, found, those, job)
        state, left = condition(node, now).state, node.devices - len(starts)
        if state == "up":
            free += left
        elif left:
            found.away[state] = found.away.get(state, 0) + left
    return replace(found, free=free)


def _by_device(source: ExplanationSource, node: str) -> dict[int, list[Attempt]]:
    """Index of a device of a node -> starts that have it or wait for it; those of free ones are left out."""
    found: dict[int, list[Attempt]] = {}
    for start in list(source.state.registry.on_node.get(node, {}).values()):
        for device in start.placement().get(node, ()) if start.ordered else ():
            found.setdefault(device, []).append(start)
    return found


def _hold(source: ExplanationSource, found: DeviceUse, starts: list[Attempt], job: int) -> None:
    """Count a device that these starts have or wait for. It is held by those that have it, while there are
    any: a start that it is passed on to has yet to get it."""
    have = [start for start in starts if not waits_for_devices(source, start) or start.stopping]
    others = [start for start in have or starts if start.row.id != job]
    passed = {start.row.id for start in starts if start not in others and start.row.id != job}
    doing = {start.row.id: what_it_does(source, start) for start in others}
    for start in starts:
        if start.row.id in passed:
            found.jobs.setdefault(start.row.id, what_it_does(source, start))
    found.jobs.update(doing)
    if not doing:
        return
    said = min(doing.values(), key=FIRST_SAID.index)
    holding = found.held.setdefault(said, Holding())
    holding.devices += 1
    holding.jobs.update(one for one, does in doing.items() if does == said)
    holding.next.update(passed - doing.keys())


def _occupied(reader: Reader, found: DeviceUse, usable: list[str]) -> str:
    """Who holds the devices, and what they do."""
    names = (
        " and ".join(usable) if len(usable) <= 2 else f"{', '.join(usable[:-1])} and {usable[-1]}"
    )
    free = f"{_many(found.free)} of {names} {'is' if found.free == 1 else 'are'} free"
    if not found.held:
        return (
            f"{free}, and no other job holds any."
            if found.free
            else f"No device of {names} is free."
        )
    parts = [
        f"{_many(holding.devices)} {_by(reader, sorted(holding.jobs), doing)}{_passed(reader, holding)}"
        for doing, holding in sorted(found.held.items())
    ]
    return f"Of {names}: {_list([*([free] if found.free else []), *parts])}."


def _passed(reader: Reader, holding: Holding) -> str:
    """For whom the devices are meant next, "" = for nobody yet."""
    return f" (next: {reader.names(holding.next)})" if holding.next else ""


_WORDS: dict[Doing, str] = {
    "training": "held by {} in training",
    "starting": "held by {} still starting",
    "stopping": "held by {} told to stop and not ended yet",
    "stuck": "held by {} without a step for long, perhaps hanging",
    "finishing": "held by {} past the last step and not ended yet",
}
_HELD = "held by "


def _by(reader: Reader, jobs: list[int], doing: Doing) -> str:
    many = doing == "training" and len(jobs) > NAMED
    return _WORDS[doing].format(f"{len(jobs)} jobs" if many else reader.names(jobs))


def _next_chance(reader: Reader, job: JobView, found: DeviceUse) -> str:
    """When it is decided anew, and what that waits for."""
    source = reader.source
    current = source.state.round
    if source.state.fleet.is_held:
        left_s = source.state.fleet.hold_until - source.state.fleet.monotonic()
        return f"Nothing is started for {duration(max(left_s, 0.0))}: {source.state.fleet.hold_reason}."
    if current is None:
        return (
            "No round is in force."
            if source.state.scheduler is not None
            else "No node has come up yet."
        )
    left_s = current.end_s - source.state.now_s()
    if left_s > 0:
        return f"Who runs is decided anew in {duration(left_s)}{_early(reader, job, found)}."
    late = [one for one, doing in found.jobs.items() if _holds_up(source, one, doing)]
    waits = f": {_by(reader, late, 'starting').removeprefix(_HELD)}" if late else ""
    return f"The round has been over for {duration(-left_s)} and has not ended yet{waits}."


def _early(reader: Reader, job: JobView, found: DeviceUse) -> str:
    """What may end the round before its time; "" where nothing is free, or rounds run to their end."""
    source = reader.source
    if found.free < job.scale_factor or source.state.options.early_s == float("inf"):
        return ""
    late = [one for one, doing in found.jobs.items() if doing == "starting"]
    if source.costs.heeded() or not late:
        return " or earlier, for there is room"
    have = "has" if len(late) == 1 else "have"
    whose = "its start" if len(late) == 1 else "their starts"
    return (
        f", or earlier, once {reader.names(late)} {have} trained for as long as {whose} took, or "
        f"{'was' if len(late) == 1 else 'were'} ordered a round's length ago"
    )


def _holds_up(source: ExplanationSource, job: int, doing: Doing) -> bool:
    """May a round wait for its start? The policy would take its devices, and it has not begun to train,
    whether it still starts or hangs in doing so."""
    if source.costs.heeded():
        return False
    start = source.state.registry.newest(job)
    if doing != "stuck" or start is None:
        return doing == "starting"
    held = source.state.fleet.held(start.first_node, start.key)
    return held is None or held.loaded_step < 0


# --- what was decided -----------------------------------------------------------------------------------


def _share(source: ExplanationSource, job: JobView) -> str:
    """Its share of the time, or why it has none."""
    standing, solve = source.state.standing, source.solves.state
    shares = standing.shares(job.id)
    failed = f" (the last solve {solve})" if solve.startswith("failed") else ""
    if shares:
        given = ", ".join(f"{share:.2f} of the time on {name}" for name, share in shares.items())
        return f"Policy {source.state.policy} gives it {given}{failed}."
    if failed:
        return f"It has no share of the time yet: the solve {solve}."
    if source.solves.began_s is not None:
        return f"It has no share of the time yet: a solve is {solve}."
    if standing.at(job.id) is None and job.state in ("running", "finishing"):
        return ""  # it has been decided on before the server was started
    if standing.at(job.id) is None:
        return _undecided(source, job)
    if standing.answered(job.id):
        return f"Policy {source.state.policy} gives it no share of the time now."
    if not standing.allocated.any():
        return ""  # a policy without shares, or one that has not answered yet
    return "It joined after the last solve, and is part of the next."


def _undecided(source: ExplanationSource, job: JobView) -> str:
    """On a job that the last decision was not about."""
    core = source.state.scheduler
    if core is not None and JobId(job.id) in core.data.paused_jobs:
        return ""  # it is left out on purpose; why has been said
    if job.starts:
        return "It took no part in the last decision, and takes part in the next."
    return "It joined after the last decision, and takes part in the next."


def _pair(reader: Reader, job: JobView) -> str:
    """With whom it shares devices, or why with nobody."""
    standing = reader.source.state.standing
    partners = standing.partners(job.id)
    if partners:
        return f"It has a share of the time on the same devices as {reader.names(partners)}."
    row = reader.source.state.registry.jobs.get(job.id)
    states = row is not None and colocates(row.spec)
    return why_unpaired(standing, job.id, reader.source.state.policy, states)


def _many(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def _list(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
