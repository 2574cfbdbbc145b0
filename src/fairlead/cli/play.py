"""``fairlead play``: a trace of jobs, on a live cluster."""

import hashlib
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli import options as o
from fairlead.cli.option_records import takes_records
from fairlead.cli.server_options import JsonOption, asks_server
from fairlead.cluster.http_client import Client
from fairlead.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fairlead.cluster.play.live_run import LiveRun
    from fairlead.cluster.play.planned_jobs import PlayPlan
    from fairlead.cluster.play.play_folder import PlayFolder, PlayRequest
    from fairlead.simulator.recording.metrics import Result

MAX_SPEED = 1e6
MIN_SCALE = 1e-9
BUILT_IN = "builtin"


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """What is played, and how fast."""

    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="N",
            help="Time between submissions goes by so many times faster. Default: 1.",
        ),
    ] = None
    scale_steps: Annotated[
        float | None,
        typer.Option(
            "--scale-steps",
            metavar="PART",
            help="Part of its steps that each job has, at least one step. Default: 1 / speed, which keeps "
            "the load as it is in the trace.",
        ),
    ] = None
    throughputs: Annotated[
        str | None,
        typer.Option(
            "--throughputs",
            metavar="FILE|builtin",
            help="Rates of each job family, as for simulate: jobs are submitted with them, and stand-ins "
            "take their steps at them. Default: builtin.",
        ),
    ] = None
    workloads: Annotated[
        Path | None,
        typer.Option(
            "--workloads",
            metavar="FILE",
            help="TOML file with the program of each family. Families that it does not name, and all without "
            "it, run stand-ins, which sleep as the table of rates says.",
        ),
    ] = None
    prices: o.PricesOption = None
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Of the trace. Default: 0.")
    ] = None
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated",
            help="Then simulate the same jobs as they were submitted, with what starts have cost, into the "
            "folder simulated in that of the run.",
        ),
    ] = False


