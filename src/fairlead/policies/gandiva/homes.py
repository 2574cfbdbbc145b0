"""Homes of jobs: the servers on which they take turns."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.cluster import Locality
from fairlead.model.snapshot import Servers, Snapshot
from fairlead.policies.gandiva.state import JobRecord

MAX_WAITED = 10  # rounds in the queue after which a job takes turns on servers of any affinity
_ALMOST_NOTHING = 0.02  # part of its time left that a job may lose by being moved to make room
_NEARLY_EMPTY = 0.75  # part of a server's devices that are free, from which its jobs are moved away


@dataclass(slots=True)
class Homes:
    """Servers with the jobs at home there, changed as jobs are placed and moved.

    load: devices that the jobs of a server ask for; above its devices, it is overloaded: its height is
    above 1. Its affinity is the number of devices that the first of its jobs asks for; 0 where it has none.
    """

    snapshot: Snapshot
    servers: Servers
    jobs: list[JobRecord]
    oversubscribes: (
        bool  # whether jobs may take turns; if not, those without room wait in the queue
    )
    scale: list[int] = field(init=False)
    working: list[int] = field(init=False)
    accelerator: list[int] = field(init=False)
    load: list[int] = field(init=False)
    residents: list[list[int]] = field(init=False)  # positions of jobs by node, each once
    solo_rate: Floats = field(init=False)  # (jobs, slots) steps/s, on scattered devices too
    _slots: list[tuple[int, int]] = field(init=False)  # by type: together, scattered (-1 = none)
    _sizes: list[list[int]] = field(init=False)  # by type: devices of its servers, largest first

    def __post_init__(self) -> None:
        servers, snapshot = self.servers, self.snapshot
        self.solo_rate = solo_rates(snapshot)
        self.scale = snapshot.job_scale.tolist()
        self.working = servers.working.tolist()
        self.accelerator = servers.accelerator.tolist()
        self.load = [0] * len(self.working)
        self.residents = [[] for _ in self.working]
        self._slots = [(-1, -1)] * len(snapshot.capacity)
        for k, slot in reversed(list(enumerate(snapshot.slots))):
            t = int(snapshot.accelerator_of_slot[k])
            together, scattered = self._slots[t]
            is_scattered = slot.locality is Locality.SCATTERED
            self._slots[t] = (together, k) if is_scattered else (k, scattered)
        self._sizes = [[] for _ in self._slots]
        for t, size in sorted(zip(self.accelerator, servers.size.tolist(), strict=True)):
            self._sizes[t].insert(0, size)
        for i, record in enumerate(self.jobs):
            if self._is_lost(i, record.home):
                self.jobs[i] = record._replace(home=(), turn=float("nan"))
            else:
                self._enter(i, record.home)

    # --- what is known ---------------------------------------------------------------------------

    def slot(self, job: int, home: tuple[int, ...]) -> int:
        """Return the slot of a job with this home, -1 = it cannot run there."""
        t = self.accelerator[home[0]]
        together, scattered = self._slots[t]
        spread = scattered >= 0 and len(set(home)) > self._fewest(t, len(home))
        slot = scattered if spread else together
        return slot if slot >= 0 and self.solo_rate[job, slot] > 0 else -1

    def planned_slot(self, home: tuple[int, ...]) -> int:
        """Return the slot that a plan names for this home; placement finds the locality."""
        return self._slots[self.accelerator[home[0]]][0]

    def rate(self, job: int, home: tuple[int, ...]) -> float:
        """Return the believed steps/s of a job with this home, 0 = it cannot run there."""
        slot = self.slot(job, home)
        return float(self.solo_rate[job, slot]) if slot >= 0 else 0.0

    def free(self, node: int) -> int:
        """Return the devices of a server that no job is at home on, 0 where it is overloaded."""
        return max(self.working[node] - self.load[node], 0)

    def overloaded(self, node: int) -> bool:
        """Return whether its jobs ask for more devices than work there."""
        return self.load[node] > self.working[node]

    def affinity(self, node: int) -> int:
        """Return the devices that the first job of a server asks for; 0 without jobs."""
        return self.scale[self.residents[node][0]] if self.residents[node] else 0

    def _fewest(self, accelerator: int, devices: int) -> int:
        count = total = 0
        for size in self._sizes[accelerator]:
            if total >= devices:
                break
            count, total = count + 1, total + size
        return count

    def _is_lost(self, job: int, home: tuple[int, ...]) -> bool:
        """Return whether a home does not work any more, or its rate is gone."""
        if not home or len(home) != self.scale[job]:
            return bool(home)
        return any(self.working[node] < home.count(node) for node in home) or (
            self.slot(job, home) < 0
        )

    # --- changes ---------------------------------------------------------------------------------

    def _enter(self, job: int, home: tuple[int, ...]) -> None:
        for node in home:
            self.load[node] += 1
        for node in sorted(set(home)):
            self.residents[node].append(job)

    def move(self, job: int, home: tuple[int, ...]) -> None:
        """Give a job another home. Its turn comes as soon as that of the first one there."""
        for node in self.jobs[job].home:
            self.load[node] -= 1
        for node in set(self.jobs[job].home):
            self.residents[node].remove(job)
        neighbours = [self.jobs[other].turn for node in set(home) for other in self.residents[node]]
        turn = min(neighbours, default=0.0)
        self._enter(job, home)
        self.jobs[job] = self.jobs[job]._replace(home=home, turn=turn, waited=0)

    def place_newcomers(self) -> None:
        """Give homes to the jobs in the queue, in order of submission; who finds none waits on."""
        for job, record in enumerate(self.jobs):
            if record.home:
                continue
            home = self._find(job, record.waited)
            if home is None:
                self.jobs[job] = record._replace(waited=record.waited + 1)
            else:
                self.move(job, home)

    def _find(self, job: int, waited: int) -> tuple[int, ...] | None:
        """Return a home for a newcomer: beside jobs of its size, on an empty server, on any free devices,
        taking turns with jobs of its size, and, after a time in the queue, with any."""
        scale, nodes = self.scale[job], self._nodes_for(job)
        same = [n for n in nodes if self.affinity(n) == scale and self.free(n) >= scale]
        if same:
            return (min(same, key=lambda n: (*self._least_loaded(n), n)),) * scale
        empty = [n for n in nodes if not self.load[n]]
        home = self._together(job, empty) or self._anywhere(job, nodes)
        if home is not None or not self.oversubscribes:
            return home
        large = [n for n in nodes if self.working[n] >= scale]
        same = [n for n in large if self.affinity(n) == scale]
        if same:
            return (min(same, key=lambda n: (*self._least_loaded(n), n)),) * scale
        if waited < MAX_WAITED and any(self.working[n] for n in nodes):
            return None
        if large:
            return (min(large, key=lambda n: (*self._least_loaded(n), n)),) * scale
        return self._over_several(job, nodes)

    def _nodes_for(self, job: int) -> list[int]:
        """Return the servers of types that can run a job, the fastest type first."""
        rate = self.solo_rate[job]
        speed = [max(float(rate[k]) for k in slots if k >= 0) for slots in self._slots]
        nodes = [n for n, t in enumerate(self.accelerator) if speed[t] > 0 and self.working[n]]
        return sorted(nodes, key=lambda n: -speed[self.accelerator[n]])

    def _least_loaded(self, node: int) -> tuple[float, ...]:
        return (self.load[node] / self.working[node],)

    def _together(self, job: int, nodes: list[int]) -> tuple[int, ...] | None:
        """Return free devices of these servers on the fewest, of the first type that has enough: the fullest
        server that holds the job whole, else the emptiest ones. None where there are not enough."""
        scale = self.scale[job]
        for t in dict.fromkeys(self.accelerator[n] for n in nodes):
            here = [n for n in nodes if self.accelerator[n] == t and self.free(n)]
            whole = [n for n in here if self.free(n) >= scale]
            if whole and self.slot(job, (whole[0],) * scale) >= 0:
                return (min(whole, key=self.free),) * scale
            home = _fill(scale, sorted(here, key=lambda n: -self.free(n)), self.free)
            if home and len(set(home)) <= self._fewest(t, scale) and self.slot(job, home) >= 0:
                return home
        return None

    def _anywhere(self, job: int, nodes: list[int]) -> tuple[int, ...] | None:
        """Return free devices whatever the affinity, scattered if need be; None: there are not enough."""
        home = self._together(job, nodes)
        if home is not None:
            return home
        for t in dict.fromkeys(self.accelerator[n] for n in nodes):
            here = [n for n in nodes if self.accelerator[n] == t]
            home = _fill(self.scale[job], sorted(here, key=lambda n: -self.free(n)), self.free)
            if home and self.slot(job, home) >= 0:
                return home
        return None

    def _over_several(self, job: int, nodes: list[int]) -> tuple[int, ...] | None:
        """Return devices, free or not, of the least loaded servers of one type."""
        for t in dict.fromkeys(self.accelerator[n] for n in nodes):
            here = [n for n in nodes if self.accelerator[n] == t]
            by_load = sorted(here, key=lambda n: (-self.working[n], self._least_loaded(n)))
            home = _fill(self.scale[job], by_load, lambda n: self.working[n])
            if home and self.slot(job, home) >= 0:
                return home
        return None

    # --- migration -------------------------------------------------------------------------------

    def improve(self) -> None:
        """Move jobs to free devices where they are faster, since they are together there or the type is
        faster, if the time that this saves is more than the move costs."""
        if not any(self.free(node) for node in range(len(self.working))):
            return
        best = self.solo_rate.max(axis=1).tolist()
        for job, record in enumerate(self.jobs):
            if record.home and self.rate(job, record.home) < best[job]:
                there = self._elsewhere(job)
                if there is not None and self._gain_s(job, there) > 0:
                    self.move(job, there)

    def _elsewhere(self, job: int) -> tuple[int, ...] | None:
        """Return devices on the fewest servers that would be free without the job."""
        home = self.jobs[job].home
        for node in home:
            self.load[node] -= 1
        there = self._together(job, self._nodes_for(job))
        for node in home:
            self.load[node] += 1
        return there

    def _gain_s(self, job: int, there: tuple[int, ...]) -> float:
        """Return the seconds that a move saves a job."""
        left = float(self.snapshot.steps_left[job])
        now, then = self.rate(job, self.jobs[job].home), self.rate(job, there)
        if not now or not then:
            return 0.0
        return left / now - left / then - float(self.snapshot.restart_s[job])

    def fill_vacated(self, waiting: list[int]) -> list[int]:
        """Give free devices to jobs that wait for their turn on overloaded servers. waiting: positions, the
        first in turn first. Returns those that were moved."""
        moved = []
        for job in waiting:
            if not any(self.overloaded(node) for node in self.jobs[job].home):
                continue
            there = self._together(job, self._nodes_for(job))
            if there is None:
                continue
            lasts_s = float(self.snapshot.steps_left[job]) / self.rate(job, there)
            if lasts_s > float(self.snapshot.restart_s[job]):
                self.move(job, there)
                moved.append(job)
        return moved

    def defragment(self) -> None:
        """Empty servers of which three quarters are free onto fuller ones of their type, where each job loses
        next to nothing, so that large jobs find whole servers."""
        for node in sorted(range(len(self.working)), key=lambda n: (-self.free(n), n)):
            nearly = self.free(node) >= _NEARLY_EMPTY * self.working[node]
            if self.residents[node] and nearly:
                for job in list(self.residents[node]):
                    there = self._fuller(job, node)
                    if there is not None:
                        self.move(job, (there,) * self.scale[job])

    def _fuller(self, job: int, node: int) -> int | None:
        """Return the fullest server with room for all of a job, if it is fuller than the job's."""
        home, scale = self.jobs[job].home, self.scale[job]
        rate = self.rate(job, home)
        lasts_s = float(self.snapshot.steps_left[job]) / rate if rate else 0.0
        if set(home) != {node} or self.snapshot.restart_s[job] > _ALMOST_NOTHING * lasts_s:
            return None
        there = [
            other
            for other, t in enumerate(self.accelerator)
            if t == self.accelerator[node]
            and other != node
            and self.free(other) >= scale
            and (self.free(other), other) < (self.free(node), node)
        ]
        return min(there, key=lambda n: (self.free(n), n), default=None)


