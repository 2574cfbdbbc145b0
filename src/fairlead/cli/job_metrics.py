"""``fairlead metrics``: what a job has reported of its training."""

import csv
import sys
from typing import Annotated

import typer

from fairlead.cli.server_options import JobArgument, JsonOption, asks_server
from fairlead.cli.terminal_views import print_json, show, table
from fairlead.cluster.http_client import Client
from fairlead.errors import ConfigError


@asks_server
def metrics(
    client: Client,
    job: JobArgument,
    name: Annotated[str, typer.Option("--name", help="Only this metric.")] = "",
    json: JsonOption = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print all points: metric, step, time and value.")
    ] = False,
) -> None:
    """Show what a job has reported of its training.

    Those are the values that it has given to fairlead.report().
    """
    if json and as_csv:
        raise ConfigError("--json and --csv: give one of them")
    curves = client.metrics(job, name)
    if json:
        print_json(curves)
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(("metric", "step", "time", "value"))
        for curve in curves:
            points = zip(curve.steps, curve.times_s, curve.values, strict=True)
            writer.writerows((curve.name, *point) for point in points)
    elif not curves:
        print(f"job {job} has reported no " + (f"metric {name}" if name else "metrics"))
    else:
        rows = [
            (
                curve.name,
                f"{curve.last_step:,}",
                f"{curve.last:.6g}",
                f"{min(curve.values):.6g}",
                f"{max(curve.values):.6g}",
                f"{len(curve.steps):,}",
            )
            for curve in curves
        ]
        show(table("metric >step >last >min >max >points", rows))
