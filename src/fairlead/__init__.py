"""Fairlead: a scheduler for deep-learning clusters whose accelerators differ.

``simulate`` is the whole of it in one call; the other names are what goes in and comes out. The names of
``__all__`` are the library (docs/api.md); the modules below are internal and change without notice. A name is
imported when it is first used: ranks of training jobs and the commands that only ask a server something
import this package too, and shall not wait for the solvers.

Two distributions fill this package: ``fairlead-client`` (this file, ``client``, and what a training process
needs besides; the standard library alone, Python 3.9 on) and ``fairlead`` (all the rest).
"""

import os
import sys
from importlib import import_module

if sys.version_info < (3, 9):  # noqa: UP036 # the agent's copy meets whatever Python a job has
    raise ImportError(
        "fairlead needs Python 3.9 or newer; this is Python {}.{} ({})".format(  # noqa: UP032
            sys.version_info[0], sys.version_info[1], sys.executable
        )
    )

from fairlead.client.version import __version__

TYPE_CHECKING = False  # that of typing takes longer to import than all else here
if TYPE_CHECKING:
    from typing import Any

    from fairlead.analysis.experiments.compare import PolicyComparison, compare
    from fairlead.analysis.simulate import simulate
    from fairlead.client.iterator import Iterator
    from fairlead.client.lease import Lease
    from fairlead.client.parameters import parameters
    from fairlead.client.report import report
    from fairlead.cluster.http_client import Client
    from fairlead.cluster.protocol.job_spec import JobSpec
    from fairlead.errors import (
        AllocationError,
        CheckError,
        ClusterError,
        ConfigError,
        FairleadError,
        InputError,
        PartialResultWarning,
        ResumeError,
        RunError,
        SimulationError,
        SolveError,
        ThroughputError,
        TraceError,
        UnreachableError,
    )
    from fairlead.model.allocation import Allocation, SolveReport
    from fairlead.model.allocation_checks import check_allocation, effective_throughput
    from fairlead.model.cluster import Cluster, Node, SlotType
    from fairlead.model.job import Arrival, Job, JobId, RestartCosts
    from fairlead.model.job_type import JobType
    from fairlead.model.plan import (
        Accounts,
        BasePolicy,
        Change,
        Planner,
        Policy,
        RoundPlan,
        Schedule,
        Stateful,
    )
    from fairlead.model.rates import inverse_rate, isolated_rate
    from fairlead.model.snapshot import Snapshot
    from fairlead.model.throughputs import Throughputs
    from fairlead.policies.common import allocation
    from fairlead.policies.request import PolicyRequest
    from fairlead.policies.rounds_only import RoundsOnlyPlanner
    from fairlead.scheduler.driver import Observer
    from fairlead.scheduler.placement.records import Placement
    from fairlead.scheduler.placement.rule import PlacementRequest, PlacementRule
    from fairlead.simulator.admission import AdmissionRule, AdmissionState
    from fairlead.simulator.environment import Environment
    from fairlead.simulator.generate import generate
    from fairlead.simulator.ground_truth import GroundTruth
    from fairlead.simulator.gym_environment import GymEnvironment
    from fairlead.simulator.options import SimulationOptions
    from fairlead.simulator.recording.metrics import Result
    from fairlead.simulator.traces.cluster_files import parse_cluster
    from fairlead.simulator.traces.read_trace import read_trace
    from fairlead.simulator.traces.throughput_tables import read_throughputs
    from fairlead.simulator.traces.trace import Trace
    from fairlead.simulator.user_estimates import UserEstimates

