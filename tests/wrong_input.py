"""Bad input by the thousand: valid files and options with one to three changes, and what each may lead to.

A case is a function of a seeded generator. It ends in silence, where the changed input can be used, or in a
FairleadError of one sentence; any other exception, an answer that is not a number, or more than ``LIMIT_S``
seconds is a fault of ours.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from fairlead.analysis.experiments.sweep_description import described, read_table
from fairlead.cli import options
from fairlead.cli.simulate import _ResumedRun
from fairlead.cluster.protocol.read_job_spec import read_spec
from fairlead.errors import CheckError, FairleadError, InputError, SimulationError, SolveError
from fairlead.policies import registry
from fairlead.policies.entities import read_entities
from fairlead.policies.shockwave.options import read_options
from fairlead.policies.solve.planning_horizon import solve_counts
from fairlead.scheduler import journal
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.instances import read_instances
from fairlead.simulator.traces.planning_problems import read_windows
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs
from fairlead.simulator.traces.trace import checked
from tests.small import time_limit

LIMIT_S = 600.0  # of a case: a busy machine that compiles kernels is slow, a hang has no end
VALUES = (
    "", "0", "-0", "-1", "1", "2", "0.5", "1e-300", "1e-9", "1e308", "-1e308", "1e400", "nan", "inf", "-inf",
    "NaN", "9" * 20, "9" * 400, "9" * 5000, str(2**31), str(2**53), str(2**63), str(2**70), "1_000", "0x1",
    "1e5", "1e11", "10000000", "1000000", "true", "null", "none", "[]", "{}", "[1]", '{"a": 1}', '"x"', "x",
    "é", "\x00", "\ufeff", "\n", "\t", ",", "=", ":", ";", "/", "[" * 2000, "((((", "0001-01-01",
    "9999-12-31", "1970-01-01 00:00:00", "%s", "../..", "A3C", "ResNet-18 (batch size 32)", "v100",
    "static", "0:32;1:64",
)  # fmt: skip
TOKEN = re.compile(r"[\w.+-]+")

OWN = (
    "job,arrival_s,family,scale_factor,total_steps,weight,tenant,slo_s,duration_s,adaptation,samples\n"
    "0,0,A3C,1,500,1,a,900,60,,\n1,5,ResNet-18 (batch size 32),2,900,2,b,,,accordion,50000\n"
    "7,9.5,LM (batch size 10),1,5.5,1,,,,0:10;1:20,\n"
)
TRACES: Mapping[str, str] = {
    "own": OWN,
    "seven": "A3C\tpython x\t-s\t1\t500\t0\t1\nCycleGAN\tpython x\t-s\t1\t80\t7.5\t1\n",
    "ten": "A3C\tcmd\tdir\t-s\t1\t500\t1\t1\t-1\t0\nCycleGAN\tcmd\tdir\t-s\t1\t50\t1\t5\t1.2\t9\n",
    "twelve": "ResNet-18 (batch size 32)\tc\td\t-s\t1\t5000\t1\tgns\t1\t-1\t900\t0\n"
    "LM (batch size 10)\tc\td\t-s\t1\t5000\t2\tstatic\t1\t-1\t900\t3\n",
    "jobs": json.dumps(
        [{"id": n, "arrival": n, "job_type": "A3C", "scale_factor": 1, "total_steps": 9.5,
          "duration": 40.0, "priority": 5.0, "SLO": 2.0} for n in range(2)]
    ),
    "philly": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n"
    "2017-10-09 07:02:55,6.0,4,66.0,b\n",
    "itp": "job_id,submission_time,duration,num_gpu\nx1,1000,60,1\nx2,1009,70,8\n",
    "elasticflow": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
    "x1,1000,500,resnet50,2000,128,1,60\nx2,1009,500,bert,2000,64,8,70\n",
}  # fmt: skip
TABLES: Mapping[str, str] = {
    "csv": "family,scale_factor,accelerator,locality,steps_per_s,source,beside\n"
    "A,1,v100,consolidated,10,x,\nB,1,v100,consolidated,5,x,\nA,1,v100,consolidated,6,x,B\n"
    "B,1,v100,consolidated,3,x,A\nA,2,v100,spread,12,x,\n",
    "json": json.dumps(
        {"v100": {"('A', 1)": {"null": 10.0, "('B', 1)": [6.0, 3.0]}, "('B', 1)": {"null": 5.0}},
         "v100_unconsolidated": {"('A', 2)": {"null": 12.0}}}
    ),
}  # fmt: skip
CLUSTER = (
    '[[node]]\nname = "a"\naccelerator = "v100"\ndevices = 2\ncount = 3\n[prices]\nv100 = 0.5\n'
)
SHOCKWAVE = (
    'preset = "default"\nrounds = 10\nk = 0.5\nbases = [0.0, 0.5, 1.0]\nstay = 2.0\nprior = 1.0\n'
)
ENTITIES = '[a]\nweight = 2.0\npolicy = "fifo"\n[a.b]\nweight = 1\n[c]\n'
SWEEP = (
    'policies = ["las", "fifo"]\nseeds = [0, 1]\nrates = [0.5, 1]\ngenerate = "gavel,jobs=5"\n'
    'cluster = "v100=2"\nround = 60\nrestart_cost = 3\n'
)
SPEC = (
    'name = "a"\ncommand = ["true"]\ntotal_steps = 10\nscale_factor = 1\nweight = 2.0\n'
    "rates = { v100 = 2.0 }\n"
)
INSTANCE = json.dumps(
    {"k": 1, "cluster_spec": {"v100": 2, "k80": 1}, "prices": {"v100": 1.0},
     "jobs": [{"id": n, "job_type": "A3C", "scale_factor": 1, "priority": 1.0, "num_steps_remaining": 50.0,
               "time_since_start": 5.0, "tenant": "a", "deadline_s": 900.0} for n in range(2)]}
)  # fmt: skip
WINDOW = json.dumps(
    {"inst": {"G": 2, "F": 4, "T": 120, "round": 1, "k": 0.001, "lam": 2.0, "rhomax": 1.0,
              "bases": [0.0, 0.5, 1.0], "logs": [-10.0, -0.7, 0.0], "ids": [7, 8], "nw": [1, 2],
              "E": [10, 20], "cur": [0, 10], "d": [60.0, 24.0], "R": [600.0, 240.0], "ftf": [360.0, 1000.0]}}
)  # fmt: skip
OPTIONS: Mapping[str, str] = {  # of a simulation, each with a value that can be used
    "generate": "gavel,jobs=4,interarrival=600,duration=3000",
    "cluster": "v100=2,k80=2",
    "devices_per_server": "v100=2,k80=1",
    "prices": "v100=1,k80=0.1",
    "window": "0:3",
    "restart_cost": "A3C=5",
    "user_estimates": "lognormal=0.5,exaggerating=0.2,factor=2,users=3",
    "estimator": "gavel:references=3,profiling=0.5,rank=2",
    "seed": "3",
    "round_s": "120",
    "stop_at_s": "9000",
    "rate_noise": "0.1",
    "rate_bias": "0.1",
    "mtbf_h": "10",
    "mttr_h": "1",
    "early_termination": "0.1",
    "solve_time_s": "5",
    "preemption_hysteresis": "10",
    "solve_interval_s": "60",
}
NUMBERS = tuple(OPTIONS)[8:]
POLICIES = (
    "las",
    "fifo",
    "las_aware",
    "shockwave:rounds=5,k=2,bases=0/0.5/1",
    "gandiva_fair",
    "mtd",
)
END_S = 20_000.0  # of simulated time: what can be run is cut short
ROUND_S = 10.0  # shortest
Case = Callable[[random.Random, Path], object]


def changed(rng: random.Random, text: str) -> str:
    """The text with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(CHANGES)(rng, text)
    return text


