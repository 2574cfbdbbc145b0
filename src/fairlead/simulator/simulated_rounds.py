"""The rounds of a simulation, and the true state of the jobs that run in them."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fairlead.errors import SimulationError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import StartRound
from fairlead.model.events import RequirementsChanged, RoundEnded
from fairlead.model.job import Job
from fairlead.model.pair_rates import pair_table
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.placement.servers import are_scattered
from fairlead.simulator.batch_size_stages import BatchSizeStages, change_stages
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.resume_costs import ResumeCosts
from fairlead.simulator.round_kernels import (
    RoundEnd,
    RoundForecast,
    RoundGroups,
    RoundStart,
    TrueRates,
    begin,
    empty_forecast,
    finish,
    nothing_done,
)
from fairlead.simulator.shockwave_reference.round_rules import (
    LOSSLESS_MARGIN_S,
    ReleasedEnd,
    ReleasedRules,
    finish_released,
)
from fairlead.simulator.true_jobs import JobUnderWay, TrueJobs

_Report: TypeAlias = tuple[Floats, Floats, Ints, Floats]  # of ``RoundEnded``


@dataclass(slots=True)
class _Round:
    """The round in force."""

    command: StartRound
    groups: RoundGroups
    forecast: RoundForecast
    end_s: float


class SimulatedRounds:
    """Simulates round after round: what jobs do by their true rates. Jobs whose devices are scattered run at
    the scattered rates of the table, if it has any."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        ground_truth: GroundTruth,
        *,
        whole_steps: bool = False,
        early_s: float = np.inf,
        released: ReleasedRules | None = None,
    ) -> None:
        """Arguments as of ``SimBackend``."""
        self.cluster = cluster
        self.throughputs = throughputs.on(cluster)
        self.ground_truth = ground_truth
        self.whole_steps = whole_steps
        self.early_s = early_s
        slots = self.throughputs.slots
        self.jobs = TrueJobs(len(slots))
        self.stages = BatchSizeStages(self.throughputs)
        self._released = released
        self._rates = TrueRates(  # copies: records of kernels have arrays that can be written
            self.throughputs.rate.copy(), pair_table(self.throughputs.pair_rates)
        )
        self._accelerator: Ints = np.array(  # (columns of the table,)
            [cluster.accelerators.index(slot.accelerator) for slot in slots]
        )
        largest = max(one.scale_factor for one in throughputs.job_types)
        self._fewest = cluster.fewest_servers(largest)
        self._resuming = None if ground_truth.resume_costs is None else ResumeCosts(cluster)
        self._round: _Round | None = None
        self._scratch = empty_forecast(0, 1), np.ones(0)  # of all rounds: see ``_room``
        self._last_end_s = 0.0

    def add(self, job: Job, steps_done: float = 0.0) -> None:
        """A job at the end; steps_done: where it has begun before."""
        row = self.throughputs.row(job.job_type)
        if row is None:
            raise SimulationError(f"job {job.id}: no rate for {job.job_type}")
        truth = self.ground_truth
        bias = truth.bias(job, len(self.cluster.accelerators))[self._accelerator]
        self.jobs.add(job, table_row=row, truth=truth, bias=bias)
        if self._resuming is not None and truth.resume_costs is not None:
            self._resuming.add(truth.restart_costs.of(job), truth.resume_costs.of(job))
        self.stages.add(job, self._released is None, steps_done)
        if self._released is not None:
            self._released.add(job)

    def add_under_way(self, one: JobUnderWay) -> None:
        """A job that was there before, at the end."""
        self.add(one.job, one.steps_done)
        self.jobs.set_under_way(one)

    @property
    def began_s(self) -> float | None:
        """When the round in force began; None = there is none."""
        return None if self._round is None else self._round.command.time_s

    def end_s(self) -> float:
        """When the round in force ends by itself; inf where there is none."""
        return np.inf if self._round is None else self._round.end_s

    def lose_node(self, node: int) -> None:
        """A node fails: what jobs had left on it to resume from is gone."""
        if self._resuming is not None:
            self._resuming.forget(node)

    def end_at(self, time_s: float) -> None:
        """The round in force ends then."""
        assert self._round is not None
        self._round.end_s = time_s

    def start(self, command: StartRound) -> bool:
        """Begin a round; False where nothing runs in it."""
        if not len(command.job_groups):
            self._round = None
            return False
        jobs = self.jobs
        index = jobs.index.find(command.job_groups)
        if jobs.elastic:
            self._resize(command, index)
        forecast, noise = self._room(*index.shape)
        if self.ground_truth.rate_noise > 0:
            noise = self.ground_truth.noise(command.round, len(index))
        groups = RoundGroups(
            job=index,
            slot=self._columns(command),
            kept=command.kept,
            noise=noise,
            offsets=command.offsets,
            devices=command.devices,
        )
        if self._resuming is not None:
            self._resuming.charge(groups, jobs.arrays)
        start = RoundStart(
            time_s=command.time_s,
            length_s=command.length_s,
            whole_steps=self.whole_steps,
            charge_startup=self._released is None,
        )
        end_s = begin(groups, jobs.arrays, self._rates, self.stages.table, start, forecast)
        self._round = _Round(command, groups, forecast, end_s)
        if self.early_s < np.inf and command.active > int((command.job_groups >= 0).sum()):
            self._end_early(self._round)
        return True

    def _resize(self, command: StartRound, index: Ints) -> None:
        """Elastic jobs have the rates of the devices that they are given. index: (groups, width) of jobs."""
        row = self.jobs.arrays.table_row
        for job, devices in zip(
            index[:, 0].tolist(), np.diff(command.offsets).tolist(), strict=True
        ):
            if job in self.jobs.elastic:
                job_type = self.throughputs.job_types[row[job]].with_scale_factor(devices)
                found = self.throughputs.row(job_type)
                assert found is not None  # the scheduler has looked, too
                row[job] = found

    def _room(self, groups: int, width: int) -> tuple[RoundForecast, Floats]:
        """A forecast with room for so many job groups, and noise that changes nothing."""
        forecast, no_noise = self._scratch
        if groups > len(no_noise) or width != forecast.rate.shape[1]:
            self._scratch = empty_forecast(2 * groups, width), np.ones(2 * groups)
        return self._scratch

    def _end_early(self, current: _Round) -> None:
        """Jobs wait: the round ends when the first of its job groups has, but not before its age for that."""
        command = current.command
        finish_s = current.forecast.finish_s[: len(command.job_groups)]
        over = finish_s[finish_s < command.time_s + command.length_s - 1e-9]
        if len(over):
            first_s = max(float(over.min()), command.time_s + self.early_s)
            current.end_s = min(current.end_s, first_s)

    def _columns(self, command: StartRound) -> Ints:
        """(groups,) columns of the table: what the devices are, whatever the scheduler takes them for."""
        if len(self._accelerator) == len(self.cluster.accelerators):
            return command.slot
        offsets, devices, cluster = command.offsets, command.devices, self.cluster
        accelerator = cluster.device_type[devices[offsets[:-1]]]
        column = np.searchsorted(self._accelerator, accelerator)
        scattered = are_scattered(
            offsets, devices, cluster.device_type, cluster.device_node, self._fewest
        )
        other = self.throughputs.other_locality[column]
        return np.where(scattered & (other >= 0), other, column)

    def end(self, time_s: float, lost: Bools) -> tuple[RoundEnded, RequirementsChanged | None]:
        """End the round in force; return its report, and who trains on at another batch size or None.
        lost: (devices,) those of failed nodes."""
        now = self._round
        assert now is not None
        self._round = None
        if self._released is None:
            report, changed = self._finish(now, time_s, lost)
        else:
            report, changed = self._finish_released(now, time_s, lost, self._released)
        self._last_end_s = time_s
        ended = RoundEnded(time_s, now.command.round, *report)
        if changed is None or not changed.any():
            return ended, None
        return ended, self._adapted(now, changed, time_s)

    def _adapted(self, now: _Round, changed: Bools, time_s: float) -> RequirementsChanged:
        jobs, where = self.jobs.arrays, now.groups.job[changed]
        batch = self.stages.batch(where) if self._released is None else self._released.of(where)
        ids = now.command.job_groups[changed]
        return RequirementsChanged(
            time_s, ids, batch, jobs.total_steps[where], jobs.steps_done[where]
        )

    def _finish(self, now: _Round, time_s: float, lost: Bools) -> tuple[_Report, Bools | None]:
        jobs, stages = self.jobs.arrays, self.stages
        end = RoundEnd(
            start_s=now.command.time_s, end_s=time_s, whole_steps=self.whole_steps, lost=lost
        )
        report = nothing_done(*now.groups.job.shape)
        finish(now.groups, now.forecast, jobs, self._rates, stages.table, end, report)
        if not stages.used:
            return report, None
        return report, change_stages(now.groups.job, jobs, stages.table)

    def _finish_released(
        self, now: _Round, time_s: float, lost: Bools, rules: ReleasedRules
    ) -> tuple[_Report, Bools]:
        jobs, command = self.jobs.arrays, now.command
        end = ReleasedEnd(
            round=command.round,
            from_s=self._last_end_s,
            end_s=time_s,
            least_s=command.length_s - LOSSLESS_MARGIN_S,
            lost=lost,
        )
        report = finish_released(now.groups, now.forecast, jobs, end)
        return report, rules.follow(now.groups.job, report[2], jobs)
