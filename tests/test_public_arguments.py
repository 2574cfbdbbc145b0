"""Arguments of the wrong type, given to all that ``fairlead`` offers: one sentence, never a TypeError."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairlead
from fairlead.errors import FairleadError
from tests.small import TABLE, job, run

WRONG: tuple[Any, ...] = (
    *(None, True, 5, -1, 2.5, float("nan"), 1 << 70, "x", "", b"x", (), [], {}, [3], ("a",)),
    *({"a": "b"}, {3: 4}, {"a"}, object(), print, np.zeros(3), np.zeros((2, 2), np.complex128)),
    *(job(0, 0.0, 1.0), TABLE),
)
CLUSTER = fairlead.Cluster.of({"fast": 2, "slow": 2}, 1)


class Seen:
    """A policy that keeps the last snapshot."""

    name, heterogeneity_aware, space_sharing, work_conserving = "seen", False, False, True
    snapshot: fairlead.Snapshot

    def allocate(self, snapshot: fairlead.Snapshot) -> fairlead.Allocation:
        Seen.snapshot = snapshot
        share = np.zeros((len(snapshot.jobs), len(snapshot.slots)))
        return fairlead.allocation(snapshot, share, fairlead.SolveReport("closed-form"))


RESULT = run([job(0, 0.0, 1000.0)], policy=Seen())
SHARE = np.zeros((len(Seen.snapshot.jobs), len(Seen.snapshot.slots)))
REPORT = fairlead.SolveReport("optimal")
ALLOCATION = fairlead.allocation(Seen.snapshot, SHARE, REPORT)


def of_record(record: object) -> dict[str, Any]:
    """The fields of a dataclass's instance."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}  # type: ignore[attr-defined]


# What can be called, with arguments that are right.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "AdmissionState": (fairlead.AdmissionState, {"time_s": 0.0, "cluster": CLUSTER, "jobs": {}}),
    "Allocation": (fairlead.Allocation, of_record(ALLOCATION)),
    "Arrival": (fairlead.Arrival, of_record(job(0, 0.0, 1.0))),
    "Client": (fairlead.Client, {"url": "http://h:1", "token": "t", "ca": None, "timeout_s": 1.0}),
    "Cluster": (fairlead.Cluster, of_record(CLUSTER)),
    "Cluster.of": (
        fairlead.Cluster.of,
        {"counts": {"fast": 1}, "devices_per_server": 1, "prices": None},
    ),
    "Environment": (
        fairlead.Environment,
        {"trace": [job(0, 0.0, 1.0)], "cluster": CLUSTER, "throughputs": TABLE},
    ),
    "GroundTruth": (fairlead.GroundTruth, of_record(fairlead.GroundTruth())),
    "Job": (fairlead.Job, of_record(job(0, 0.0, 1.0).job)),
    "JobType": (
        fairlead.JobType,
        {
            **{"family": "net", "batch_size": 3, "scale_factor": 1, "accelerators": ("fast",)},
            **{"source": fairlead.JobType("net").source, "variant": ""},
        },
    ),
    "JobType.parse": (fairlead.JobType.parse, {"name": "net", "scale_factor": 1}),
    "Node": (fairlead.Node, of_record(CLUSTER.nodes[0])),
    "SimulationOptions": (fairlead.SimulationOptions, of_record(fairlead.SimulationOptions())),
    "Accounts": (
        fairlead.Accounts,
        dict.fromkeys(("received_s", "deficit_s", "allocated_s"), SHARE),
    ),
    "Placement": (fairlead.Placement, dict.fromkeys(fairlead.Placement._fields, SHARE)),
    "PlacementRequest": (
        fairlead.PlacementRequest,
        dict.fromkeys(("plan", "before", "topology", "tradeoffs")),
    ),
    "PolicyComparison": (
        fairlead.PolicyComparison,
        {"seeds": (0,), "results": {"seen": (RESULT,)}},
    ),
    "PolicyRequest": (fairlead.PolicyRequest, {"argument": None, "seed": 0, "profile": "default"}),
    "RestartCosts": (
        fairlead.RestartCosts,
        {"default_s": 1.0, "by_family": {"net": 2.0}, "by_job": {0: 2.0}},
    ),
    "Result": (fairlead.Result, of_record(RESULT)),
    "RoundPlan": (fairlead.RoundPlan, {"job_group": SHARE, "slot": SHARE}),
    "Schedule": (fairlead.Schedule, {"job_groups": SHARE, "slot": SHARE, "report": REPORT}),
    "SlotType": (fairlead.SlotType, of_record(TABLE.slots[0])),
    "Snapshot": (fairlead.Snapshot, of_record(Seen.snapshot)),
    "SolveReport": (fairlead.SolveReport, of_record(REPORT)),
    "Throughputs": (fairlead.Throughputs, of_record(TABLE)),
    "Trace": (fairlead.Trace, {"name": "t", "format": "mine", "arrivals": []}),
    "UserEstimates": (fairlead.UserEstimates, of_record(fairlead.UserEstimates())),
    "check_allocation": (
        fairlead.check_allocation,
        {"allocation": ALLOCATION, "snapshot": Seen.snapshot},
    ),
    "compare": (
        fairlead.compare,
        {
            **{"policies": ["las"], "trace": [job(0, 0.0, 1.0)], "cluster": CLUSTER},
            **{"seeds": [0], "throughputs": TABLE},
        },
    ),
    "effective_throughput": (
        fairlead.effective_throughput,
        {"allocation": ALLOCATION, "snapshot": Seen.snapshot},
    ),
    "allocation": (
        fairlead.allocation,
        {"snapshot": Seen.snapshot, "share": SHARE, "report": REPORT},
    ),
    "generate": (
        fairlead.generate,
        {"spec": "gavel", "throughputs": TABLE, "cluster": CLUSTER, "seed": 0},
    ),
    "parse_cluster": (
        fairlead.parse_cluster,
        {"spec": "v100=1", "devices_per_server": None, "prices": None},
    ),
    "read_throughputs": (fairlead.read_throughputs, {"path": "builtin"}),
    "read_trace": (
        fairlead.read_trace,
        {"path": "absent.csv", "throughputs": TABLE, "seed": 0, "vc": None},
    ),
}
# Looked at elsewhere: simulator/test_argument_types.py, client/, cluster/protocol/.
ELSEWHERE = {"GymEnvironment", "Iterator", "JobSpec", "Lease", "parameters", "report", "simulate"}
SUMS = {"inverse_rate", "isolated_rate"}  # of arrays: NumPy says what it cannot add up


