"""``fairlead compare``: several policies on the same input, side by side."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import options as o
from fairlead.cli.simulate import execute, say_skipped
from fairlead.report import html, tables

POLICIES = ("fifo", "fifo_aware", "isolated", "las", "las_aware")
CLUSTER = "v100=8,p100=8,k80=8"
JOBS = "gavel,jobs=200,interarrival=3000"


def compare(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:ARG]",
            help=f"May be given several times. Default: {', '.join(POLICIES)}.",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="default|gavel",
            help="How shares become rounds; give it twice to compare both. Default: default.",
        ),
    ] = None,
    trace: o.TraceOption = None,
    generate: o.GenerateOption = None,
    throughputs: o.ThroughputsOption = "builtin",
    cluster: o.ClusterOption = CLUSTER,
    round_s: o.RoundOption = None,
    seed: o.SeedOption = 0,
    window: o.WindowOption = None,
    until_s: o.UntilOption = None,
    devices_per_server: o.PerServerOption = None,
    prices: o.PricesOption = None,
    restart_cost: o.RestartOption = None,
    rate_noise: o.NoiseOption = 0.0,
    rate_bias: o.BiasOption = 0.0,
    mtbf_h: o.MtbfOption = None,
    mttr_h: o.MttrOption = 1.0,
    early_end: o.EarlyEndOption = 0.0,
    solve_time_s: o.SolveTimeOption = 0.0,
    out: o.OutOption = None,
    json: o.JsonOption = False,
) -> None:
    """Simulate several policies on the same jobs and cluster and show which is better.

    Without options: generated jobs, the built-in catalogue of measured rates, a small mixed cluster
    and five policies. Writes a folder with one run per policy and report.html.
    """
    if trace is None and generate is None:
        generate = JOBS
    given = o.Input(
        None if trace is None else str(trace),
        generate,
        throughputs,
        cluster,
        devices_per_server,
        prices,
        round_s,
        seed,
        window,
        until_s,
        tuple(restart_cost or ()),
        rate_noise,
        rate_bias,
        mtbf_h,
        mttr_h,
        early_end,
        solve_time_s,
    )
    names = policy or list(POLICIES)
    profiles = profile or ["default"]
    runs = [(name, kind, given.run(name, kind)) for kind in profiles for name in names]
    folder = o.new_folder(out, f"compare-{Path(runs[0][2].trace_name).stem}")
    results = []
    for number, (name, kind, run) in enumerate(runs, 1):
        label = name if len(profiles) == 1 else f"{name} ({kind})"
        one = o.new_folder(folder / f"{number}-{name.partition(':')[0]}-{kind}", "")
        arguments = {"input": asdict(given), "policy": name, "profile": kind}
        results.append((label, execute(run, one, arguments, json=False, quiet=True)))
    say_skipped(results[0][1])
    page = html.comparison_report(
        [(label, r.config, r.metrics, r.jobs, r.rounds) for label, r in results]
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    if json:
        shown = {label: {"config": r.config, **r.metrics} for label, r in results}
        o.print_json({"runs": shown, "out": str(folder)})
        return
    tables.show(
        tables.comparison_table(
            [(label, r.metrics) for label, r in results], tables.terminal_width()
        )
    )
    print(f"Report: {folder / 'report.html'}")
