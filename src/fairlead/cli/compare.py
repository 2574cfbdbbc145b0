"""``fairlead compare``: several policies on the same input, side by side."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import options as o
from fairlead.cli.simulate import execute, remembered, say_skipped
from fairlead.report import html, tables

POLICIES = ("fifo", "fifo_aware", "isolated", "las", "las_aware")
JOBS = "gavel,jobs=200,interarrival=3000"


@o.takes_input
def compare(
    given: o.Input,
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
    out: o.OutOption = None,
    json: o.JsonOption = False,
) -> None:
    """Compare several policies on the same jobs and cluster.

    Without options: generated jobs, the built-in catalogue of measured rates, a small mixed cluster
    and five policies. Writes a folder with one run per policy and report.html.
    """
    if given.trace is None and given.generate is None:
        given = replace(given, generate=JOBS)
    names = list(dict.fromkeys(policy or POLICIES))  # each once
    profiles = list(dict.fromkeys(profile or ["default"]))
    runs = [(name, kind, given.run(name, kind)) for kind in profiles for name in names]
    folder = o.new_folder(out, f"compare-{Path(runs[0][2].jobs.name).stem}")
    results = []
    for number, (name, kind, run) in enumerate(runs, 1):
        label = name if len(profiles) == 1 else f"{name} ({kind})"
        one = o.new_folder(folder / f"{number}-{name.partition(':')[0]}-{kind}", "")
        arguments = remembered(given, name, kind)
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
