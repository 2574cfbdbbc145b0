"""Searches for good parameters: what a person asks for, and what is shown of one."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from fairlead.cluster.protocol.job_spec import JobSpec

Parameter: TypeAlias = bool | int | float | str
SamplerName: TypeAlias = Literal["random", "grid", "tpe", "cmaes"]
PrunerName: TypeAlias = Literal["none", "median", "asha", "hyperband", "curve"]
# completed: it has a value; pruned: a bad one, stopped for that; stopped: with its search, or by a person
TrialState: TypeAlias = Literal["running", "completed", "pruned", "failed", "stopped"]
SearchState: TypeAlias = Literal["running", "completed", "stopped"]


class ParameterRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values that a parameter may have: ``choices``, or numbers from ``low`` to ``high``."""

    type: Literal["float", "int", "categorical"] = "float"
    low: float | None = None
    high: float | None = None
    log: bool = False  # by its logarithm
    step: float | None = None  # between two values from ``low`` on; None = any, of integers 1
    points: int | None = None  # of a grid, from low to high
    choices: tuple[Parameter, ...] = ()


class PrunerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a trial is stopped early, by the values that trials report at the same step."""

    type: PrunerName = "none"
    min_step: int = 1  # no trial is judged before it; asha, hyperband: the first rung
    max_step: int | None = None  # of a whole trial; hyperband and curve need it
    reduction: int = 3  # asha, hyperband: one in so many goes on to the next rung
    startup_trials: int = 5  # median: so many are completed before one is stopped
    min_chance: float = 0.1  # curve: of reaching the target, below which a trial is stopped
    min_points: int = 3  # curve: no trial with fewer is judged
    # curve: the metric of a model that has learned nothing, and of a perfect one; see ``metric_span``
    start: float | None = None
    limit: float | None = None


class StudySpec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A search. ``read_study`` and ``check_study`` say what is wrong with one."""

    metric: str  # that trials report
    parameters: dict[str, ParameterRange]
    job: JobSpec  # a trial; {NAME} in its command becomes the value of a parameter
    trials: int
    direction: Literal["minimize", "maximize"] = "minimize"
    name: str = ""
    parallel: int = 1  # trials at once
    sampler: SamplerName = "tpe"
    seed: int = 0
    target: float | None = None  # the search ends with the first trial that reaches it
    value: Literal["last", "best"] = "last"  # which of its values is a trial's
    weight: float = 1.0  # of all trials together, as of one job
    favour: int = 0  # so many trials, the best ones, have more of that weight
    favour_factor: float = 4.0  # as much more, each
    pruner: PrunerSpec = PrunerSpec()

    @property
    def sign(self) -> float:
        """1 where small values are good, else -1."""
        return 1.0 if self.direction == "minimize" else -1.0

    @property
    def metric_span(self) -> tuple[float, float]:
        """The metric of a model that has learned nothing, and of a perfect one, as far as they are known."""
        start, limit = self.pruner.start, self.pruner.limit
        perfect = 0.0 if self.direction == "minimize" else 1.0
        return 0.0 if start is None else start, perfect if limit is None else limit


class TrialView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trial of a search: a job with parameters."""

    number: int  # from 0 on
    job: int
    parameters: dict[str, Parameter]
    state: TrialState
    value: float | None = None  # of its metric, so far or at its end
    step: int | None = None  # at which it was reported
    reason: str = ""  # why it was pruned, stopped or failed


class SearchView(msgspec.Struct, frozen=True, kw_only=True):
    """A search. Times are seconds since the cluster was first started."""

    id: int
    name: str
    user: str
    tenant: str
    state: SearchState
    reason: str  # why it has ended, "" = it has not
    waiting_reason: str = ""  # the limit of its tenant for which no trial begins; "" = none
    started_s: float
    ended_s: float | None
    study: StudySpec
    counts: dict[TrialState, int]  # trials by state
    best: TrialView | None  # the completed trial with the best value
    trials: list[TrialView]  # in order of number; in a list of searches none


class _Valued(Protocol):
    """A trial, as it is kept or shown."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> TrialState: ...
    @property
    def value(self) -> float | None: ...


_Trial = TypeVar("_Trial", bound=_Valued)


def best_of(study: StudySpec, trials: Sequence[_Trial]) -> _Trial | None:
    """The completed trial with the best value, the first of equals; None = there is none."""
    valued = [trial for trial in trials if trial.state == "completed" and trial.value is not None]
    return min(
        valued, key=lambda trial: (study.sign * (trial.value or 0.0), trial.number), default=None
    )