def servers_of(snapshot: Snapshot) -> Servers:
    """Return the servers of a snapshot; without any, as in a problem from a file, each type is one server."""
    if snapshot.servers is not None:
        return snapshot.servers
    devices = snapshot.capacity.astype(np.int64)
    return Servers(
        names=tuple(map(str, range(len(devices)))),
        accelerator=np.arange(len(devices)),
        size=devices,
        working=devices,
    )


def solo_rates(snapshot: Snapshot) -> Floats:
    """(jobs, slots) steps/s of jobs alone, also where a slot type is dominated by another."""
    if snapshot.believed_rate is None:
        return snapshot.solo_rate
    return np.where(snapshot.solo_rate > 0, snapshot.solo_rate, _scattered(snapshot))


def _scattered(snapshot: Snapshot) -> Floats:
    """(jobs, slots) believed steps/s where the type can run a job at all, 0 elsewhere."""
    assert snapshot.believed_rate is not None
    of_slot = snapshot.accelerator_of_slot
    runs = np.zeros((len(snapshot.jobs), len(snapshot.capacity)), np.bool_)
    for slot, t in enumerate(of_slot.tolist()):
        runs[:, t] |= snapshot.solo_rate[:, slot] > 0
    return np.where(runs[:, of_slot], snapshot.believed_rate[snapshot.job_type], 0.0)


def _fill(scale: int, nodes: list[int], room: Callable[[int], int]) -> tuple[int, ...] | None:
    """Return so many devices of the first of these nodes, ascending; None where there are not enough."""
    home: list[int] = []
    for node in nodes:
        home += [node] * min(room(node), scale - len(home))
        if len(home) == scale:
            return tuple(sorted(home))
    return None
