"""The folder of a play: what was asked for, and what came of it, as a run."""

import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

import fairlead
from fairlead.analysis.report.run_folder import begin_record, write_json, write_result
from fairlead.analysis.report.run_folders import read_json_file
from fairlead.analysis.simulate import simulate
from fairlead.cluster.play.live_run import LiveRun
from fairlead.cluster.protocol.api_models import NodeView, StatusView
from fairlead.errors import RunError
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import DEFAULT, PROFILES
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.recording.metrics import Result, measure, unfinished_note
from fairlead.simulator.recording.run_tables import RunTables
from fairlead.simulator.traces.atomic_write import write_atomically
from fairlead.simulator.traces.cluster_files import priced
from fairlead.simulator.traces.throughput_tables import write_throughputs_csv
from fairlead.simulator.traces.trace import Trace
from fairlead.simulator.traces.write_trace import write_trace

_GONE = ("lost", "offline")
SIMULATED = "simulated"  # the folder of the simulation, in that of the play


class PlayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and by which cluster's time it began: ``run.json`` holds it for ``--resume``."""

    trace: str
    throughputs: str
    workloads: str | None
    speed: float
    scale_steps: float
    seed: int
    prices: str | None
    simulated: bool
    server: str
    key: str  # of what is submitted
    began_s: float
    policy: str
    profile: str
    round_s: float
    restart_s: float | None  # that starts are believed to cost
    digests: dict[str, str]  # file -> sha256, of those that were read

    @staticmethod
    def new_key() -> str:
        """Return a key that no other play has."""
        return f"play-{secrets.token_hex(8)}"


