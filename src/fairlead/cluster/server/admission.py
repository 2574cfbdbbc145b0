"""Which jobs the core knows, and under which rates: those that wait for no other job and fit the cluster, as
kinds of its table."""

import logging
from collections.abc import Collection, Mapping

import numpy as np

from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import colocates
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.held_jobs import HeldJobs
from fairlead.cluster.server.node_condition import usable
from fairlead.cluster.server.pair_rules import label_of, labels_named, learned_pairs
from fairlead.cluster.server.pinned_jobs import PinnedJobs
from fairlead.cluster.server.rates import (
    by_accelerator,
    fits,
    job_type_of_row,
    job_types_of_row,
    stated_rates,
)
from fairlead.cluster.server.retry_waits import RetryWaits
from fairlead.cluster.store.rows import ON_DEVICES, JobRow
from fairlead.model.arrays import Floats
from fairlead.model.events import (
    JobsPaused,
    JobsSubmitted,
    JobTypesLearned,
)
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.pair_rates import LearnedPairs
from fairlead.scheduler.setup import Setup

_log = logging.getLogger(__name__)
MIN_SLO_S = 1e-3  # of a job that is late before it takes part
_NO_PLACE = "no node, or nodes together, with"


class Admission:
    """Admits jobs to the core. Used on the driver's thread; ``rates`` may be called from any."""

    def __init__(self, state: ClusterState, pinned: PinnedJobs, retry_waits: RetryWaits) -> None:
        self._state = state
        self.held = HeldJobs(state)
        self._retry_waits = retry_waits
        self._pinned = pinned
        # Open jobs that the core does not know: they are held, or fit nowhere
        self.unplaced: set[int] = set()
        self.unfit: set[int] = set()  # jobs that fit nowhere any more; the core holds them aside
        self.learning: set[JobType] = set()  # kinds that the core is about to be told of
        self._learning_classes: dict[str, None] = {}  # the same of classes of pairs

    def is_outside(self, job: int) -> bool:
        """Return whether the job takes no part in rounds, as it waits for other jobs or for a cluster that it
        fits."""
        return job in self.unplaced or job in self.unfit

    def why_waits(self, row: JobRow) -> str:
        """Return why a job waits for a cluster that it fits; "" = it does not. Of now, whatever its row says:
        other reasons are written there too."""
        if not self.is_outside(row.id) or self.held.has(row):
            return ""
        return no_place(row, self._state.setup)

    def why_held(self, row: JobRow) -> str:
        """Which other jobs a job waits for, from a verb on; "" = for none."""
        return self.held.reason(row)

    def has_capacity(self) -> bool:
        """Return whether a waiting job could run on devices that no job of the round holds."""
        free = self._free()
        if not any(free.values()):
            return False
        fitting: dict[JobType, bool] = {}
        bound = self._state.bound_devices
        for row in self._state.registry.jobs.values():
            if not self._wants_devices(row):
                continue
            if row.id in bound:
                if self._are_free(bound[row.id]):
                    return True
                continue
            job_type = job_type_of_row(row)
            if job_type not in fitting:
                able = {name for name, rate in self.rates(row).items() if rate > 0}
                least = row.spec.scale_factors[0]
                fitting[job_type] = any(free.get(name, 0) >= least for name in able)
            if fitting[job_type]:
                return True
        return False

    def _wants_devices(self, row: JobRow) -> bool:
        """Return whether the job has no devices and the next round is to place it. The row shows only when it
        is reported that its attempt has ended in the round in force."""
        current = self._state.round
        over = None if current is None else current.ended.get(row.id)
        lost = row.state in ON_DEVICES and over is not None and not over.completed
        if row.retry_s is not None or not (lost or row.state in ("waiting", "preempted")):
            return False
        return not self.is_outside(row.id) and not self._pinned.has(row.id)

    def _are_free(self, devices: Collection[tuple[str, int]]) -> bool:
        """Return whether no job of the round that goes on holds one of these. devices: node, index there."""
        current, nodes = self._state.round, self._state.fleet.nodes
        now = self._state.fleet.monotonic()
        if not all(name in nodes and usable(nodes[name], now) for name, _ in devices):
            return False
        return current is None or not any(
            (name, d) in devices
            for job, attempt in current.attempts.items()
            if job not in current.ended
            for name, held in attempt.placement().items()
            for d in held
        )

    def _free(self) -> dict[str, int]:
        """Accelerator type -> devices of nodes in use, less those of jobs of the round that go on."""
        free: dict[str, int] = {}
        now = self._state.fleet.monotonic()
        for node in self._state.fleet.nodes.values():
            if usable(node, now):
                free[node.accelerator] = free.get(node.accelerator, 0) + node.devices
        current = self._state.round
        if current is None:
            return free
        for group in current.job_groups.tolist():
            alive = [job for job in group if job >= 0 and job not in current.ended]
            if alive:  # the members of a pair hold the same devices
                record = current.attempts[alive[0]].record
                free[record.accelerator] = free.get(record.accelerator, 0) - len(record.devices)
        return free

    def forget_learning(self) -> None:
        """The core is another one: what it was about to be told is in its table, or is to be told anew."""
        self.learning, self._learning_classes = set(), {}

    def refit(self, now: float) -> None:
        """Jobs that fit the cluster now join, or go on; those that no longer do are held aside."""
        assert self._state.setup is not None
        joining = []
        for job, row in sorted(self._state.registry.jobs.items()):
            if not row.open or row.state == "paused" or self._pinned.has(job):
                continue
            if self.held.has(row):
                continue
            good = fits(self.rates(row), row.spec, self._state.setup.cluster)
            if job in self.unplaced and good:
                joining.append(row)
            elif job in self.unfit and good:
                self.unfit.discard(job)
                if row.reason.startswith(_NO_PLACE):
                    row.reason = ""
                    self._state.registry.dirty_jobs.add(job)
                if not self._retry_waits.keep_waiting(job):
                    self._state.emit(JobsPaused(now, np.array([job]), False))
            elif not good and job not in self.unplaced and job not in self.unfit:
                self.unfit.add(job)
                row.reason = no_place(row, self._state.setup)
                self._state.emit(JobsPaused(now, np.array([job]), True))
            elif not good and row.reason.startswith(_NO_PLACE):  # the cluster has other types now
                row.reason = no_place(row, self._state.setup)
        self._join(joining, now)

    def release_forgotten(self, now: float) -> None:
        """Have the core let go of jobs that it holds back although nothing asks for that any more. Whoever
        asks for it takes it back; where one fails to, the job must not wait for ever."""
        core = self._state.scheduler
        if core is None or not core.data.paused_jobs.jobs.n:
            return
        events = [event for event in self._state.events if isinstance(event, JobsPaused)]
        told = {job for event in events for job in event.jobs.tolist()}
        held = set(core.data.paused_jobs.jobs.id.tolist()) - told
        if found := sorted(job for job in held if self._is_forgotten(job)):
            _log.error(
                "jobs %s were held back for no reason that is known; they are no longer", found
            )
            self._state.emit(JobsPaused(now, np.array(found), False))

    def _is_forgotten(self, job: int) -> bool:
        row = self._state.registry.jobs.get(job)
        if row is None or not row.open or row.state == "paused" or job in self.unfit:
            return False
        return job not in self._pinned.nodes and job not in self._retry_waits.waiting

    def admit(self, rows: list[JobRow], now: float) -> None:
        """Take over jobs that are new. Those that wait for others are held."""
        self.unplaced.update(row.id for row in rows)
        self._join([row for row in rows if not self.held.hold(row)], now)

    def settle(self) -> bool:
        """Do what follows for held jobs from the ends of others. Returns whether there was anything."""
        found = False
        while any(decided := self.held.decide()):
            found, now = True, self._state.now_s()
            for row, why in decided.failed:
                self.end_outside(row, "dropped", why)
            for row in decided.released:
                row.held_s = now - row.submitted_s
                self._state.registry.dirty_jobs.add(row.id)
            self._state.capacity_changed = True
            self._join([row for row in decided.released if row.state != "paused"], now)
        return found

    def end_outside(self, row: JobRow, ended: JobState, reason: str) -> None:
        """End a job that the core does not know."""
        self.unplaced.discard(row.id)
        row.state, row.ended_s, row.reason = ended, self._state.now_s(), reason
        self._state.close_job(row)
        self._state.count_ended([ended])  # the core, which counts all others, never knew it

    def _join(self, rows: list[JobRow], now: float) -> None:
        """Hand jobs to the core, if they fit the cluster; else they wait for one that they fit."""
        fitting = []
        for row in rows:
            if self._state.setup is None or not fits(
                self.rates(row), row.spec, self._state.setup.cluster
            ):
                row.reason = no_place(row, self._state.setup)
                continue
            self.unplaced.discard(row.id)
            row.reason = "" if row.reason.startswith(_NO_PLACE) else row.reason
            row.drop_reason()
            fitting.append(row)
        if fitting:
            self._learn_job_types(fitting, now)
            self._state.emit(JobsSubmitted(now, tuple(job_of(row) for row in fitting)))

    def rates(self, row: JobRow) -> dict[str, float]:
        """Accelerator type of the cluster -> steps/s believed of a job, side by side where that matters."""
        if self._state.scheduler is None:
            return {}
        table = self._state.scheduler.data.throughputs
        job_type = table.row(job_type_of_row(row))
        rate = stated_rates(row.spec, table.slots) if job_type is None else table.rate[job_type]
        learned = self._state.learned_rates.get(row.id)
        if learned is not None and len(learned) == len(table.slots):
            rate = learned
        return by_accelerator(table.slots, rate)

    def _learn_job_types(self, rows: list[JobRow], now: float) -> None:
        """Tell the core of the job types of new jobs, all at once: each time it copies its table."""
        assert self._state.scheduler is not None
        table = self._state.scheduler.data.throughputs
        new: dict[JobType, JobSpec] = {}
        asked = ((row.spec, job_type) for row in rows for job_type in job_types_of_row(row))
        for spec, job_type in asked:
            if table.row(job_type) is None and job_type not in self.learning:
                new.setdefault(job_type, spec)
        if not new:
            return
        self.learning.update(new)
        pairs = None
        if self._state.scheduler.data.planning.planner.space_sharing:
            new |= self._named_by(new)
            pairs = self._pairs(new)
        rate = np.stack([self._rate_alone(one, spec) for one, spec in new.items()])
        self._state.emit(JobTypesLearned(now, tuple(new), table.slots, rate, pairs=pairs))

    def _rate_alone(self, job_type: JobType, spec: JobSpec) -> Floats:
        """(slots,) steps/s of a job type that jobs brought along, as the core has it or shall have it."""
        assert self._state.scheduler is not None
        known = self._state.scheduler.data.beliefs.known
        row = known.row(job_type)
        if row is not None:
            return np.asarray(known.rate[row])
        first = known.row(job_type.with_scale_factor(spec.scale_factor))
        rate = None if first is None else known.rate[first]
        return stated_rates(spec, known.slots, job_type.scale_factor, rate)

    def _named_by(self, new: Mapping[JobType, JobSpec]) -> dict[JobType, JobSpec]:
        """Job types that the core knows, of jobs that new ones are the first to name: they are told apart
        from now on."""
        labels = labels_named((), new.values()) - labels_named(self._classes(), ())
        if not labels:
            return {}
        assert self._state.scheduler is not None
        known, found = self._state.scheduler.data.beliefs.known, {}
        for row in self._state.registry.jobs.values():
            if label_of(row.spec) in labels and colocates(row.spec):
                job_type = job_type_of_row(row)
                if known.row(job_type) is not None or job_type in self.learning:
                    found[job_type] = row.spec
        return found

    def _pairs(self, new: Mapping[JobType, JobSpec]) -> LearnedPairs | None:
        """Return how fast jobs of these job types are beside others, as they say; None = nobody says
        anything."""
        assert self._state.scheduler is not None
        known = self._state.scheduler.data.beliefs.known
        if known.pair_rates is None and not any(map(colocates, new.values())):
            return None
        rate = {one: self._rate_alone(one, spec) for one, spec in new.items()}
        catalogue = self._state.options.catalogue
        found = learned_pairs(catalogue, known.slots, rate, new, self._classes())
        self._learning_classes.update(dict.fromkeys(found.classes))
        return found

    def _classes(self) -> list[str]:
        """The classes of pairs that the core knows, or is about to be told of."""
        assert self._state.scheduler is not None
        known = self._state.scheduler.data.beliefs.known.pair_rates_by_class().classes
        return list(dict.fromkeys((*filter(None, known), *self._learning_classes)))

    def learn_batch(self, row: JobRow) -> None:
        """Add rates for the batch size that a job now uses, at the old number of samples per second, if the
        table lacks its family at that batch size."""
        assert self._state.scheduler is not None
        before = job_type_of_row(row)
        job_type = before.with_batch_size(row.batch)
        row.rates_family = job_type.name
        table = self._state.scheduler.data.throughputs
        old = table.row(before)
        if job_type == before or table.row(job_type) is not None or job_type in self.learning:
            return
        self.learning.add(job_type)
        samples = before.batch_size or row.batch
        rate = np.zeros(len(table.slots)) if old is None else table.rate[old] * samples / row.batch
        now = self._state.now_s()
        self._state.emit(JobTypesLearned(now, (job_type,), table.slots, rate[None, :]))


def job_of(row: JobRow) -> Job:
    """A job as the core is told of it."""
    spec = row.spec
    return Job(
        id=JobId(row.id),
        family=row.rates_family,
        scale_factor=row.scale_factor,
        devices=spec.devices,
        total_steps=row.total_steps,
        weight=row.weight,
        tenant=row.tenant,
        # Of what its owner gave it, its wait for other jobs is over when the core hears of it.
        slo_s=None if spec.slo_s is None else max(spec.slo_s - row.held_s, MIN_SLO_S),
    )


def no_place(row: JobRow, setup: Setup | None) -> str:
    """Return why a job that fits nowhere waits. setup: None = there are no nodes yet."""
    n = row.spec.scale_factors[0]
    several = "a device" if n == 1 else f"{n} devices of one type"
    text = f"{_NO_PLACE} {several} on which it can run"
    there = () if setup is None else setup.cluster.accelerators
    if not there or not row.spec.rates or not set(there).isdisjoint(row.spec.rates):
        return text
    stated = ", ".join(sorted(row.spec.rates))
    return f"{text}: its rates are for {stated}, and the cluster has {', '.join(sorted(there))}"