__all__ = [
    "Accounts",
    "AdmissionRule",
    "AdmissionState",
    "Allocation",
    "AllocationError",
    "Arrival",
    "BasePolicy",
    "Change",
    "CheckError",
    "Client",
    "Cluster",
    "ClusterError",
    "ConfigError",
    "Environment",
    "FairleadError",
    "GroundTruth",
    "GymEnvironment",
    "InputError",
    "Iterator",
    "Job",
    "JobId",
    "JobSpec",
    "JobType",
    "Lease",
    "Node",
    "Observer",
    "PartialResultWarning",
    "Placement",
    "PlacementRequest",
    "PlacementRule",
    "Planner",
    "Policy",
    "PolicyComparison",
    "PolicyRequest",
    "RestartCosts",
    "Result",
    "ResumeError",
    "RoundPlan",
    "RoundsOnlyPlanner",
    "RunError",
    "Schedule",
    "SimulationError",
    "SimulationOptions",
    "SlotType",
    "Snapshot",
    "SolveError",
    "SolveReport",
    "Stateful",
    "ThroughputError",
    "Throughputs",
    "Trace",
    "TraceError",
    "UnreachableError",
    "UserEstimates",
    "__version__",
    "allocation",
    "check_allocation",
    "compare",
    "effective_throughput",
    "generate",
    "inverse_rate",
    "isolated_rate",
    "parameters",
    "parse_cluster",
    "read_throughputs",
    "read_trace",
    "report",
    "simulate",
]

_MODULE = {
    "Accounts": "model.plan",
    "AdmissionRule": "simulator.admission",
    "AdmissionState": "simulator.admission",
    "Allocation": "model.allocation",
    "AllocationError": "errors",
    "Arrival": "model.job",
    "BasePolicy": "model.plan",
    "Change": "model.plan",
    "CheckError": "errors",
    "Client": "cluster.http_client",
    "Cluster": "model.cluster",
    "ClusterError": "errors",
    "ConfigError": "errors",
    "Environment": "simulator.environment",
    "FairleadError": "errors",
    "GroundTruth": "simulator.ground_truth",
    "GymEnvironment": "simulator.gym_environment",
    "InputError": "errors",
    "Iterator": "client.iterator",
    "Job": "model.job",
    "JobId": "model.job",
    "JobSpec": "cluster.protocol.job_spec",
    "JobType": "model.job_type",
    "Lease": "client.lease",
    "Node": "model.cluster",
    "Observer": "scheduler.driver",
    "SimulationOptions": "simulator.options",
    "PartialResultWarning": "errors",
    "Placement": "scheduler.placement.records",
    "PlacementRequest": "scheduler.placement.rule",
    "PlacementRule": "scheduler.placement.rule",
    "Planner": "model.plan",
    "Policy": "model.plan",
    "PolicyComparison": "analysis.experiments.compare",
    "PolicyRequest": "policies.request",
    "RestartCosts": "model.job",
    "Result": "simulator.recording.metrics",
    "RoundPlan": "model.plan",
    "RoundsOnlyPlanner": "policies.rounds_only",
    "ResumeError": "errors",
    "RunError": "errors",
    "Schedule": "model.plan",
    "SimulationError": "errors",
    "SlotType": "model.cluster",
    "Snapshot": "model.snapshot",
    "SolveError": "errors",
    "SolveReport": "model.allocation",
    "Stateful": "model.plan",
    "ThroughputError": "errors",
    "Throughputs": "model.throughputs",
    "Trace": "simulator.traces.trace",
    "TraceError": "errors",
    "UnreachableError": "errors",
    "UserEstimates": "simulator.user_estimates",
    "allocation": "policies.common",
    "check_allocation": "model.allocation_checks",
    "compare": "analysis.experiments.compare",
    "effective_throughput": "model.allocation_checks",
    "inverse_rate": "model.rates",
    "generate": "simulator.generate",
    "isolated_rate": "model.rates",
    "parse_cluster": "simulator.traces.cluster_files",
    "parameters": "client.parameters",
    "read_throughputs": "simulator.traces.throughput_tables",
    "read_trace": "simulator.traces.read_trace",
    "report": "client.report",
    "simulate": "analysis.simulate",
}


def _import_lazily() -> None:
    """The agent puts a copy of the training side in front of whatever is installed: what that copy lacks is
    found where the whole package is."""
    for entry in sys.path:
        portion = os.path.join(entry, "fairlead")
        if portion not in __path__ and os.path.isfile(os.path.join(portion, "__init__.py")):
            __path__.append(portion)


_import_lazily()


def __getattr__(name: str) -> "Any":
    if name not in _MODULE:
        raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
    module = f"fairlead.{_MODULE[name]}"
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as problem:
        if not (problem.name and module.startswith(problem.name)):
            raise
        raise ImportError(
            f"fairlead.{name} is not part of fairlead-client, which is all that is installed here: "
            "pip install fairlead"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
