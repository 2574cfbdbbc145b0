"""Tables embedded in a page, to be downloaded as files without a network."""

import base64
import gzip
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import polars as pl

from fairlead.analysis.report.chart import Chart, Series
from fairlead.analysis.report.markup import Html, join, table, tag
from fairlead.analysis.report.metric_catalogue import number
from fairlead.analysis.report.page import note, section

DIGITS = 7  # significant ones of embedded numbers; the Parquet tables hold all
MAX_ROWS = 20_000  # of one table


def downloads(tables: Sequence[tuple[str, str, pl.DataFrame]]) -> Html:
    """A section with a line per table: name of its file, what it holds, and the table."""
    rows = [_row(name, words, one) for name, words, one in tables if one.width]
    words = "The page itself holds this data: nothing is fetched."
    return section("Download", join(note(words), table((), rows, class_="downloads")))


def _row(name: str, words: str, table: pl.DataFrame) -> Html:
    if table.height > MAX_ROWS:
        words = f"{words}; the first {MAX_ROWS:,} of {table.height:,} rows"
        table = table.head(MAX_ROWS)
    buttons = [
        tag("button", one.upper(), type="button", data_format=one) for one in ("csv", "json")
    ]
    return tag(
        "tr",
        tag("td", name),
        tag("td", words),
        tag("td", *buttons, data_name=name, data_table=compressed(table)),
    )


def compressed(table: pl.DataFrame) -> str:
    """A table as JSON by columns, gzip and base64; the same table gives the same text."""
    short = table.with_columns(pl.col(pl.Float64, pl.Float32).round_sig_figs(DIGITS))
    columns = {column.name: column.to_list() for column in short}
    raw = msgspec.json.encode(columns)
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def chart_table(charts: Sequence[tuple[str, Chart]]) -> pl.DataFrame:
    """The points of some figures, a row each; ``category`` is the name of a bar, null for lines."""
    parts = [_points(name, chart, series) for name, chart in charts for series in chart.series]
    return pl.concat(parts) if parts else pl.DataFrame()


def _points(name: str, chart: Chart, series: Series) -> pl.DataFrame:
    gap = np.full(len(series.x), np.nan)
    category = [chart.categories[int(x)] for x in series.x] if chart.kind == "bars" else None
    return pl.DataFrame(
        {
            "figure": [name] * len(series.x),
            "series": [series.name] * len(series.x),
            "published": [series.published] * len(series.x),
            "category": pl.Series(category or [None] * len(series.x), dtype=pl.String),
            "x": series.x.astype(np.float64),
            "y": series.y.astype(np.float64),
            "low": gap if series.low is None else series.low.astype(np.float64),
            "high": gap if series.high is None else series.high.astype(np.float64),
        }
    ).with_columns(pl.col(pl.Float64).fill_nan(None))


def metric_table(runs: Sequence[tuple[Mapping[str, object], Mapping[str, object]]]) -> pl.DataFrame:
    """A row per run: its names, and all its numbers, nested ones as ``rho.static.max``."""
    rows = [{**names, **dict(_flat("", metrics))} for names, metrics in runs]
    columns = dict.fromkeys(key for row in rows for key in row)
    return pl.DataFrame(
        {key: pl.Series([row.get(key) for row in rows], strict=False) for key in columns}
    )


def _flat(prefix: str, metrics: Mapping[str, object]) -> Iterator[tuple[str, float | None]]:
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{key}.", value)
        elif value is None or number(value) is not None:
            yield f"{prefix}{key}", number(value)