def _token(rng: random.Random, text: str) -> str:
    found = list(TOKEN.finditer(text))
    if not found:
        return rng.choice(VALUES)
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(VALUES) + text[one.end() :]


def _line(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return "\n".join(lines)


def _character(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice("\x00,\t\n\"'=[]{}()#;:-e9é ") + text[at + rng.randrange(3) :]


CHANGES = (_token, _token, _token, _line, _character)


def write(rng: random.Random, path: Path, text: str) -> Path:
    """The text with changes, as a file; now and then with a byte that is no text, or cut off."""
    data = changed(rng, text).encode("utf-8", "surrogatepass")
    if rng.random() < 0.05 and data:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if rng.random() < 0.05:
        data = data[: rng.randrange(len(data) + 1)]
    path.write_bytes(data)
    return path


# --- what is read -------------------------------------------------------------------------------------

RATES = builtin_throughputs()


def trace_case(rng: random.Random, folder: Path) -> object:
    path = write(rng, folder / "a.trace", rng.choice(list(TRACES.values())))
    trace = read_trace(path, RATES)
    return list(checked(trace.arrivals))  # what a reader lets through can be run


def table_case(rng: random.Random, folder: Path) -> object:
    path = write(rng, folder / "a.table", rng.choice(list(TABLES.values())))
    table = read_throughputs(path)
    assert table.colocated_rate is None or isfinite(float(table.colocated_rate.sum()))
    assert isfinite(float(table.rate.sum()))
    return table


def cluster_case(rng: random.Random, folder: Path) -> object:
    if rng.random() < 0.5:
        return parse_cluster(str(write(rng, folder / "a.toml", CLUSTER)))
    spec = changed(rng, rng.choice(("v100=4,k80=8", "4:4:4", "v100=1")))
    per = changed(rng, "v100=2") if rng.random() < 0.3 else None
    return parse_cluster(spec, per)


def toml_case(rng: random.Random, folder: Path) -> object:
    match rng.randrange(4):
        case 0:
            return read_options(str(write(rng, folder / "a.toml", SHOCKWAVE)))
        case 1:
            return read_entities(write(rng, folder / "a.toml", ENTITIES))
        case 2:
            return read_spec(write(rng, folder / "a.toml", SPEC))
        case _:
            table = read_table(write(rng, folder / "a.toml", SWEEP))
            from fairlead.cli.sweep import NAMES

            return described(table, "a.toml", NAMES)


def instance_case(rng: random.Random, folder: Path) -> object:
    path = write(rng, folder / "a.jsonl", INSTANCE)
    name = rng.choice(
        ("las", "las_aware", "gandiva_fair", "total_throughput", "finish_time", "makespan")
    )
    policy: Any = registry.make(name, seed=0, profile="gavel")
    for _, snapshot in read_instances(path, RATES):
        answer = policy.allocate(snapshot)
        assert isfinite(float(answer.share.sum()))
    return None


def window_case(rng: random.Random, folder: Path) -> object:
    for instance in read_windows(write(rng, folder / "a.jsonl", WINDOW)):
        problem = instance.problem
        if problem.rounds > 1000:
            continue  # takes long by right
        answer = solve_counts(problem)
        assert isfinite(answer.objective), answer
        assert isfinite(answer.bound), answer
    return None


# --- what is run --------------------------------------------------------------------------------------


def option_case(rng: random.Random, folder: Path) -> object:
    given: dict[str, Any] = {"cluster": OPTIONS["cluster"], "generate": OPTIONS["generate"]}
    given |= {name: OPTIONS[name] for name in rng.sample(list(OPTIONS), 3)}
    name = rng.choice(list(given))
    given[name] = changed(rng, given[name])
    for name in NUMBERS:
        if name in given:
            try:  # as the command line reads it
                given[name] = int(given[name]) if name == "seed" else float(given[name])
            except ValueError:
                return None
    if "restart_cost" in given:
        given["restart_cost"] = [given["restart_cost"]]
    policy = rng.choice(POLICIES)
    if rng.random() < 0.2:
        policy = changed(rng, policy)
    return _brief(SimulationInput(**given), policy, folder)


def _brief(given: SimulationInput, policy: str, folder: Path) -> object:
    """A short run; its figures are numbers."""
    run = given.prepare(policy, "default")
    stop_at_s = min(END_S, run.options.stop_at_s or END_S)
    if run.cluster.capacity.sum() > 1000 or (run.jobs.n or 0) > 1000:
        return None  # takes long by right
    result = replace(run, options=replace(run.options, stop_at_s=stop_at_s)).execute(folder)
    for name, value in result.metrics.items():
        assert not isinstance(value, float) or isfinite(value), (name, value)
    return result


def run_case(rng: random.Random, folder: Path) -> object:
    """A trace that may be used is run."""
    path = write(rng, folder / "a.trace", rng.choice(list(TRACES.values())))
    return _brief(SimulationInput(trace=str(path), cluster="v100=2"), "las", folder)


def journal_case(rng: random.Random, folder: Path, good: Path) -> object:
    path = folder / "journal"
    data = bytearray(good.read_bytes())
    for _ in range(rng.randrange(4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.3:
        data += rng.choice((bytes(99), rng.randbytes(99), bytes(8)))
    path.write_bytes(data)
    return journal.replay(path)


def record_case(rng: random.Random, folder: Path, good: Path) -> object:
    path = write(rng, folder / "run.json", good.with_name("run.json").read_text())
    begun = msgspec_or_input_error(options.read_json(path))
    return begun.arguments.input.prepare(begun.arguments.policy, begun.arguments.profile)


def msgspec_or_input_error(record: dict[str, Any]) -> _ResumedRun:
    """As ``--resume`` does it."""
    try:
        return msgspec.convert(record, _ResumedRun)
    except msgspec.ValidationError as problem:
        raise InputError(str(problem)) from None


# --- all of it ----------------------------------------------------------------------------------------


def cases(good: Path) -> dict[str, tuple[float, Case]]:
    """(weight, case) by name. good: the journal of a finished run, beside its run.json."""
    return {
        "trace": (4, trace_case),
        "table": (2, table_case),
        "cluster": (2, cluster_case),
        "toml": (3, toml_case),
        "instance": (2, instance_case),
        "window": (2, window_case),
        "option": (2, option_case),
        "run": (1, run_case),
        "journal": (1, lambda rng, folder: journal_case(rng, folder, good)),
        "record": (1, lambda rng, folder: record_case(rng, folder, good)),
    }


def run_case_number(number: int, good: Path, folder: Path) -> str:
    """Run one case; "" or what is wrong with what it led to."""
    rng = random.Random(number)
    chosen = cases(good)
    (name,) = rng.choices(list(chosen), [weight for weight, _ in chosen.values()])
    work = folder / f"{number}"
    work.mkdir()
    try:
        with time_limit(LIMIT_S):
            chosen[name][1](rng, work)
    except (InputError, CheckError, SimulationError, SolveError) as problem:
        if not str(problem) or "\n" in str(problem).strip():
            return f"case {number} ({name}): not one sentence: {str(problem)[:200]!r}"
        if isinstance(problem, SolveError):
            return f"case {number} ({name}): {problem}"
    except FairleadError as problem:
        return f"case {number} ({name}): {type(problem).__name__}: {problem}"
    except Exception as problem:
        return f"case {number} ({name}): {type(problem).__name__}: {str(problem)[:300]}"
    shutil.rmtree(work)
    return ""