@dataclass(slots=True)
class PlayFolder:
    """A folder with ``run.json``, and later the tables, the report, and what a simulation needs."""

    folder: Path
    request: PlayRequest
    record: dict[str, Any]

    @staticmethod
    def begin(folder: Path, request: PlayRequest, cluster: Cluster, n_jobs: int) -> "PlayFolder":
        """Write down what was asked for."""
        config = _config(request, cluster, n_jobs)
        arguments = {"play": msgspec.to_builtins(request)}
        return PlayFolder(folder, request, begin_record(folder, config, arguments))

    @staticmethod
    def open(folder: Path) -> "PlayFolder":
        """One that was begun. RunError: there is none to go on with."""
        path = folder / "run.json"
        record = read_json_file(path) if path.exists() else None
        arguments = record.get("arguments") if isinstance(record, dict) else None
        play = arguments.get("play") if isinstance(arguments, dict) else None
        if record is None or play is None:
            raise RunError(f"{folder}: there is no play to go on with ('fairlead play' begins one)")
        try:
            found = PlayFolder(folder, msgspec.convert(play, PlayRequest), record)
        except msgspec.ValidationError as problem:
            raise RunError(f"{path}: arguments: {problem}") from None
        if record.get("status") == "complete" and found._is_simulated():
            raise RunError(f"{folder}: the play there is complete")
        return found

    def _is_simulated(self) -> bool:
        """Return whether the simulation is complete, if one was asked for."""
        path = self.folder / SIMULATED / "run.json"
        record = read_json_file(path) if path.exists() else None
        done = isinstance(record, dict) and record.get("status") == "complete"
        return done or not self.request.simulated

    def interrupted(self) -> None:
        """Note that it was broken off."""
        write_json(self.folder / "run.json", self.record | {"status": "interrupted"})

    def finish(self, run: LiveRun, notes: tuple[str, ...]) -> Result:
        """Write the run, and what a simulation of the same jobs needs."""
        recorder = run.record()
        tables = RunTables.of(recorder)
        metrics = measure(recorder, tables.jobs, None, False)
        metrics |= {"n_solves": None, "cpu_s": None, "solve_s": None}
        tables.write(self.folder)
        self._write_inputs(run)
        partial = unfinished_note(tables.jobs, None)
        result = Result(
            config=_config(self.request, run.cluster, len(run.plan.jobs)),
            metrics=metrics,
            **tables._asdict(),
            skipped=notes,
            partial=() if partial is None else (partial,),
        )
        write_result(self.folder, self.record, result)
        return result

    def _write_inputs(self, run: LiveRun) -> None:
        write_trace(Trace("played", "played", run.arrivals()), self.folder / "trace.csv")
        write_throughputs_csv(run.rates, self.folder / "rates.csv")
        with write_atomically(self.folder / "cluster.toml") as path:
            path.write_text(_cluster_toml(run.cluster))

    def simulate(self, run: LiveRun, stop: Callable[[], bool]) -> Result:
        """Simulate the same jobs, as they were submitted, with what starts have cost, into a folder in this
        one, anew if that was begun before. stop: whether to break off."""
        request, folder = self.request, self.folder / SIMULATED
        shutil.rmtree(folder, ignore_errors=True)
        start_s, resume_s = run.start_costs()
        truth = GroundTruth(
            restart_costs=RestartCosts(start_s or 0.0),
            resume_costs=None if resume_s is None else RestartCosts(resume_s),
            first_starts_cost=True,
            seed=request.seed,
        )
        solves = sorted(run.played.solve_s)
        return simulate(
            run.arrivals(),
            run.cluster,
            request.policy,
            out=folder,
            stop=stop,
            throughputs=run.rates,
            profile=replace(PROFILES.get(request.profile, DEFAULT), round_s=request.round_s),
            ground_truth=truth,
            assumed_costs=None if request.restart_s is None else RestartCosts(request.restart_s),
            solve_s=solves[len(solves) // 2] if solves else 0.0,
            seed=request.seed,
        )


def cluster_of(nodes: list[NodeView], prices: Mapping[str, float]) -> Cluster:
    """The nodes of a live cluster that are not lost or offline. prices: $ per device-hour, over the defaults
    of simulations. RunError: there are none."""
    found = [
        Node(node.name, node.accelerator, node.devices)
        for node in sorted(nodes, key=lambda node: node.name)
        if node.state not in _GONE
    ]
    if not found:
        raise RunError("the cluster has no nodes: start agents first ('fairlead agent')")
    return priced(Cluster(tuple(found)), prices)


def with_rates(cluster: Cluster, table: Throughputs) -> tuple[Cluster, list[str]]:
    """Return the cluster without nodes of accelerator types that a table does not have, and their names.
    RunError: no node is left."""
    known = {slot.accelerator for slot in table.slots}
    nodes = tuple(node for node in cluster.nodes if node.accelerator in known)
    if not nodes:
        types = ", ".join(sorted(known))
        raise RunError(f"no node of the cluster is of a type of the table of rates ({types})")
    left_out = [node.name for node in cluster.nodes if node.accelerator not in known]
    return priced(Cluster(nodes), cluster.prices), left_out


def changes_since(status: StatusView, request: PlayRequest) -> tuple[str, ...]:
    """Return notes on what has changed since a play began, in sentences."""
    now = {"policy": status.policy, "profile": status.profile}
    return tuple(
        f"the {name} was {getattr(request, name)} when the play began, and is {value}"
        for name, value in now.items()
        if value != getattr(request, name)
    )


def _config(request: PlayRequest, cluster: Cluster, n_jobs: int) -> dict[str, Any]:
    """As that of a simulation: see ``SimulationRun.config``."""
    counts = dict(zip(cluster.accelerators, map(int, cluster.capacity), strict=True))
    return {
        "version": fairlead.__version__,
        "trace": Path(request.trace).name,
        "n_jobs": n_jobs,
        "throughputs": request.throughputs,
        "cluster": counts,
        "prices": dict(cluster.prices),
        "policy": request.policy,
        "profile": request.profile,
        "round_s": request.round_s,
        "ideal": False,
        "seed": request.seed,
        "window": None,
        "stop_at_s": None,
        "world": "live",
        "speed": request.speed,
        "scale_steps": request.scale_steps,
    }


def _cluster_toml(cluster: Cluster) -> str:
    lines = []
    for node in cluster.nodes:
        lines += [
            "[[node]]",
            f'name = "{node.name}"',
            f'accelerator = "{node.accelerator}"',
            f"devices = {node.devices}",
            "",
        ]
    if cluster.prices:
        lines += ["[prices]", *(f'"{name}" = {price}' for name, price in cluster.prices.items())]
    return "\n".join(lines) + "\n"
