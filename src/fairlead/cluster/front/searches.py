"""Searches as people are shown them, read from the last commit and from what trials have reported."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.front.visible_tenants import may_see
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.study import SearchView, TrialView, best_of
from fairlead.cluster.store.metric_store import read_curves_of, read_lasts
from fairlead.cluster.store.rows import SearchRow, TrialRow
from fairlead.cluster.store.store import Store

CURVES = 500  # newest trials of which curves are given


def searches(store: Store, caller: Caller) -> list[SearchView]:
    """Those that the caller may see, in order of id, without their trials."""
    tenant = "" if caller.role == "admin" else caller.tenant
    return [replace(_view(row, store.trials(row.id)), trials=[]) for row in store.searches(tenant)]


def search(store: Store, caller: Caller, number: int) -> SearchView:
    """One of them. Trials that run have the value that they have reported last. Raises NotFoundError."""
    row = _visible(store, caller, number)
    trials = store.trials(number)
    jobs = [trial.job for trial in trials if trial.state == "running"]
    lasts = read_lasts(store.directory, jobs, row.study.metric) if jobs else {}

    def as_now(trial: TrialRow) -> TrialRow:
        last = lasts.get(trial.job)
        return trial if last is None else replace(trial, value=last.value, step=last.step)

    return _view(row, [as_now(trial) for trial in trials])


def search_curves(store: Store, caller: Caller, number: int) -> dict[int, MetricCurve]:
    """The curve of the search's metric of each of the newest ``CURVES`` trials, where it has one. Raises
    NotFoundError."""
    row = _visible(store, caller, number)
    trials = {trial.job: trial.number for trial in store.trials(number)[-CURVES:]}
    found = read_curves_of(store.directory, trials, row.study.metric)
    return {trials[job]: curve for job, curve in found.items()}


def _visible(store: Store, caller: Caller, number: int) -> SearchRow:
    row = store.search(number) if 0 <= number < 1 << 62 else None
    if row is None or not may_see(caller, row.tenant):
        raise NotFoundError(f"search {number}: there is none")
    return row


def _view(row: SearchRow, trials: Sequence[TrialRow]) -> SearchView:
    views = [
        TrialView(
            number=trial.number,
            job=trial.job,
            parameters=trial.parameters,
            state=trial.state,
            value=trial.value,
            step=trial.step,
            reason=trial.reason,
        )
        for trial in trials
    ]
    return SearchView(
        id=row.id,
        name=row.study.name,
        user=row.user,
        tenant=row.tenant,
        state=row.state,
        reason=row.reason,
        waiting_reason=row.waiting_reason,
        started_s=row.started_s,
        ended_s=row.ended_s,
        study=row.study,
        counts=dict(Counter(trial.state for trial in trials)),
        best=best_of(row.study, views),
        trials=views,
    )
