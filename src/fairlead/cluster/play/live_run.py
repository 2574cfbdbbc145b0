"""What jobs have done on a live cluster, recorded as a simulation records it: the same tables and metrics.

The recorder of simulations is told of the rounds that the cluster had (its samples), of the jobs that ran in
them (their attempts), and of their ends. A round of the cluster is a round of the tables; an attempt belongs
to those between the round that began it and the one that ended it, and what it needed until it trained counts
as lost.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fairlead.cluster.play.planned_jobs import PlayPlan
from fairlead.cluster.play.player import PlayedJobs
from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.attempt_end import PREEMPTIONS, AttemptEnd
from fairlead.cluster.server.loaded_checkpoint import RESUMED
from fairlead.model.cluster import Cluster, Node
from fairlead.model.commands import EndJobs, JobEnd, StartRound
from fairlead.model.events import JobsSubmitted, RoundEnded, RoundOutcome
from fairlead.model.job import Arrival
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.recording.recorder import Recorder
from fairlead.simulator.recording.running_groups import ChargingRules
from fairlead.simulator.traces.cluster_files import priced

_ENDS = {
    "completed": JobEnd.COMPLETED,
    "dropped": JobEnd.DROPPED,
    "killed": JobEnd.KILLED,
    "cancelled": JobEnd.CANCELLED,
}
_NEVER = float("inf")
SLACK_S = 0.1  # for an order to stop to be followed


@dataclass(slots=True)
class _Stay:
    """A time of a job on devices: an attempt. Times are seconds after the first submission."""

    job: int  # of the trace
    devices: tuple[int, ...]  # of the cluster
    began_s: float
    trained_s: float
    ended_s: float
    end: AttemptEnd | None
    steps: float
    stop_s: float  # that it took to stop, without saving
    save_s: float  # all its saves
    submitted_s: float  # of its job
    job_ended_s: float
    rounds: range = field(default_factory=lambda: range(0))  # in which it ran


@dataclass(frozen=True, kw_only=True)
class LiveRun:
    """Jobs that were played. plan: with the nodes that the cluster had last; round_s: the longest that a
    round lasted."""

    plan: PlayPlan
    played: PlayedJobs
    round_s: float

    @cached_property
    def cluster(self) -> Cluster:
        """The nodes that the cluster had last, and those that were there before and ran jobs: with as many
        devices as were seen in use."""
        known = {node.name: node for node in self.plan.cluster.nodes}
        for attempts in self.played.attempts.values():
            for one in attempts:
                for name, device in zip(one.nodes, one.devices, strict=False):
                    devices = max(device + 1, known[name].devices if name in known else 0)
                    known[name] = Node(name, one.accelerator, devices)
        return priced(Cluster(tuple(known.values())), self.plan.cluster.prices)

    def notes(self) -> tuple[str, ...]:
        """What was not as in a simulation, in sentences."""
        there = {node.name for node in self.plan.cluster.nodes}
        gone = [node.name for node in self.cluster.nodes if node.name not in there]
        notes = [
            f"node {name} came or went meanwhile: it is counted for the whole time" for name in gone
        ]
        wanted = {one.job.id: one.job.tenant for one in self.plan.jobs}
        jobs = [one.job for one in self.arrivals()]
        others = {job.tenant for job in jobs if wanted[job.id] not in ("", job.tenant)}
        if others:
            own = ", ".join(sorted(others))
            notes.append(f"jobs were submitted for {own}, not for the tenants of the trace")
        return tuple(notes)

    @cached_property
    def rates(self) -> Throughputs:
        """The rates of its accelerator types."""
        return self.plan.table.columns(self.cluster.slots)

    def arrivals(self) -> list[Arrival]:
        """The jobs as they were submitted: at their true times, in their order."""
        first_s = self._first_s()
        found = [
            Arrival(view.submitted_s - first_s, replace(one.job, tenant=view.tenant))
            for one in self.plan.jobs
            if (view := self._view(int(one.job.id))) is not None
        ]
        return sorted(found, key=lambda one: one.time_s)

    def record(self) -> Recorder:
        """The recorder, told of everything."""
        recorder = Recorder(self.cluster, self.rates, ChargingRules(), solves=False)
        stays = self._stays()
        starts = self._round_starts(stays)
        _assign_rounds(stays, starts)
        changes = _Changes(recorder, self.arrivals(), self._ends())
        running: dict[int, list[_Stay]] = defaultdict(list)
        for stay in stays:
            for number in stay.rounds:
                running[number].append(stay)
        before: list[tuple[_Stay, ...]] = []
        for number, start_s in enumerate(starts[:-1]):
            changes.until(start_s)
            groups = _groups(running[number])
            recorder.command(self._start_round(number, start_s, groups, before, changes.active))
            end_s = starts[number + 1]
            changes.submit_until(end_s)
            if groups:
                recorder.event(_round_ended(number, start_s, end_s, groups))
            before = groups
        changes.until(_NEVER)
        recorder.finish()
        return recorder

    def start_costs(self) -> tuple[float | None, float | None]:
        """Mean seconds from the decision to run a job to its first step: of attempts that started, and of
        those that went on where they were parked; None where there were none."""
        found: dict[bool, list[float]] = {False: [], True: []}
        for one in self.played.ids.values():
            for attempt in self.played.attempts[one]:
                if attempt.trained_s is not None:
                    resumed = attempt.origin.startswith(RESUMED)
                    found[resumed].append(max(attempt.trained_s - attempt.began_s, 0.0))
        return _mean(found[False]), _mean(found[True])

    def _first_s(self) -> float:
        return min(view.submitted_s for view in self.played.jobs.values())

    def _view(self, job: int) -> JobView | None:
        given = self.played.ids.get(job)
        return None if given is None else self.played.jobs[given]

    def _stays(self) -> list[_Stay]:
        """In order of their beginnings; without attempts of which no node has ever told."""
        first_s, devices = self._first_s(), _device_ids(self.cluster)
        found = []
        for job, given in self.played.ids.items():
            view = self.played.jobs[given]
            for attempt in self.played.attempts[given]:
                places = list(zip(attempt.nodes, attempt.devices, strict=False))
                told = attempt.wait_s >= 0 or attempt.trained_s is not None
                if places and (told or attempt.end is AttemptEnd.FAILED):
                    at = tuple(devices[place] for place in places)
                    found.append(_stay(job, view, attempt, at, first_s))
        return sorted(found, key=lambda stay: stay.began_s)

    def _round_starts(self, stays: Sequence[_Stay]) -> list[float]:
        """Beginnings of rounds, and the end of the last one."""
        first_s = self._first_s()
        samples = [sample.time_s - first_s for sample in self.played.samples]
        ends = [view.ended_s - first_s for view in self.played.jobs.values() if view.ended_s]
        ends += [stay.ended_s for stay in stays if stay.ended_s < _NEVER]
        last_s = max([*ends, *samples, *(stay.began_s for stay in stays), 0.0])
        starts = _with_beginnings(sorted(set(samples)), stays, self.round_s)
        return [*(at for at in starts if at < last_s), last_s]

    def _ends(self) -> list[tuple[float, int, JobEnd]]:
        """(seconds, job of the trace, how) of the jobs that have ended, in order of time."""
        first_s, found = self._first_s(), []
        for job, given in self.played.ids.items():
            view = self.played.jobs[given]
            if view.ended_s is not None and view.state in _ENDS:
                found.append((view.ended_s - first_s, job, _ENDS[view.state]))
        return sorted(found)

    def _start_round(
        self,
        number: int,
        start_s: float,
        groups: Sequence[tuple[_Stay, ...]],
        before: Sequence[tuple[_Stay, ...]],
        active: int,
    ) -> StartRound:
        stayed = {tuple(map(id, group)) for group in before}
        held = [group[0].devices for group in groups]
        slot_of = {slot.accelerator: at for at, slot in enumerate(self.cluster.slots)}
        types = [self.cluster.accelerators[self.cluster.device_type[one[0]]] for one in held]
        return StartRound(
            time_s=start_s,
            round=number,
            length_s=self.round_s,
            job_groups=np.array(
                [[group[0].job, group[-1].job if len(group) > 1 else -1] for group in groups],
                np.int64,
            ).reshape(-1, 2),
            slot=np.array([slot_of[name] for name in types], np.int64),
            devices=np.array([device for one in held for device in one], np.int64),
            offsets=np.cumsum([0, *map(len, held)]),
            kept=np.array([tuple(map(id, group)) in stayed for group in groups], np.bool_),
            active=active,
        )


class _Changes:
    """Tells a recorder of jobs that come and go."""

    def __init__(
        self,
        recorder: Recorder,
        arrivals: Sequence[Arrival],
        ends: Sequence[tuple[float, int, JobEnd]],
    ) -> None:
        self._recorder = recorder
        self._arrivals, self._ends = deque(arrivals), deque(ends)
        self.active = 0

    def submit_until(self, time_s: float) -> None:
        """Tell of jobs that come."""
        while self._arrivals and self._arrivals[0].time_s <= time_s:
            one = self._arrivals.popleft()
            self._recorder.event(JobsSubmitted(one.time_s, (one.job,)))
            self.active += 1

    def until(self, time_s: float) -> None:
        """Tell of jobs that come, and of jobs that go."""
        while self._ends and self._ends[0][0] <= time_s:
            at_s, job, how = self._ends.popleft()
            self.submit_until(at_s)
            self._recorder.command(
                EndJobs(at_s, np.array([job]), np.array([int(how)]), np.array([at_s]))
            )
            self._recorder.now_s = max(self._recorder.now_s, at_s)
            self.active -= 1
        self.submit_until(time_s)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _device_ids(cluster: Cluster) -> dict[tuple[str, int], int]:
    """(node, device of it) -> device of the cluster."""
    found, first = {}, 0
    for node in cluster.nodes:
        found.update({(node.name, at): first + at for at in range(node.devices)})
        first += node.devices
    return found


def _stay(
    job: int, view: JobView, attempt: AttemptView, devices: tuple[int, ...], first_s: float
) -> _Stay:
    ended_s = _NEVER if attempt.ended_s is None else attempt.ended_s - first_s
    done = view.steps if attempt.ended_s is None else attempt.to_step
    steps = max(done - attempt.from_step, 0.0)
    began_s = attempt.began_s - first_s
    trained_s = began_s if steps > 0 else ended_s  # where nobody has told
    if attempt.trained_s is not None:
        trained_s = attempt.trained_s - first_s
    return _Stay(
        job=job,
        devices=devices,
        began_s=began_s,
        trained_s=max(trained_s, began_s),
        ended_s=ended_s,
        end=attempt.end,
        steps=steps,
        stop_s=max(attempt.stop_s, 0.0),
        save_s=max(attempt.save_s, 0.0),
        submitted_s=view.submitted_s - first_s,
        job_ended_s=_NEVER if view.ended_s is None else view.ended_s - first_s,
    )


def _with_beginnings(
    samples: Sequence[float], stays: Sequence[_Stay], round_s: float
) -> list[float]:
    """Beginnings of rounds: those of which there are samples, and those that must have been (samples of long
    ago are thinned out). One that ended an attempt; one that began an attempt, whose job was there before,
    and whose devices nobody else has had in the same round. round_s: the longest that a round lasts."""
    starts = list(samples)
    for stay in stays:
        if stay.end in PREEMPTIONS:
            at = bisect_right(starts, stay.ended_s) - 1
            told_s = stay.ended_s - stay.stop_s
            if at < 0 or starts[at] < told_s - stay.save_s - SLACK_S:
                insort(starts, told_s)
    holders: dict[int, _Stay] = {}
    for stay in stays:
        at = bisect_right(starts, stay.began_s) - 1
        start_s = starts[at] if at >= 0 else -_NEVER
        before = [holders[one] for one in stay.devices if one in holders]
        if (
            start_s < stay.submitted_s
            or stay.began_s - start_s > round_s
            or any(_hold_in_round(one, start_s) and not _are_packed(one, stay) for one in before)
        ):
            insort(starts, stay.began_s)
        holders.update(dict.fromkeys(stay.devices, stay))
    return starts


def _hold_in_round(stay: _Stay, start_s: float) -> bool:
    """Return whether the devices of a stay were its own in the round that began then."""
    return stay.began_s >= start_s or (stay.end not in PREEMPTIONS and stay.ended_s > start_s)


def _assign_rounds(stays: Sequence[_Stay], starts: Sequence[float]) -> None:
    """Find out in which rounds each ran. starts: beginnings of rounds, and the end of the last one. What a
    round's decision has ended stops a little later, in the next round: that one belongs to whoever came."""
    last = len(starts) - 2
    holders: dict[int, _Stay] = {}
    for stay in stays:
        # An attempt is ordered a little after the decision.
        first = min(max(bisect_right(starts, stay.began_s) - 1, 0), last)
        if stay.end in PREEMPTIONS:
            end = min(bisect_right(starts, stay.ended_s) - 2, last)
        else:
            end = min(bisect_left(starts, min(stay.ended_s, stay.job_ended_s)) - 1, last)
        stay.rounds = range(first, max(end, first) + 1)
        for device in stay.devices:
            earlier = holders.get(device)
            if earlier is not None and not _are_packed(earlier, stay):
                stop = min(earlier.rounds.stop, max(first, earlier.rounds.start))
                earlier.rounds = range(earlier.rounds.start, stop)
            holders[device] = stay


