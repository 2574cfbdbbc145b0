"""Simulate a cluster: the whole of Fairlead in one call."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fairlead.errors import ConfigError, InputError, PartialResultWarning, ResumeError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.plan import Planner, Policy
from fairlead.scheduler.driver import Observer
from fairlead.scheduler.placement.rule import PlacementRule
from fairlead.scheduler.plugins import find_placement
from fairlead.simulator.admission import AdmissionRule
from fairlead.simulator.argument_types import check_arguments, make_options
from fairlead.simulator.plugins import find_admission, find_observers
from fairlead.simulator.progress import Watch
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.simulation_run import SimulationRun
from fairlead.simulator.third_party import guarded
from fairlead.simulator.traces.trace import Trace


def simulate(
    trace: Trace | Iterable[Arrival] | str | Path,
    cluster: Cluster | str,
    policy: str | Policy | Planner,
    *,
    out: str | Path | None = None,
    expect_rounds: str | Path | None = None,
    resume: bool = False,
    stop: Callable[[], bool] | None = None,
    watch: Watch | None = None,
    observers: Sequence[Observer | str] = (),
    admission: AdmissionRule | str | None = None,
    placement: PlacementRule | str | None = None,
    **options: Any,
) -> Result:
    """Run a trace on a cluster under a policy.

    trace: a path (any format that ``fairlead trace describe`` knows), what ``read_trace`` gave, or any
    iterable of arrivals in order of time; one without end needs ``measured_jobs`` or ``stop_at_s``.
    cluster: a ``Cluster`` or text such as "v100=8,k80=24". policy: a name of ``fairlead policies``, or an
    object with the methods of ``Policy`` or ``Planner``.
    out: a new or empty folder, made where it is missing, for what the command writes: run.json, journal,
    tables, report.html; resume: go on with an interrupted run there, which a refusal leaves as it was.
    stop: asked between events whether to break off. observers: objects with the methods of ``Observer``;
    admission: one with those of ``AdmissionRule``; placement: one with those of ``PlacementRule``; all
    also by the names of entry points (``fairlead.observers``, ``fairlead.admission``,
    ``fairlead.placement``).
    The other keywords are the fields of ``SimulationOptions``.

    Raises InputError for what cannot be used and CheckError when ``expect_rounds`` (a recorded run, see
    ``fairlead.simulator.recording.expected_rounds``) does not hold. Returns metrics and tables.
    Warns with PartialResultWarning where averages are of fewer jobs than the trace has: some had not ended
    when the run did, or fit nowhere; ``partial`` of the result has the same sentences.
    """
    given = {
        **{"trace": trace, "cluster": cluster, "policy": policy, "out": out},
        **{"expect_rounds": expect_rounds, "resume": resume, "stop": stop, "watch": watch},
        "observers": observers,
    }
    check_arguments("simulate", given)
    chosen = make_options("simulate", options)
    rounds = None if expect_rounds is None else Path(expect_rounds)
    run = SimulationRun.of(trace, cluster, policy, chosen, placement=find_placement(placement))
    poll = (lambda: False) if stop is None else guarded("stop()", stop)
    tell = None if watch is None else guarded("watch()", watch)
    more: Any = {"observers": find_observers(observers), "admission": find_admission(admission)}
    if out is None:
        if resume:
            raise ConfigError("simulate(): resume goes on with the run in the folder out: give out")
        return _warned(run.execute(None, rounds, resume, poll, tell, **more))
    from fairlead.analysis.report.run_folder import (  # only those who write a folder wait for charts
        begin_record,
        make_folder,
        read_record,
        restore_record,
        write_json,
        write_result,
    )

    folder = Path(out) if resume else make_folder(Path(out))
    before = read_record(folder, run.config()) if resume else b""
    record = begin_record(folder, run.config(), None)
    try:
        result = run.execute(folder, rounds, resume, poll, tell, **more)
    except Exception as problem:
        if resume and isinstance(problem, InputError | ResumeError):
            restore_record(folder, before)
            raise
        write_json(folder / "run.json", record | {"status": "failed", "error": str(problem)})
        raise
    write_result(folder, record, result)
    return _warned(result)


def _warned(result: Result) -> Result:
    """The result; a PartialResultWarning, at the line that has called ``simulate``, for each reason why its
    averages are of fewer jobs than its trace has. One that was interrupted says so in ``complete``."""
    for reason in result.partial if result.complete else ():
        warnings.warn(reason, PartialResultWarning, stacklevel=3)
    return result
