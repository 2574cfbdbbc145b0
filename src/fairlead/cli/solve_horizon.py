"""``fairlead solve-window``: window problems in, rounds per job and a bound out."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fairlead.analysis.report.progress_bar import progress
from fairlead.policies.solve.planning_horizon import solve_counts
from fairlead.simulator.traces.planning_problems import PlanningInstance, read_windows


def solve_window(
    instances: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Window problems, one JSON object per line (docs/formats.md), gzip or not.",
        ),
    ],
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per problem instead of a table.")
    ] = False,
) -> None:
    """Solve Shockwave's window problems from a file.

    Shows how many of the next rounds each job should run, the objective of that, and a bound that no
    numbers of rounds can beat.
    """
    answers = _answers(list(read_windows(instances)))
    if json:
        for answer in answers:
            sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        _show(list(answers))


def _answers(problems: Sequence[PlanningInstance]) -> Iterator[dict[str, Any]]:
    with progress("solving, windows", len(problems)) as update:
        for done, instance in enumerate(problems):
            begun = time.perf_counter()
            answer = solve_counts(instance.problem)
            yield {
                "objective": answer.objective,
                "counts": answer.counts[:, 0].tolist(),
                "bound": answer.bound,
                "seconds": time.perf_counter() - begun,
            }
            update(done + 1)


def _show(answers: Sequence[dict[str, Any]]) -> None:
    table = Table(
        title=f"{len(answers)} window problem{'' if len(answers) == 1 else 's'}",
        box=SIMPLE_HEAD,
        title_justify="left",
    )
    for name in ("k", "jobs", "rounds given", "objective", "bound", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for k, answer in enumerate(answers):
        table.add_row(
            str(k),
            str(len(answer["counts"])),
            str(sum(answer["counts"])),
            f"{answer['objective']:.9g}",
            f"{answer['bound']:.9g}",
            f"{answer['seconds'] * 1e3:.2f}",
        )
    Console(highlight=False, soft_wrap=True).print(table)
