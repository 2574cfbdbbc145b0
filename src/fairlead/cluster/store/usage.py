"""The device time that was billed, by day, tenant, user and device type.

An attempt is billed its devices from when it had them (its order, and the handover from whoever had them
before) until its last rank was gone, an attempt that has not ended until now; what a packed pair shares is
divided. Days are of UTC. All numbers are whole milliseconds of device time, so that sums are exact whatever
they are grouped by. The attempts of jobs that have left the store are summed up in the table ``meta``, a row
for each month, in the transaction that removes them.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import date, timedelta
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairlead.cluster.protocol.accounting import MS_PER_HOUR, PERIODS, Grouping, UsageRow, UsageView
from fairlead.cluster.store.database import readable, reader
from fairlead.cluster.store.schema import ATTEMPTS, JOBS, META, SqlTable
from fairlead.cluster.store.transaction import Transaction
from fairlead.cluster.store.verification import check_row

META_PREFIX = "usage."  # of the keys of months, as usage.2026-01
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)


class BilledAttempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of an ``AttemptRow`` that is billed."""

    job: int
    accelerator: str
    devices: tuple[int, ...]
    began_s: float
    ordered: bool = True
    ordered_s: float | None = None
    ended_s: float | None = None
    trained_s: float | None = None
    wait_s: float = -1.0
    no_start: bool = False
    shared_device_s: float = 0.0


