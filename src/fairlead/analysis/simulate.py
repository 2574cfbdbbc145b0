"""Simulate a cluster: the whole of Fairlead in one call."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

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
from fairlead.simulator.traces.trace import Trace


def simulate(
    trace: Trace | Iterable[Arrival] | str | Path,
    cluster: Cluster | str,
    policy: str | Policy | Planner,
    *,
    out: str | Path | None = None,
    expect_rounds: str | Path | None = None,
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
    given = {
        **{"trace": trace, "cluster": cluster, "policy": policy, "out": out},
        **{"expect_rounds": expect_rounds, "resume": resume, "stop": stop, "watch": watch},
        "observers": observers,
    }
    check_arguments("simulate", given)
    chosen = make_options("simulate", options)
    rounds = None if expect_rounds is None else Path(expect_rounds)
    run = SimulationRun.of(trace, cluster, policy, chosen, placement=find_placement(placement))
    more: Any = {"observers": find_observers(observers), "admission": find_admission(admission)}
    if out is None:
        return run.execute(None, rounds, resume, stop, watch, **more)
    from fairlead.analysis.report.run_folder import (  # only those who write a folder wait for charts
        begin_record,
        make_folder,
        write_json,
        write_result,
    )

    folder = Path(out) if resume else make_folder(Path(out))
    record = begin_record(folder, run.config(), None)
    try:
        result = run.execute(folder, rounds, resume, stop, watch, **more)
    except Exception as problem:
        write_json(folder / "run.json", record | {"status": "failed", "error": str(problem)})
        raise
    write_result(folder, record, result)
    return result
