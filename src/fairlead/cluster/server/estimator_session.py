"""The estimator of a live cluster: fed by its rounds, and taken up again after a restart of the server."""

import base64
import io
from collections.abc import Sequence

import numpy as np

from fairlead.cluster.server.attempt_statuses import MIN_TRAINED_S
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.job_registry import Training
from fairlead.cluster.server.rates import stated_rates, table_for
from fairlead.estimation.estimating_backend import EstimatingBackend
from fairlead.estimation.protocol import CheckpointableEstimator, Estimator
from fairlead.estimation.registry import make_estimator
from fairlead.model.arrays import Floats
from fairlead.model.events import RatesLearned
from fairlead.model.job import Job, JobId
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.driver import Backend

INEXACT = 0.1  # of a round's seconds that reports may be late for it to count as a measurement
SAVE_INTERVAL_S = 60.0  # between two times that what was learned is written down


class EstimatorSession:
    """Runs the estimator of the live cluster. Used on the driver's thread."""

    def __init__(self, state: ClusterState, backend: Backend) -> None:
        self._state = state
        self._backend = backend
        self.spec = state.options.estimator
        self.estimating_backend: EstimatingBackend | None = None
        self._beliefs: dict[int, Floats] = {}  # by number
        self._marks: dict[int, tuple[int, float, float]] = {}  # job -> start, step, seconds trained
        self._written_s = 0.0

    @property
    def on(self) -> bool:
        """Return whether there is an estimator."""
        return self.estimating_backend is not None

    @property
    def backend(self) -> Backend:
        """Return the backend that drives the core."""
        return self._backend if self.estimating_backend is None else self.estimating_backend

    def take_over(self, core: Scheduler, now: float) -> None:
        """The core is another one, with the beliefs of the one before it."""
        known = core.data.beliefs.known
        if self.estimating_backend is None:
            estimator = self._make(core)
            if estimator is None:
                return
            estimator.table(known)
            self.estimating_backend = EstimatingBackend(
                self._backend, estimator, known, self._user_estimates, self._measured
            )
            self.estimating_backend.take_over_jobs(
                now, self._core_jobs(core), core.data.round.in_force
            )
        else:
            self.estimating_backend.switch_core(now, known, core.data.round.in_force)
        self._know(core)

    def _make(self, core: Scheduler) -> Estimator | None:
        """With the catalogue alone, as long as no job has run: rates that jobs bring are user estimates."""
        options, setup = self._state.options, self._state.setup
        assert setup is not None
        catalogue = table_for(options.catalogue, setup.cluster, {}).columns(core.data.slots)
        made = make_estimator(self.spec, catalogue, setup.cluster, options.seed)
        checkpoint = self._state.store.meta("estimator")
        if isinstance(made, CheckpointableEstimator) and checkpoint is not None:
            spec, _, text = checkpoint.partition(" ")
            if spec == self.spec:
                with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as arrays:
                    made.load_state_dict({name: arrays[name] for name in arrays.files})
        return made

    def _core_jobs(self, core: Scheduler) -> list[tuple[Job, float]]:
        """Jobs that the core has, with their steps done."""
        found = []
        for table in (core.data.ledger, core.data.paused_jobs):
            columns = (table.jobs.id, table.jobs.job_type, table.jobs.total, table.jobs.done)
            for job, job_type_row, total, done in zip(*(c.tolist() for c in columns), strict=True):
                job_type = core.data.throughputs.job_types[job_type_row]
                row = self._state.registry.jobs.get(job)
                tenant = "" if row is None else row.tenant
                known_as = (job_type.name, job_type.scale_factor)
                found.append((Job(JobId(job), *known_as, total, tenant=tenant), done))
        return found

    def _user_estimates(self, jobs: Sequence[Job]) -> Floats | None:
        """(jobs, slots) rates that users brought along, NaN = none."""
        assert self.estimating_backend is not None
        slots = self.estimating_backend.throughputs.slots
        estimates = np.full((len(jobs), len(slots)), np.nan)
        for i, job in enumerate(jobs):
            row = self._state.registry.jobs.get(job.id)
            if row is not None and row.spec.rates:
                estimates[i] = stated_rates(row.spec, slots)
        return estimates

    def _measured(self, job: int, steps: float, seconds: float) -> tuple[float, float] | None:
        """Steps of a job since it was measured last, and the seconds that they took by its agent's clock.
        What a round reports is off by as much as reports are late, which is much in a round of seconds.
        Those of an unmanaged job are only guessed by its rate."""
        row, attempt = self._state.registry.jobs.get(job), self._state.registry.newest(job)
        if row is None or (row.spec.unmanaged and not row.tells_steps):
            return None
        if attempt is not None and attempt.leader is not None:
            training = Training.of(attempt)
        else:  # its attempt ended in this round
            training = self._state.registry.trained.get(job)
            late_s = self._state.fleet.heartbeat_s
            if training is None and not row.spec.unmanaged and seconds >= late_s / INEXACT:
                return steps, seconds
        if training is None:
            return None
        known, step, trained_s = self._marks.get(job, (-1, 0.0, 0.0))
        if known != training.attempt:
            step, trained_s = training.from_step, 0.0
        did, took_s = training.step - step, training.seconds - trained_s
        if did <= 0 or took_s < MIN_TRAINED_S:
            return None
        self._marks[job] = training.attempt, training.step, training.seconds
        return did, took_s

    # --- what is believed --------------------------------------------------------------------------------

    def learned(self, event: RatesLearned) -> None:
        """Take note of what the core is about to be told."""
        for number, rate in zip(event.belief.tolist(), event.rate, strict=True):
            self._beliefs[number] = rate
        numbers = dict(zip(event.jobs.tolist(), event.name.tolist(), strict=True))
        rate_of = {job: self._beliefs[number] for job, number in numbers.items() if number >= 0}
        learned = {
            job: rate for job, rate in self._state.learned_rates.items() if job not in numbers
        }
        self._state.learned_rates = learned | rate_of

    def _know(self, core: Scheduler) -> None:
        known = core.data.beliefs
        self._beliefs = {n: known.table.rate[row] for n, row in known.row.items()}
        self._state.learned_rates = {}
        for table in (core.data.ledger, core.data.paused_jobs):
            for job, row in zip(table.jobs.id.tolist(), table.jobs.rate_row.tolist(), strict=True):
                if known.of_row(row) >= 0:
                    self._state.learned_rates[job] = known.table.rate[row]

    def forget(self, jobs: Sequence[int]) -> None:
        """They have left."""
        for job in jobs:
            self._state.learned_rates.pop(job, None)
            self._marks.pop(job, None)

    # --- what lasts ----------------------------------------------------------------------------------------

    def write(self, now: float) -> None:
        """Write down what was learned with the next commit, now and then."""
        if self.estimating_backend is None or now - self._written_s < SAVE_INTERVAL_S:
            return
        self._written_s = now
        if isinstance(self.estimating_backend.estimator, CheckpointableEstimator):
            file = io.BytesIO()
            np.savez_compressed(
                file, allow_pickle=False, **self.estimating_backend.estimator.state_dict()
            )
            text = f"{self.spec} {base64.b64encode(file.getvalue()).decode()}"
            self._state.write(lambda t: t.set_meta("estimator", text))