def test_all_that_can_be_called_is_tried() -> None:
    offered = {name: getattr(fairlead, name) for name in fairlead.__all__}
    called = {
        name
        for name, one in offered.items()
        if (inspect.isclass(one) or inspect.isfunction(one))
        and not getattr(one, "_is_protocol", False)
        and not (inspect.isclass(one) and issubclass(one, BaseException))
    }
    named = {name.partition(".")[0] for name in CALLS}
    assert called - {"BasePolicy", "Change", "RoundsOnlyPlanner"} == named | ELSEWHERE | SUMS


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_of_another_type_is_one_sentence(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[call]
    for name in given:
        for wrong in WRONG:
            try:
                function(**{**given, name: wrong})
            except FairleadError as refused:
                sentence = str(refused)
                assert "\n" not in sentence, sentence
            except Exception as problem:
                raise AssertionError(f"{call}({name}={wrong!r}): {problem!r}") from problem


@pytest.mark.parametrize(
    ("call", "name", "value", "message"),
    [
        ("GroundTruth", "rate_noise", "x", "GroundTruth(): rate_noise: expected a number, got 'x'"),
        ("GroundTruth", "mtbf_s", True, "mtbf_s: expected a number or None, got True"),
        ("Throughputs", "rate", [[1.0]], "rate: expected an array of numbers with 2 dimensions"),
        ("Throughputs", "job_types", ("net",), "job_types: expected a tuple of JobType"),
        ("Cluster", "nodes", "v100", "nodes: expected a tuple of Node, got 'v100'"),
        ("Cluster.of", "counts", {"v100": 1.5}, "devices: expected a whole number, got 1.5"),
        ("Node", "devices", "4", "Node(): devices: expected a whole number, got '4'"),
        ("JobType", "accelerators", "v100", "accelerators: expected a tuple of names"),
        ("RestartCosts", "by_family", {"net": "1"}, "by_family: expected seconds by name"),
        ("UserEstimates", "types", "some", "types: expected 'all', 'fastest' or 'slowest'"),
        ("UserEstimates", "lognormal", 4.0, "lognormal must be a number from 0 to 3, got 4.0"),
        ("SolveReport", "objective", "best", "objective: expected a number or None, got 'best'"),
        ("generate", "spec", 5, "generate(): spec: expected text, got 5"),
        ("parse_cluster", "spec", 5, "parse_cluster(): spec: expected text, got 5"),
        ("read_trace", "path", 5, "read_trace(): path: expected a path, got 5"),
        ("read_throughputs", "path", 5, "read_throughputs(): path: expected a path, got 5"),
    ],
)
def test_the_sentence_names_the_argument(call: str, name: str, value: Any, message: str) -> None:
    function, given = CALLS[call]
    with pytest.raises(FairleadError) as refused:
        function(**{**given, name: value})
    assert message in str(refused.value)
