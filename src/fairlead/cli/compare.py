"""``fairlead compare``: several policies on the same input, side by side."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import options as o
from fairlead.cli.simulate import execute, remembered, say_skipped
from fairlead.errors import ConfigError
from fairlead.inputs import Input
from fairlead.report import tables
from fairlead.report.comparison import comparison_report
from fairlead.report.fairness import machine_form
from fairlead.report.metrics import Result
from fairlead.report.relative import relative

REFERENCE = "shockwave"  # what the others are related to, unless another is named
POLICIES = ("fifo", "fifo_aware", "isolated", "las", "las_aware")
JOBS = "gavel,jobs=200,interarrival=3000"


@o.takes_input
def compare(
    given: Input,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:ARG]",
            help=f"May be given several times. Default: {', '.join(POLICIES)}.",
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="NAME,...",
            help="Several at once; those whose ARG has a comma need --policy.",
        ),
    ] = None,
    relative_to: Annotated[
        str | None,
        typer.Option(
            "--relative-to",
            metavar="NAME",
            help="Show ratios to this one of the policies. Default: shockwave, if it is among them.",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="default|gavel|shockwave",
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
    names = _names(policy, policies)
    profiles = list(dict.fromkeys(profile or ["default"]))
    labels = [
        name if len(profiles) == 1 else f"{name} ({kind})" for kind in profiles for name in names
    ]
    reference = _reference(labels, names, relative_to)
    runs = [(name, kind, given.run(name, kind)) for kind in profiles for name in names]
    folder = o.new_folder(out, f"compare-{Path(runs[0][2].jobs.name).stem}")
    results = []
    for number, (name, kind, run) in enumerate(runs, 1):
        one = o.new_folder(folder / f"{number}-{name.partition(':')[0]}-{kind}", "")
        results.append(execute(run, one, remembered(given, name, kind), json=False, quiet=True))
    say_skipped(results[0])
    named = list(zip(labels, results, strict=True))
    page = comparison_report(
        [(label, r.config, r.metrics, r.jobs, r.rounds) for label, r in named], reference
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    if json:
        o.print_json({**_machine_form(named, reference), "out": str(folder)})
        return
    shown = [(label, r.metrics) for label, r in named]
    tables.show(tables.comparison_table(shown, tables.terminal_width()))
    if reference is not None:
        tables.show(tables.ratio_table(shown, reference))
    print(f"Report: {folder / 'report.html'}")


def _names(one_by_one: list[str] | None, together: str | None) -> list[str]:
    """The policies that were asked for, each once."""
    several = [] if together is None else [name.strip() for name in together.split(",")]
    if not all(several):
        raise ConfigError(f"--policies: expected names with commas between them, got {together!r}")
    return list(dict.fromkeys([*several, *(one_by_one or ())])) or list(POLICIES)


def _reference(labels: list[str], names: list[str], wanted: str | None) -> int | None:
    """Position of the run that the others are related to; of the first profile if it has several."""
    if wanted is not None:
        for known in (labels, names):
            if wanted in known:
                return known.index(wanted)
        raise ConfigError(
            f"--relative-to: {wanted!r} is not one of the policies compared ({', '.join(labels)})"
        )
    plain = [name.partition(":")[0] for name in names]
    return plain.index(REFERENCE) if REFERENCE in plain else None


def _machine_form(named: list[tuple[str, Result]], reference: int | None) -> dict[str, Any]:
    """Configuration and metrics of each run; ratios to the reference where there is one."""
    runs = {label: {"config": r.config, **machine_form(r.metrics)} for label, r in named}
    if reference is None:
        return {"runs": runs}
    rows = relative([result.metrics for _, result in named], reference)
    ratios = {
        label: {"_".join(map(str, row.quantity.path)): row.ratios[i] for row in rows}
        for i, (label, _) in enumerate(named)
    }
    return {"runs": runs, "relative_to": named[reference][0], "ratios": ratios}
