import ast
import subprocess
import sys
from pathlib import Path

import fairlead


def test_the_public_names_are_these_and_no_others() -> None:
    assert fairlead.__all__ == [
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
    assert all(hasattr(fairlead, name) for name in fairlead.__all__)


def test_an_older_python_is_told_which_one_is_needed() -> None:
    old = "import sys; sys.version_info = (3, 8, 10, 'final', 0); import fairlead"
    done = subprocess.run(
        [sys.executable, "-c", old], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    message = (
        f"ImportError: fairlead needs Python 3.9 or newer; this is Python 3.8 ({sys.executable})"
    )
    assert done.stderr.splitlines()[-1] == message
    source = Path(fairlead.__file__).read_text()
    ast.parse(source, feature_version=(3, 7))  # so that it gets that far
