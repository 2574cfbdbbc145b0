"""Shockwave: plan a horizon of rounds, for jobs that change while they train."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.job_index import rows_of
from fairlead.model.plan import Accounts, Change, PlannerAnswer, RoundPlan, Schedule
from fairlead.model.rates import first_slot
from fairlead.model.snapshot import Snapshot
from fairlead.policies.shockwave.fair_targets import Targets
from fairlead.policies.shockwave.measured_progress import MeasuredProgress
from fairlead.policies.shockwave.options import (
    DEFAULT,
    FinishTimeOrigin,
    ProfileCalibration,
    Regulariser,
    Share,
    ShockwaveOptions,
    write_options,
)
from fairlead.policies.shockwave.remaining_work import (
    INFEASIBLE_EPOCH_S,
    RemainingWork,
    remaining_work,
)
from fairlead.policies.solve.planning_horizon import (
    PlanningProblem,
    RoundCounts,
    solve_counts,
)
from fairlead.policies.solve.round_ordering import order_rounds
from fairlead.policies.solve.round_packing import pack_rounds
from fairlead.policies.solve.welfare import (
    MAX_WEIGHT,
    remaining_table,
    utility_table,
)

_PLANNED = "window"  # status of a schedule: a planning horizon, as journals call it
_MIN_POSITIVE = 1e-9
_MIN_SPEED = 1e-6  # of the fastest type; below, a type is as good as none
_MAX_ORDER_WEIGHT = 1e9  # weights in the order of rounds: sums of larger ones lose the smaller


@dataclass(frozen=True, kw_only=True, slots=True)
class ShockwaveState:
    """State of the planner from round to round; replaced, never changed."""

    round: int  # rounds planned so far
    targets: Targets
    measured: MeasuredProgress
    first_round: int  # of the schedule's first column
    jobs: Ints  # (jobs,) ids, ascending, that the schedule knows
    slot: Ints  # (jobs, rounds) -1 = does not run
    left_s: (
        Floats  # (jobs,) expected seconds left; those with most get the devices that are left over
    )


@dataclass(frozen=True, slots=True)
class Shockwave:
    """max_s sum_j v_j U_j(s_j) / (n F) - k max_j left_j(s_j)   s.t.  sum_j w_j s_j <= F G,  0 <= s_j <= F.

    s_j rounds of the next F for job j on w_j of G devices; U_j a piecewise linear logarithm of the part of
    its epochs that is then done; left_j the running time that is then left, as a Dirichlet posterior over
    its batch sizes foresees it; v_j the job's weight, raised if it is late against its fair finish time.
    The counts are packed into rounds, late jobs first; devices left over go to the jobs with most time left.
    Planned anew when jobs or devices come or go, when a batch size changes, and every few rounds.
    Source: Shockwave (NSDI'23), sections 5 and 6, and its release, which ignores weights; the options are
    those of ``fairlead.policies.shockwave.options``.
    """

    options: ShockwaveOptions = DEFAULT
    name: str = "shockwave"
    space_sharing: bool = False

    @property
    def spec(self) -> str:
        """Name of this planner with its options: a journal needs no other file."""
        return f"{self.name}:{write_options(self.options)}"

    def start(self) -> ShockwaveState:
        """The state in which nothing is planned."""
        none = np.zeros(0, np.int64)
        return ShockwaveState(
            round=0,
            targets=Targets.none(),
            measured=MeasuredProgress.none(),
            first_round=0,
            jobs=none,
            slot=none[:, None],
            left_s=np.zeros(0),
        )

    def state_dict(self, state: ShockwaveState) -> dict[str, NDArray[Any]]:
        """The whole state as arrays, by name."""
        parts: dict[str, Targets | MeasuredProgress] = {
            "targets": state.targets,
            "measured": state.measured,
        }
        out = {
            f"{part}.{one.name}": getattr(value, one.name).copy()
            for part, value in parts.items()
            for one in fields(value)
        }
        out |= {name: getattr(state, name).copy() for name in ("jobs", "slot", "left_s")}
        return {**out, "rounds": np.array([state.round, state.first_round])}

    def load_state_dict(self, arrays: Mapping[str, NDArray[Any]]) -> ShockwaveState:
        """The state from the arrays that ``state_dict`` returned."""
        targets = Targets(**{one.name: arrays[f"targets.{one.name}"] for one in fields(Targets)})
        measured = MeasuredProgress(
            **{one.name: arrays[f"measured.{one.name}"] for one in fields(MeasuredProgress)}
        )
        number, first_round = arrays["rounds"].tolist()
        return ShockwaveState(
            round=number,
            targets=targets,
            measured=measured,
            first_round=first_round,
            jobs=arrays["jobs"],
            slot=arrays["slot"],
            left_s=arrays["left_s"],
        )

    def due(self, now_s: float, changed: Change, stalled: bool, state: ShockwaveState) -> bool:  # noqa: ARG002
        """Return whether to plan anew: on changes, every ``replan_every`` rounds, and after the schedule's
        end."""
        if not self.options.replan_on_adaptation:
            changed &= ~Change.REQUIREMENTS
        exhausted = state.round - state.first_round >= state.slot.shape[1]
        return bool(changed) or exhausted or state.round % self.options.replan_every == 0

    def solve(self, snapshot: Snapshot, state: ShockwaveState) -> Schedule:
        """The schedule of the planning horizon, with the linear relaxation's bound."""
        if not len(snapshot.jobs):
            none = np.zeros((0, self.options.rounds), np.int64)
            return Schedule(np.zeros((0, 1), np.int64), none, SolveReport(_PLANNED))
        work = self._remaining_work(snapshot, state)
        targets = self._targets(snapshot, state, work)
        now = self._now_s(snapshot, state)
        target = targets.at(now, self.options.momentum)
        weight = self._weights(snapshot, work, target, now)
        problem, counts = self._counts(snapshot, work, weight, target, now)
        devices = problem.devices
        grid, _ = pack_rounds(counts.counts, problem.scale, devices, problem.rounds)
        running = np.where(snapshot.running_on >= 0, 1.0 + self.options.stickiness, 1.0)
        grid = order_rounds(
            grid, problem.scale, devices, np.minimum(weight, _MAX_ORDER_WEIGHT) * running
        )
        slot = np.where(grid >= 0, first_slot(snapshot)[grid], -1)
        report = SolveReport(_PLANNED, objective=counts.objective, bound=counts.bound)
        return Schedule(snapshot.jobs[:, None].copy(), slot, report)

    def settle(
        self, snapshot: Snapshot, answer: PlannerAnswer, state: ShockwaveState
    ) -> tuple[Accounts | None, ShockwaveState]:
        """The state with the schedule and the targets that it was made with; Shockwave keeps no accounts."""
        assert isinstance(answer, Schedule)
        jobs = answer.job_groups[:, 0]
        if not len(snapshot.jobs):
            return None, replace(state, first_round=state.round, jobs=jobs, slot=answer.slot)
        work = self._remaining_work(snapshot, state)
        targets = self._targets(snapshot, state, work)
        return None, replace(
            state,
            targets=targets,
            measured=self._measured(snapshot, state).calibrated(snapshot),
            first_round=state.round,
            jobs=jobs,
            slot=answer.slot,
            left_s=_by_id(jobs, snapshot.jobs, work.mean_left_s, 0.0),
        )

    def plan(self, snapshot: Snapshot, state: ShockwaveState) -> tuple[RoundPlan, ShockwaveState]:
        """The round in the schedule's next column, with waiting jobs on the devices that it leaves idle."""
        group, slot = self._planned(snapshot, state)
        group, slot = _fill_idle(snapshot, group, slot, self._waiting(snapshot, state, group))
        measured = self._measured(snapshot, state)
        return RoundPlan(group, slot), replace(state, round=state.round + 1, measured=measured)

    # --- the planning horizon --------------------------------------------------------------------

    def _remaining_work(self, snapshot: Snapshot, state: ShockwaveState) -> RemainingWork:
        if self.options.calibration is not ProfileCalibration.WALL_TIME:
            return remaining_work(snapshot, self.options)
        measured = self._measured(snapshot, state).calibrated(snapshot)
        return remaining_work(snapshot, self.options, measured.factor)

    def _measured(self, snapshot: Snapshot, state: ShockwaveState) -> MeasuredProgress:
        """Progress up to the end of the last round; the same however often it is called in a round."""
        if self.options.calibration is not ProfileCalibration.WALL_TIME:
            return state.measured
        return state.measured.after(snapshot, state.round - 1)

    def _now_s(self, snapshot: Snapshot, state: ShockwaveState) -> float:
        """Seconds of the cluster's time; the release counts rounds as if all had their full length."""
        return state.round * snapshot.round_s if self.options.whole_epochs else snapshot.now_s

    def _targets(self, snapshot: Snapshot, state: ShockwaveState, work: RemainingWork) -> Targets:
        if np.array_equal(state.targets.jobs, snapshot.jobs):
            return state.targets
        share = self._share(snapshot)
        fair = snapshot.now_s - snapshot.age_s + (work.spent_s + work.mean_left_s) / share
        return state.targets.renewed(snapshot.jobs, fair, self._now_s(snapshot, state))

    def _share(self, snapshot: Snapshot) -> Floats:
        """(jobs,) fraction of wall-clock time that a job may expect to run: its fair share."""
        scale, weight = snapshot.job_scale.astype(np.float64), self._priority(snapshot)
        devices = float(snapshot.capacity.sum()) * weight
        match self.options.share:
            case Share.BY_JOB:
                part = devices / weight.sum()
            case Share.BY_DEVICE:
                part = devices / (weight.sum() * scale)
            case Share.BY_DEMAND:
                part = devices / (weight @ scale)
        return np.asarray(np.clip(part, _MIN_POSITIVE, 1.0))

    def _priority(self, snapshot: Snapshot) -> Floats:
        """(jobs,) weights as their owners set them; the release, which counts whole epochs, has none."""
        return np.ones(len(snapshot.jobs)) if self.options.whole_epochs else snapshot.weight

    def _finish_time_ratio(
        self, snapshot: Snapshot, work: RemainingWork, target: Floats, now: float
    ) -> Floats:
        """(jobs,) expected over fair finish time; above 1 = late."""
        expected = now + work.mean_left_s / self._share(snapshot)
        if self.options.finish_time_origin is FinishTimeOrigin.START:
            return np.asarray(expected / np.maximum(target, 1e-9))
        submitted = snapshot.now_s - snapshot.age_s
        return np.asarray((expected - submitted) / np.maximum(target - submitted, 1e-9))

    def _weights(
        self, snapshot: Snapshot, work: RemainingWork, target: Floats, now: float
    ) -> Floats:
        """(jobs,) v_j: weights, larger for jobs that are late."""
        options = self.options
        ratio = self._finish_time_ratio(snapshot, work, target, now)
        soon = work.mean_left_s < snapshot.round_s
        power = np.where(soon, options.urgent_power, options.power)
        late = ratio > options.rho
        with np.errstate(over="ignore"):
            weight = np.where(late, np.where(late, ratio, 1.0) ** power, 1.0)
        return np.minimum(weight, min(options.largest_weight, MAX_WEIGHT)) * self._priority(
            snapshot
        )

    def _counts(
        self, snapshot: Snapshot, work: RemainingWork, weight: Floats, target: Floats, now: float
    ) -> tuple[PlanningProblem, RoundCounts]:
        """The problem, and the rounds that each job gets. With whole epochs, as in the release, all jobs
        shall first finish in time, which is hardly ever possible."""
        problem = self._planning_problem(snapshot, work)
        if self.options.whole_epochs and problem.speed is None:
            least = self._rounds_to_be_on_time(snapshot, problem, target, now)
            if least is not None:
                strict = solve_counts(replace(problem, at_least=least))
                if strict.feasible:
                    return problem, strict
        problem = replace(problem, utility=problem.utility * weight[:, None])
        return problem, solve_counts(problem)

    def _planning_problem(self, snapshot: Snapshot, work: RemainingWork) -> PlanningProblem:
        """The problem with all weights 1. Tables are by rounds on each job's fastest type. Jobs that can
        run nowhere at the moment have nothing left: else no other job could lower the most time left."""
        options, n = self.options, len(work.epochs)
        fits = snapshot.capacity >= snapshot.job_scale[:, None]
        runs = fits & (work.epoch_s < INFEASIBLE_EPOCH_S)
        able: Bools = np.asarray(runs.any(axis=1))
        rows = np.arange(n)
        best = np.where(runs | ~able[:, None], work.epoch_s, np.inf).argmin(axis=1)
        epoch_s = work.epoch_s[rows, best]
        left_s = np.where(able, work.left_s[rows, best], 0.0)
        least_makespan_s = _least_makespan_s(snapshot, work, left_s)
        rounds = options.rounds
        size = (snapshot.round_s, rounds)
        bases = np.array(options.bases)
        logs = np.log(np.where(bases > 0, bases, options.log_floor))
        utility = utility_table(work.progress, work.epochs, epoch_s, *size, bases, logs)
        remaining = remaining_table(left_s, work.progress, work.epochs, epoch_s, *size)
        penalty = options.k
        if options.regulariser is Regulariser.RELATIVE:
            penalty /= max(least_makespan_s, float(left_s.max()), snapshot.round_s)
            covered_s = options.makespan_slack * least_makespan_s - rounds * snapshot.round_s
            remaining = np.maximum(remaining, covered_s)
        speed = None
        if len(snapshot.capacity) > 1:
            speed = epoch_s[:, None] / work.epoch_s
            speed = np.where(speed < _MIN_SPEED, 0.0, speed)
        return PlanningProblem(
            devices=snapshot.capacity.astype(np.int64),
            rounds=rounds,
            scale=snapshot.job_scale.astype(np.int64),
            utility=utility / (n * rounds),
            remaining=remaining,
            penalty=penalty,
            at_least=np.zeros(n, np.int64),
            speed=speed,
        )

    def _rounds_to_be_on_time(
        self, snapshot: Snapshot, problem: PlanningProblem, target: Floats, now: float
    ) -> Ints | None:
        """(jobs,) the fewest rounds with which each job finishes in time; None if some job is late with
        any."""
        share = self._share(snapshot)
        end = now + problem.rounds * snapshot.round_s
        latest = (target * self.options.rho - end) * share
        in_time: Bools = problem.remaining <= latest[:, None] + 1e-6
        return in_time.argmax(axis=1) if in_time[:, -1].all() else None

    # --- rounds ----------------------------------------------------------------------------------

    def _planned(self, snapshot: Snapshot, state: ShockwaveState) -> tuple[Ints, Ints]:
        """Rows and slots of the jobs that the schedule runs in this round, as far as there are devices."""
        column = state.round - state.first_round
        if column >= state.slot.shape[1]:
            none = np.zeros(0, np.int64)
            return none, none
        rows = np.flatnonzero(state.slot[:, column] >= 0)
        at, here = rows_of(snapshot.jobs, state.jobs[rows])
        group, slot = at[here], state.slot[rows[here], column]
        accelerator_index, scale = snapshot.accelerator_of_slot[slot], snapshot.scale[group]
        used = np.zeros(len(group), np.int64)
        for t in range(len(snapshot.capacity)):
            used[accelerator_index == t] = np.cumsum(scale[accelerator_index == t])
        fits = used <= snapshot.capacity[accelerator_index]
        return group[fits], slot[fits]

    def _waiting(self, snapshot: Snapshot, state: ShockwaveState, group: Ints) -> Ints:
        """Rows of the jobs not in ``group``: those with most time left first, newer ones last."""
        left_s = _by_id(snapshot.jobs, state.jobs, state.left_s, -np.inf)
        order = np.argsort(-left_s, kind="stable")
        waits = np.ones(len(order), np.bool_)
        waits[group] = False
        return order[waits[order]]


def _least_makespan_s(snapshot: Snapshot, work: RemainingWork, left_s: Floats) -> float:
    """Seconds that all work needs if no device is ever idle, each type as fast as for the mean job.
    left_s: (jobs,) on each job's fastest type."""
    work_s = np.maximum(left_s * snapshot.job_scale, _MIN_POSITIVE)
    speed = work_s @ (
        np.maximum(left_s, _MIN_POSITIVE)[:, None] / np.maximum(work.left_s, _MIN_POSITIVE)
    )
    return float(work_s.sum() ** 2 / max(float(snapshot.capacity @ speed), _MIN_POSITIVE))


def _by_id(jobs: Ints, known: Ints, values: Floats, missing: float) -> Floats:
    """(jobs,) the values of ``known`` jobs in the order of ``jobs``; ``missing`` for all others."""
    at, here = rows_of(known, jobs)
    out = np.full(len(jobs), missing)
    out[here] = values[at[here]]
    return out


def _fill_idle(snapshot: Snapshot, group: Ints, slot: Ints, waiting: Ints) -> tuple[Ints, Ints]:
    """Groups and slots with waiting jobs added by first fit, each on the fastest type with room for it."""
    accelerator_index = snapshot.accelerator_of_slot[slot]
    used = np.bincount(accelerator_index, snapshot.scale[group], len(snapshot.capacity))
    free = snapshot.capacity - used
    more: list[tuple[int, int]] = []
    rate, firsts = snapshot.solo_rate, first_slot(snapshot)
    for row in waiting.tolist():
        if free.max(initial=0.0) < 1:
            break
        fits = (free >= snapshot.scale[row]) & (rate[row, firsts] > 0)
        if fits.any():
            best = int(np.where(fits, rate[row, firsts], -1.0).argmax())
            free[best] -= snapshot.scale[row]
            more.append((row, int(firsts[best])))
    if not more:
        return group, slot
    extra = np.array(more, np.int64)
    return np.concatenate([group, extra[:, 0]]), np.concatenate([slot, extra[:, 1]])
