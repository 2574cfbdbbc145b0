"""A search under way, as its controller has it in memory: all of it follows from the store."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.read_study import trial_spec
from fairlead.cluster.protocol.study import StudySpec, best_of
from fairlead.cluster.searching.pruners import judge, promise
from fairlead.cluster.searching.samplers import PastTrial, SamplerTask, n_trials
from fairlead.cluster.server.submissions import Submission
from fairlead.cluster.store.rows import SearchRow, TrialRow
from fairlead.policies.search.decide import most_promising
from fairlead.policies.search.learning_curve import Curve
from fairlead.policies.search.stopping import Verdict

MAX_FAILED = 10  # trials in a row that fail, after which a search gives up


class LiveSearch:
    """Decisions on the trials of a search. It does nothing by itself."""

    def __init__(self, row: SearchRow, trials: Iterable[TrialRow] = ()) -> None:
        """trials: in order of number."""
        self.row = row
        self.trials = {trial.number: trial for trial in trials}
        self.curves: dict[int, Curve] = {}  # progress is in steps
        # Trials that are over, whose jobs may not be
        self.unsettled = {n for n, trial in self.trials.items() if trial.state != "running"}
        self.suggested: TrialRow | None = None  # the next trial, which is not durable yet
        self.asked: Future[list[int]] | None = None  # the id of its job
        self.ended_s: dict[int, float] = {}  # when the job of a trial was first seen to have ended
        self.ask_from_s = 0.0  # no trial is asked for before

    @property
    def study(self) -> StudySpec:
        """Return what was asked for."""
        return self.row.study

    @property
    def running(self) -> list[TrialRow]:
        """The trials that are not over, in order of number."""
        return [trial for trial in self.trials.values() if trial.state == "running"]

    @property
    def wants_trial(self) -> bool:
        """Return whether another trial is to be begun now."""
        if self.row.state != "running" or len(self.trials) >= n_trials(self.study):
            return False
        return len(self.running) < self.study.parallel

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left to be done."""
        idle = not (self.running or self.unsettled or self.asked)
        return idle and self.row.state != "running"

    def note_curve(self, number: int, curve: MetricCurve) -> None:
        """A trial has reported something new."""
        trial = self.trials[number]
        steps, values = np.array(curve.steps, np.float64), np.array(curve.values, np.float64)
        self.curves[number] = Curve(steps, values, trial.state == "completed", trial.rungs)

    def note_trial(self, trial: TrialRow) -> None:
        """A trial is as this row says, which is durable."""
        self.trials[trial.number] = trial
        curve = self.curves.get(trial.number)
        if curve is not None:
            complete = trial.state == "completed"
            self.curves[trial.number] = replace(curve, is_complete=complete, rungs=trial.rungs)
        if trial.state != "running":
            self.unsettled.add(trial.number)
            self.ended_s.pop(trial.number, None)

    def verdict(self, number: int) -> Verdict:
        """Return whether a trial goes on."""
        if number not in self.curves:
            return Verdict(rungs=self.trials[number].rungs)
        return judge(self.study, number, self.curves)

    def value(self, number: int) -> tuple[float, int] | None:
        """The value of a trial so far and its step; None = it has reported none."""
        curve = self.curves.get(number)
        if curve is None or not len(curve.value):
            return None
        at = -1 if self.study.value == "last" else int((self.study.sign * curve.value).argmin())
        return float(curve.value[at]), int(curve.progress[at])

    def best(self) -> TrialRow | None:
        """The completed trial with the best value; None = there is none."""
        return best_of(self.study, list(self.trials.values()))

    def why_over(self) -> tuple[str, bool]:
        """Return why the search is over, and whether as its owner wished; "" = it is not."""
        best, target, sign = self.best(), self.study.target, self.study.sign
        value = None if best is None else best.value
        if best and value is not None and target is not None and sign * value <= sign * target:
            return f"trial {best.number} has reached {target:g}: {value:.6g}", True
        ended = [trial for trial in self.trials.values() if trial.state != "running"]
        failed = [trial for trial in ended[-MAX_FAILED:] if trial.state == "failed"]
        if len(failed) == MAX_FAILED:
            return f"the last {MAX_FAILED} trials have failed: {failed[-1].reason}"[:1000], False
        if len(self.trials) >= n_trials(self.study) and not self.running:
            return f"all {len(self.trials):,} trials have ended", True
        return "", True

    def task(self) -> SamplerTask:
        """Return what the next suggestion is made of."""
        return SamplerTask(self.study, [self._past(trial) for trial in self.trials.values()])

    def _past(self, trial: TrialRow) -> PastTrial:
        curve = self.curves.get(trial.number)
        points: dict[int, float] = {}
        if trial.state == "pruned" and curve is not None:
            steps = map(int, curve.progress.tolist())
            points = dict(zip(steps, curve.value.tolist(), strict=True))
        return PastTrial(trial.parameters, trial.state, trial.value, points, trial.notes)

    def submission(self, trial: TrialRow, is_wanted: Callable[[], bool]) -> Submission:
        """The submission of a trial. is_wanted: whether it still is, from any thread."""
        number = trial.number
        weight = self.weights(more=1)[number]
        spec = trial_spec(self.study, number, trial.parameters, weight)
        row = self.row
        return Submission(
            user=row.user,
            tenant=row.tenant,
            specs=[spec],
            key="",
            trial=trial,
            is_wanted=is_wanted,
        )

    def weights(self, more: int = 0) -> dict[int, float]:
        """Weight of each running trial: together they have that of the search, and the best ones, with the
        pruner ``curve`` those that most likely reach the target, more of it than the others. more: so many
        further trials that are about to begin count too."""
        study = self.study
        numbers = [trial.number for trial in self.running]
        favoured = self._favoured(numbers) if study.favour else ()
        numbers += range(len(self.trials), len(self.trials) + more)
        parts = {n: study.favour_factor if n in favoured else 1.0 for n in numbers}
        whole = sum(parts.values())
        return {number: study.weight * part / whole for number, part in parts.items()}

    def _favoured(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return the trials that are favoured, of these."""
        values = {number: value[0] for number in numbers if (value := self.value(number))}
        ranks = {
            number: (promise(self.study, self.curves[number]), -self.study.sign * value)
            for number, value in values.items()
        }
        return most_promising(ranks, self.study.favour)
