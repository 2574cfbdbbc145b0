"""Accounting: device time, and what it costs, by tenant, user, device type and period."""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from fairlead.errors import ConfigError

Grouping = Literal["tenant", "user", "type", "day", "week", "month"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
PERIODS = ("day", "week", "month")
MS_PER_HOUR = 3_600_000


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one group. Numbers are whole, so that groups add up to the total exactly."""

    tenant: str = ""  # this and the next three: "" = it is not grouped by that
    user: str = ""
    type: str = ""  # of devices
    period: str = ""  # its first day: 2026-01-31
    device_ms: int  # device-milliseconds
    device_hours: float
    cost: float | None  # $; of device time whose type has a price, None = none of it has
    cost_micros: int  # that in millionths of a dollar, rounded for each day, user and type
    attempts: int  # that began in it


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """Device time by groups, and all together."""

    by: tuple[Grouping, ...]
    since: str  # first day, "" = from the beginning
    until: str  # the day after the last one, "" = until now
    rows: tuple[UsageRow, ...]
    total: UsageRow
    prices: dict[str, float]  # $ per device-hour, by type
    unpriced: tuple[str, ...]  # types with device time and without a price


def check_groupings(names: Sequence[str], what: str) -> tuple[Grouping, ...]:
    """The names as groupings. Raises ConfigError, for two periods too."""
    for name in names:
        if name not in GROUPINGS:
            known = ", ".join(GROUPINGS)
            raise ConfigError(f"{what}: expected some of {known}, got {name[:40]!r}")
        if names.count(name) > 1:
            raise ConfigError(f"{what}: {name!r} is given twice")
    if len(periods := [name for name in names if name in PERIODS]) > 1:
        raise ConfigError(f"{what}: expected one period, got {' and '.join(periods)}")
    return tuple(one for one in GROUPINGS if one in names)
