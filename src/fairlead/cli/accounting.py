"""``fairlead accounting``: who has used how much."""

import csv as csv_text
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.server_options import JsonOption, asks_server
from fairlead.cli.terminal_views import print_json, show, table
from fairlead.cli.time_option import DAY_HELP, read_day
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.accounting import (
    PERIODS,
    Grouping,
    UsageRow,
    UsageView,
    check_groupings,
)
from fairlead.errors import ConfigError
from fairlead.model.duration_text import DASH

_FIELDS = ("device_ms", "device_hours", "cost", "cost_micros", "attempts")


@asks_server
def accounting(
    client: Client,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="NAME,...",
            help="Groups: some of tenant, user, type, and one of day, week and month.",
        ),
    ] = "tenant,type",
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="DAY", help=f"From that day on (UTC): {DAY_HELP}."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DAY", help="Before that day; as --since.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write a Parquet file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show device time and what it costs, by tenant, user, device type and period.

    An attempt is billed its devices from when it had them until its last process was gone, or until now;
    what has no price (`serve --prices`) costs nothing. A user sees their own tenant.
    """
    if csv + json + (parquet is not None) > 1:
        raise ConfigError("accounting: give one of --csv, --json and --parquet")
    groupings = check_groupings([name.strip() for name in by.split(",") if name.strip()], "--by")
    first, end = read_day(since, "--since"), read_day(until, "--until")
    if first is not None and end is not None and end <= first:
        raise ConfigError(f"--until: must be after --since, got {until!r}")
    view = client.accounting(groupings, first, end)
    if json:
        print_json(view)
    elif csv:
        writer = csv_text.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_columns(view.by))
        writer.writerows(_values(view.by, row) for row in view.rows)
    elif parquet is not None:
        _write_parquet(parquet, view)
    else:
        _show(view)


def _names(by: tuple[Grouping, ...]) -> list[str]:
    """The columns that name a group: what they are called and, of a period, which it is."""
    period = [name for name in by if name in PERIODS]
    return [*period, *(name for name in by if name not in PERIODS)]


def _columns(by: tuple[Grouping, ...]) -> list[str]:
    return [*_names(by), *_FIELDS]


def _values(by: tuple[Grouping, ...], row: UsageRow) -> list[Any]:
    """The values of a row; a cost that is not known is empty."""
    fields = ["period" if name in PERIODS else name for name in _names(by)]
    return [getattr(row, name) for name in (*fields, *_FIELDS)]


def _write_parquet(path: Path, view: UsageView) -> None:
    import polars as pl

    from fairlead.simulator.traces.atomic_write import write_atomically

    numbers = {
        "device_ms": pl.Int64,
        "device_hours": pl.Float64,
        "cost": pl.Float64,
        "cost_micros": pl.Int64,
        "attempts": pl.Int64,
    }
    schema = dict.fromkeys(_names(view.by), pl.String) | numbers
    rows = [_values(view.by, row) for row in view.rows]
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    days = [pl.col(name).str.to_date() for name in _names(view.by) if name in PERIODS]
    with write_atomically(path) as partial:
        frame.with_columns(days).write_parquet(partial)
    print(f"{path}: {len(rows):,} rows")


def _show(view: UsageView) -> None:
    names = _names(view.by)
    columns = " ".join([*names, ">device_hours", ">cost_$", ">attempts"])
    rows = [[*_values(view.by, row)[: len(names)], *_numbers(row)] for row in view.rows]
    total = [["total", *[""] * (len(names) - 1), *_numbers(view.total)]] if names else []
    if not names:
        rows = [_numbers(view.total)]
    show(table(columns, [*rows, *total]))
    if view.unpriced:
        print(f"no price, so no cost: {', '.join(view.unpriced)} (serve --prices)")


def _numbers(row: UsageRow) -> list[str]:
    cost = DASH if row.cost is None else f"{row.cost:,.2f}"
    return [f"{row.device_hours:,.3f}", cost, f"{row.attempts:,}"]