@asks_server
@takes_records
def play(
    client: Client,
    options: PlayOptions,
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRACE",
            help="Jobs: Gavel, Philly, Shockwave or ITP trace, generated jobs, or our CSV or Parquet.",
        ),
    ] = None,
    out: o.OutOption = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Go on with a play that was interrupted."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Play a trace on a live cluster.

    Submits its jobs at their times, follows them until all have ended, and writes the folder that a
    simulation writes: run.json, jobs, rounds and placement intervals as Parquet, report.html. trace.csv,
    rates.csv and cluster.toml in it are the jobs as they were submitted, for simulate.
    """
    if resume is not None:
        if trace is not None or out is not None or options != PlayOptions():
            raise ConfigError(
                "--resume goes on as the play began: it takes no other option but --json"
            )
        _resume(client, resume, json=json)
        return
    if trace is None:
        raise ConfigError("give the jobs: fairlead play TRACE")
    from fairlead.cluster.play.play_folder import PlayFolder

    request = _request(client, trace, options)
    plan = _plan(client, request)
    for note in plan.notes:
        print(f"fairlead: {note}", file=sys.stderr)
    if client.jobs(state="open"):
        print(
            "fairlead: jobs that are not of this trace share the cluster's devices", file=sys.stderr
        )
    path = o.new_folder(out, f"play-{trace.stem}-{request.policy.partition(':')[0]}")
    _play(client, PlayFolder.begin(path, request, plan.cluster, len(plan.jobs)), plan, json=json)


def _resume(client: Client, path: Path, *, json: bool) -> None:
    """Go on with an interrupted play. RunError where it cannot go on as it began."""
    from fairlead.cluster.play.play_folder import PlayFolder

    folder = PlayFolder.open(path)
    request = folder.request
    if client.url != request.server:
        raise RunError(f"{path}: was played on {request.server}, not on {client.url}")
    for name, digest in request.digests.items():
        if _digest(Path(name)) != digest:
            raise RunError(f"{path}: {name} is not as it was when the play began")
    if client.status().now_s < request.began_s:
        raise RunError(
            f"{path}: the server at {client.url} does not have the state that was played on"
        )
    _play(client, folder, _plan(client, request), json=json)


def _request(client: Client, trace: Path, options: PlayOptions) -> "PlayRequest":
    """What is asked for, checked as far as one can without reading the files."""
    from fairlead.cluster.play.play_folder import PlayRequest

    speed = 1.0 if options.speed is None else options.speed
    if not 1 / MAX_SPEED <= speed <= MAX_SPEED:
        raise ConfigError(f"--speed: must be from {1 / MAX_SPEED:g} to {MAX_SPEED:g}, got {speed}")
    part = 1 / speed if options.scale_steps is None else options.scale_steps
    if not MIN_SCALE <= part <= MAX_SPEED:
        raise ConfigError(f"--scale-steps: must be from {MIN_SCALE:g} to {MAX_SPEED:g}, got {part}")
    table = None if options.throughputs in (None, BUILT_IN) else Path(options.throughputs or "")
    files = [trace, options.workloads, table]
    digests = {str(one.absolute()): _digest(one) for one in files if one is not None}
    status = client.status()
    return PlayRequest(
        trace=str(trace.absolute()),
        throughputs=BUILT_IN if table is None else str(table.absolute()),
        workloads=None if options.workloads is None else str(options.workloads.absolute()),
        speed=speed,
        scale_steps=part,
        seed=options.seed or 0,
        prices=options.prices,
        simulated=options.simulated,
        server=client.url,
        key=PlayRequest.new_key(),
        began_s=status.now_s,
        policy=status.policy,
        profile=status.profile,
        round_s=status.round_s,
        restart_s=status.restart_s,
        digests=digests,
    )


def _digest(path: Path) -> str:
    """Of a file, or of the files of a folder. Raises ConfigError."""
    digest = hashlib.sha256()
    try:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if not file.is_dir():
                digest.update(file.read_bytes())
        return digest.hexdigest()
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read ({problem.strerror})") from None


def _plan(client: Client, request: "PlayRequest") -> "PlayPlan":
    """Read what is to be played, on the nodes that the cluster has now."""
    from fairlead.cluster.play.planned_jobs import PlayPlan, check_jobs, notes_on, plan_jobs
    from fairlead.cluster.play.play_folder import cluster_of, with_rates
    from fairlead.cluster.play.workloads import Workloads, read_workloads
    from fairlead.simulator.simulation_jobs import read_jobs
    from fairlead.simulator.traces.cluster_files import parse_prices
    from fairlead.simulator.traces.throughput_tables import read_throughputs
    from fairlead.simulator.traces.trace import summarise

    prices = {} if request.prices is None else parse_prices(request.prices)
    cluster = cluster_of(client.nodes(), prices)
    table = read_throughputs(request.throughputs)
    cluster, unrated = with_rates(cluster, table)
    rates = table.columns(cluster.slots)
    found = read_jobs(request.trace, request.trace, rates, cluster, request.seed)
    programs = Workloads({}) if request.workloads is None else read_workloads(request.workloads)
    arrivals = list(found.arrivals)
    jobs = plan_jobs(
        arrivals, rates, programs, speed=request.speed, scale_steps=request.scale_steps
    )
    check_jobs(jobs, request.trace)
    notes = [
        *found.notes,
        *summarise(found.skipped),
        *(f"node {name} is left out: the table has no rates on it" for name in unrated),
        *notes_on(arrivals, request.policy, request.profile),
        *(
            f"{request.workloads}: no job of the trace is of {name!r}"
            for name in programs.unused(arrivals)
        ),
    ]
    return PlayPlan(jobs=jobs, table=table, cluster=cluster, notes=tuple(notes))


def _play(
    client: Client,
    folder: "PlayFolder",
    plan: "PlayPlan",
    *,
    json: bool,
) -> None:
    from fairlead.simulator.folder_lock import folder_held

    with folder_held(folder.folder):
        _play_in(client, folder, plan, json=json)


def _play_in(client: Client, folder: "PlayFolder", plan: "PlayPlan", *, json: bool) -> None:
    """Play in a folder that nobody else writes."""
    from fairlead.cluster.play.live_run import LiveRun
    from fairlead.cluster.play.play_folder import changes_since
    from fairlead.cluster.play.player import Player

    request = folder.request
    with o.interruptible() as stop:
        player = Player(
            client=client,
            folder=folder.folder,
            key=request.key,
            began_s=request.began_s,
            keep_tenants=client.me().role == "admin",
            stop=stop,
            say=lambda what: print(what, file=sys.stderr, flush=True),
        )
        try:
            played = player.play(plan.jobs)
        except KeyboardInterrupt:
            played = None
    if played is None:
        folder.interrupted()
        _end_interrupted(folder, "interrupted; jobs that were submitted run on")
        return
    notes = (*plan.notes, *changes_since(client.status(), request))
    if played.forgotten:
        gone = f"the server has forgotten {len(played.forgotten):,} jobs: they are left out"
        notes = (*notes, gone)
    run = LiveRun(plan=plan, played=played, round_s=request.round_s)
    notes = (*notes, *run.notes())
    result = folder.finish(run, notes)
    simulated = None
    if request.simulated:
        with o.interruptible() as stop:
            simulated = folder.simulate(run, stop)
        if not simulated.complete:
            _end_interrupted(folder, "the simulation was interrupted; the play is complete")
    _show(folder, run, result, simulated, json=json)


def _end_interrupted(folder: "PlayFolder", what: str) -> None:
    """End with the exit code of an interruption, and say how to go on."""
    path = shlex.quote(str(folder.folder))
    print(f"fairlead: {what}. Go on with: fairlead play --resume {path}", file=sys.stderr)
    raise typer.Exit(130)


def _show(
    folder: "PlayFolder",
    run: "LiveRun",
    result: "Result",
    simulated: "Result | None",
    *,
    json: bool,
) -> None:
    from fairlead.analysis.report import terminal_tables as tables
    from fairlead.cli.simulate import json_of, report_unfinished

    for note in result.skipped:
        if note not in run.plan.notes:  # those were told before
            print(f"fairlead: {note}", file=sys.stderr)
    report_unfinished(result, "")
    start_s, resume_s = run.start_costs()
    costs = {"start_s": start_s, "resume_s": resume_s}
    if json:
        found = json_of(result, folder.folder) | costs
        o.print_json(found | ({} if simulated is None else {"simulated": simulated.metrics}))
        return
    tables.show(tables.summary_table(result.config, result.metrics))
    path = shlex.quote(str(folder.folder))
    print(f"Report: {folder.folder / 'report.html'}")
    if simulated is not None:
        print(f"fairlead compare {path} {path}/simulated")