class _Owner(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of a ``JobRow`` that says who is billed."""

    id: int
    tenant: str
    user: str


class Cell(NamedTuple):
    """The smallest group."""

    day: int  # since 1970
    tenant: str
    user: str
    type: str


class Used(NamedTuple):
    """The device time and attempts that a cell has used."""

    device_ms: int
    attempts: int  # that began in it


Usage = dict[Cell, Used]


class _ClockMark(msgspec.Struct, frozen=True):
    """The part of the cluster's clock in the store: one moment by it and by the wall clock."""

    now_s: float
    wall_s: float


def read_usage(path: Path, wall_s: float) -> Usage:
    """All that was billed until now, as the last commit left it. path: of ``state.db``; wall_s: now, by the
    wall clock. Raises StoreError."""
    usage: Usage = {}
    with readable(path), closing(reader(path)) as connection:
        connection.execute("BEGIN")  # jobs that leave meanwhile are in one of the tables
        meta = {row[0]: row[1] for row in _rows(connection, path, META)}
        for key, text in meta.items():
            if key.startswith(META_PREFIX):
                usage |= _read_month(text)
        if "clock" not in meta:  # nothing has happened yet
            return usage
        clock = msgspec.json.decode(meta["clock"], type=_ClockMark)
        now_s = clock.now_s + max(wall_s - clock.wall_s, 0.0)
        owner = msgspec.msgpack.Decoder(_Owner)
        owners = {row[0]: owner.decode(row[-2]) for row in _rows(connection, path, JOBS)}
        attempt = msgspec.msgpack.Decoder(BilledAttempt)
        for row in _rows(connection, path, ATTEMPTS):
            job = owners[row[0]]
            billed = attempt.decode(row[-2])
            add_attempt(usage, job.tenant, job.user, billed, now_s, wall_s - now_s)
    return usage


def _rows(connection: sqlite3.Connection, path: Path, table: SqlTable) -> Iterator[Any]:
    for row in connection.execute(table.select):
        check_row(path, table, row)
        yield row


def _add(usage: Usage, cell: Cell, device_ms: int, attempts: int) -> None:
    known = usage.get(cell)
    if known is not None:
        device_ms, attempts = device_ms + known.device_ms, attempts + known.attempts
    usage[cell] = Used(device_ms, attempts)


def add_attempt(
    usage: Usage, tenant: str, user: str, attempt: BilledAttempt, now_s: float, offset_s: float
) -> None:
    """Add what an attempt is billed: nothing before it is known to have its devices. offset_s: the wall clock
    less the cluster's time."""
    if not attempt.ordered or attempt.no_start:
        return
    has_devices = attempt.wait_s >= 0 or attempt.trained_s is not None
    ordered_s = attempt.began_s if attempt.ordered_s is None else attempt.ordered_s
    end_s = now_s if attempt.ended_s is None else attempt.ended_s
    offset = _ms(offset_s)  # by itself: what an attempt is billed does not change with it
    begin_s = ordered_s + max(attempt.wait_s, 0.0) if has_devices else end_s
    begin = _ms(min(begin_s, end_s)) + offset
    end = max(_ms(end_s) + offset, begin)
    devices, shared = len(attempt.devices), _ms(attempt.shared_device_s)
    first = True
    for day, used in _less_shared(list(_by_day(begin, end, devices)), shared):
        _add(usage, Cell(day, tenant, user, attempt.accelerator), used, int(first))
        first = False


def _by_day(begin: int, end: int, devices: int) -> Iterator[tuple[int, int]]:
    """(day, device-milliseconds) of some devices from one time to another; at least one."""
    while True:
        day = begin // _DAY_MS
        until = min((day + 1) * _DAY_MS, end)
        yield day, (until - begin) * devices
        if until >= end:
            return
        begin = until


def _less_shared(days: list[tuple[int, int]], shared: int) -> Iterator[tuple[int, int]]:
    """Take off what the other jobs of pairs have had, in proportion; the rest of the division is the last
    day's."""
    in_all = sum(ms for _, ms in days)
    shared = min(shared, in_all)
    left = shared
    for number, (day, ms) in enumerate(days):
        part = left if number == len(days) - 1 else shared * ms // in_all
        left -= part
        yield day, ms - part


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def keep_usage(t: Transaction, kept: Mapping[str, str], usage: Usage) -> None:
    """Add what the attempts of jobs that leave were billed to what is kept of earlier ones. kept: the rows of
    the months, as they are before the transaction."""
    for key, cells in groupby(sorted(usage), key=_month_key):
        month = _read_month(kept.get(key, "[]"))
        for cell in cells:
            _add(month, cell, *usage[cell])
        rows = [(*cell, *used) for cell, used in sorted(month.items())]
        t.set_meta(key, msgspec.json.encode(rows).decode())


def _month_key(cell: Cell) -> str:
    return META_PREFIX + _date(cell.day).strftime("%Y-%m")


def _read_month(text: str) -> Usage:
    rows = msgspec.json.decode(text, type=list[tuple[int, str, str, str, int, int]])
    return {Cell(*row[:4]): Used(*row[4:]) for row in rows}


def _date(day: int) -> date:
    return _EPOCH + timedelta(days=day)


def usage_view(
    usage: Mapping[Cell, Used],
    by: tuple[Grouping, ...],
    prices: Mapping[str, float],
    *,
    since: date | None = None,
    until: date | None = None,
    tenant: str | None = None,
) -> UsageView:
    """The usage by groups. since, until: the first day, and the one after the last; tenant: of this one
    alone."""
    rates = {name: Fraction(str(price)) * 1_000_000 / MS_PER_HOUR for name, price in prices.items()}
    groups: dict[tuple[str, ...], list[tuple[Cell, Used]]] = {}
    chosen = [
        (cell, used)
        for cell, used in usage.items()
        if (since is None or _date(cell.day) >= since)
        and (until is None or _date(cell.day) < until)
        and tenant in (None, cell.tenant)
    ]
    for cell, used in chosen:
        groups.setdefault(_group(cell, by), []).append((cell, used))
    return UsageView(
        by=by,
        since="" if since is None else since.isoformat(),
        until="" if until is None else until.isoformat(),
        rows=tuple(_row(group, cells, rates) for group, cells in sorted(groups.items())),
        total=_row(("", "", "", ""), chosen, rates),
        prices=dict(prices),
        unpriced=tuple(
            sorted({cell.type for cell, used in chosen if used.device_ms} - set(prices))
        ),
    )


def _group(cell: Cell, by: tuple[Grouping, ...]) -> tuple[str, ...]:
    """Period, tenant, user and type, in the order in which rows are shown."""
    day = _date(cell.day)
    if "week" in by:
        day -= timedelta(days=day.weekday())
    elif "month" in by:
        day = day.replace(day=1)
    period = day.isoformat() if any(name in PERIODS for name in by) else ""
    return (
        period,
        cell.tenant if "tenant" in by else "",
        cell.user if "user" in by else "",
        cell.type if "type" in by else "",
    )


def _row(
    group: tuple[str, ...], cells: Iterable[tuple[Cell, Used]], rates: Mapping[str, Fraction]
) -> UsageRow:
    """rates: millionths of a dollar per device-millisecond, by type; halves are rounded up."""
    period, tenant, user, type_ = group
    device_ms = attempts = micros = 0
    priced = False
    for cell, part in cells:
        device_ms, attempts = device_ms + part.device_ms, attempts + part.attempts
        if (price := rates.get(cell.type)) is not None:
            micros += (2 * part.device_ms * price.numerator + price.denominator) // (
                2 * price.denominator
            )
            priced = True
    return UsageRow(
        tenant=tenant,
        user=user,
        type=type_,
        period=period,
        device_ms=device_ms,
        device_hours=device_ms / MS_PER_HOUR,
        cost=micros / 1_000_000 if priced else None,
        cost_micros=micros,
        attempts=attempts,
    )