def _are_packed(one: _Stay, other: _Stay) -> bool:
    """Return whether two have trained beside each other, on the same devices."""
    together_s = min(one.ended_s, other.ended_s) - max(one.trained_s, other.trained_s)
    return one.devices == other.devices and one.job != other.job and together_s > 0


def _groups(stays: Sequence[_Stay]) -> list[tuple[_Stay, ...]]:
    """Those of a round, as job groups: pairs on the same devices are one."""
    by_devices: dict[tuple[int, ...], list[_Stay]] = defaultdict(list)
    for stay in stays:
        by_devices[stay.devices].append(stay)
    return [tuple(sorted(found, key=lambda one: one.job)[:2]) for found in by_devices.values()]


def _round_ended(
    number: int, start_s: float, end_s: float, groups: Sequence[tuple[_Stay, ...]]
) -> RoundEnded:
    n = len(groups)
    steps = np.zeros((n, 2))
    finish_s, restart_s = np.full(n, end_s), np.zeros(n)
    for at, group in enumerate(groups):
        stopped = [_stopped_s(one, number, end_s) for one in group]
        finish_s[at] = max(*stopped, start_s)
        lost = [min(max(one.trained_s - start_s, 0.0), end_s - start_s) for one in group]
        restart_s[at] = min(*lost, finish_s[at] - start_s)
        for member, one in enumerate(group):
            last = number == one.rounds[-1]
            done = 1.0 if last else _part_done(one, end_s)
            steps[at, member] = one.steps * (done - _part_done(one, start_s))
    # Steps of an attempt are those that count: of one that was lost, those that it had saved.
    outcome = np.full((n, 2), RoundOutcome.RAN, np.int64)
    return RoundEnded(end_s, number, steps, finish_s, outcome, restart_s)


def _stopped_s(stay: _Stay, number: int, end_s: float) -> float:
    """When it stopped in a round."""
    return min(stay.ended_s, end_s) if number == stay.rounds[-1] else end_s


def _part_done(stay: _Stay, time_s: float) -> float:
    """Part of its training that was before this."""
    whole_s = stay.ended_s - stay.trained_s
    if not 0 < whole_s < _NEVER:
        return 0.0
    return min(max((time_s - stay.trained_s) / whole_s, 0.0), 1.0)
