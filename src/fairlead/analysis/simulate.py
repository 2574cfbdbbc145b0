"""Simulate a cluster: the whole of Fairlead in one call."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.plan import Planner, Policy
from fairlead.scheduler.driver import Observer
from fairlead.scheduler.placement.rule import PlacementRule
from fairlead.scheduler.plugins import find_placement
from fairlead.simulator.admission import AdmissionRule
from fairlead.simulator.options import Options
from fairlead.simulator.plugins import find_admission, find_observers
from fairlead.simulator.progress import Watch
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.simulation_run import SimulationRun
from fairlead.simulator.traces.trace import Trace


def simulate(
    trace: Trace | Iterable[Arrival] | str | Path,
    cluster: Cluster | str,
    policy: str | Policy | Planner,
    *,
    out: str | Path | None = None,
    expect_rounds: Path | None = None,
    resume: bool = False,
    stop: Callable[[], bool] = lambda: False,
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
    tables, report.html; resume: go on with an interrupted run there. stop: asked between events whether
    to break off. observers: objects with the methods of ``Observer``; admission: one with those of
    ``AdmissionRule``; placement: one with those of ``PlacementRule``; all also by the names of entry points
    (``fairlead.observers``, ``fairlead.admission``, ``fairlead.placement``).
    The other keywords are the fields of ``Options``.

    Raises InputError for what cannot be used and CheckError when ``expect_rounds`` (a recorded run, see
    ``fairlead.simulator.recording.expected_rounds``) does not hold. Returns metrics and tables.
    """
    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"simulate(): {name!r} is not an option (there are {', '.join(known)})"
            )
    chosen = Options(**options)
    run = SimulationRun.of(trace, cluster, policy, chosen, placement=find_placement(placement))
    more: Any = {"observers": find_observers(observers), "admission": find_admission(admission)}
    if out is None:
        return run.execute(None, expect_rounds, resume, stop, watch, **more)
    from fairlead.analysis.report.run_folder import (  # only those who write a folder wait for charts
        begin_record,
        make_folder,
        write_json,
        write_result,
    )

    folder = Path(out) if resume else make_folder(Path(out))
    record = begin_record(folder, run.config(), None)
    try:
        result = run.execute(folder, expect_rounds, resume, stop, watch, **more)
    except Exception as problem:
        write_json(folder / "run.json", record | {"status": "failed", "error": str(problem)})
        raise
    write_result(folder, record, result)
    return result
