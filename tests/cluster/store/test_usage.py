"""Accounting against figures worked out from the attempts by other means."""

import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from fairlead.cluster.protocol.accounting import GROUPINGS, Grouping, UsageRow, check_groupings
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.usage import read_usage, usage_view
from fairlead.errors import ConfigError

ORIGIN = datetime(2026, 1, 30, 22, 17, 3, tzinfo=UTC).timestamp()  # when the cluster was started
SPEC = JobSpec(command=("true",), total_steps=10, rates={"v100": 1.0})
PRICES = {"v100": 2.48, "k80": 0.135}
TYPES = ("v100", "k80", "h100")


def job(id_: int, tenant: str, user: str) -> JobRow:
    return JobRow(
        id=id_, name="", tenant=tenant, user=user, spec=SPEC, submitted_s=0.0, total_steps=10.0
    )


def attempt(
    job_: int, number: int, type_: str, devices: int, began_s: float, **more: object
) -> AttemptRow:
    more.setdefault("trained_s", began_s)
    return AttemptRow(
        job=job_, attempt=number, node="n", accelerator=type_, devices=tuple(range(devices)),
        began_s=began_s, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def fill(directory: Path, jobs: list[JobRow], attempts: list[AttemptRow], now_s: float) -> Path:
    with Store(directory) as store, store.transaction() as t:
        t.put_jobs(jobs)
        t.put_attempts(attempts)
        t.set_meta(
            "clock", f'{{"now_s": {now_s}, "boot": "", "boot_s": 0.0, "wall_s": {ORIGIN + now_s}}}'
        )
    return directory / "state.db"


def a_month(rng: random.Random) -> tuple[list[JobRow], list[AttemptRow], float]:
    """Jobs of three tenants over a month, with times in whole milliseconds."""
    now_s = 35 * 86400.0
    jobs, attempts = [], []
    for id_ in range(120):
        tenant = rng.choice(("apes", "bees", "cats"))
        jobs.append(job(id_, tenant, f"{tenant[0]}{rng.randrange(3)}"))
        at = rng.randrange(30 * 86_400_000) / 1000
        for number in range(1, rng.randrange(2, 5)):
            lasted = rng.choice((rng.randrange(5_000), rng.randrange(4 * 86_400_000))) / 1000
            end: float | None = min(at + lasted, now_s)
            more: dict[str, object] = {"ended_s": end}
            if rng.random() < 0.3:
                more["ordered_s"] = at
            if rng.random() < 0.5:
                more["wait_s"] = rng.randrange(10_000) / 1000
            elif rng.random() < 0.5:
                more["trained_s"] = None
            if rng.random() < 0.1:
                more = {"ordered": False, "ended_s": end}
            elif number == 3 and rng.random() < 0.5:
                more.pop("ended_s")
            attempts.append(
                attempt(id_, number, rng.choice(TYPES), rng.randrange(1, 9), at, **more)
            )
            at = (end or at) + 1.0
    return jobs, attempts, now_s


def expected_hours(
    jobs: list[JobRow], attempts: list[AttemptRow], now_s: float, by: tuple[Grouping, ...]
) -> dict[tuple[str, ...], Fraction]:
    """Device-hours by group, hour of the clock by hour of the clock."""
    owner = {row.id: row for row in jobs}
    found: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    start = datetime.fromtimestamp(ORIGIN, UTC)
    for one in attempts:
        if not one.ordered or (one.wait_s < 0 and one.trained_s is None):
            continue
        end_s = now_s if one.ended_s is None else one.ended_s
        begin = start + timedelta(
            milliseconds=round(1000 * min(one.since_s + max(one.wait_s, 0.0), end_s))
        )
        end = start + timedelta(milliseconds=round(1000 * end_s))
        while begin < end:
            until = min(
                (begin + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0), end
            )
            day = begin.date()
            names = {
                "tenant": owner[one.job].tenant,
                "user": owner[one.job].user,
                "type": one.accelerator,
                "day": day.isoformat(),
                "week": date.fromisocalendar(*day.isocalendar()[:2], 1).isoformat(),
                "month": f"{day:%Y-%m}-01",
            }
            ms = (until - begin) // timedelta(milliseconds=1)
            found[tuple(names[name] for name in by)] += Fraction(ms * len(one.devices), 3_600_000)
            begin = until
    return found


def key(row: UsageRow, by: tuple[Grouping, ...]) -> tuple[str, ...]:
    return tuple(
        getattr(row, "period" if name in ("day", "week", "month") else name) for name in by
    )


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_what_the_attempts_say_and_add_up_exactly(tmp_path: Path, seed: int) -> None:
    jobs, attempts, now_s = a_month(random.Random(seed))
    path = fill(tmp_path / "state", jobs, attempts, now_s)
    usage = read_usage(path, ORIGIN + now_s)
    whole = usage_view(usage, (), PRICES).total
    assert whole.attempts == sum(one.ordered for one in attempts)
    groups: tuple[tuple[Grouping, ...], ...] = (
        (), ("tenant",), ("user",), ("type",), ("day",), ("week",), ("month",),
        ("tenant", "user", "type", "day"), ("tenant", "type", "month"), ("user", "week"),
    )  # fmt: skip
    for by in groups:
        view = usage_view(usage, by, PRICES)
        expected = expected_hours(jobs, attempts, now_s, by)
        got = {key(row, by): Fraction(row.device_ms, 3_600_000) for row in view.rows}
        assert {name: hours for name, hours in got.items() if hours} == expected
        assert view.total == whole
        for field in ("device_ms", "cost_micros", "attempts"):
            assert sum(getattr(row, field) for row in view.rows) == getattr(whole, field)
        assert view.unpriced == ("h100",)


def test_costs_are_prices_times_hours(tmp_path: Path) -> None:
    path = fill(
        tmp_path / "state",
        [job(0, "apes", "ann")],
        [
            attempt(0, 1, "v100", 2, 0.0, ended_s=1800.0),
            attempt(0, 2, "h100", 4, 1800.0, ended_s=5400.0),
        ],
        6000.0,
    )
    by_type = usage_view(read_usage(path, ORIGIN + 6000.0), ("type",), PRICES)
    assert [(row.type, row.device_hours, row.cost) for row in by_type.rows] == [
        ("h100", 4.0, None),
        ("v100", 1.0, 2.48),
    ]
    assert by_type.total.cost == 2.48


def test_a_running_attempt_is_counted_until_now(tmp_path: Path) -> None:
    running = attempt(0, 1, "v100", 2, 100.0, ordered_s=150.0, wait_s=50.0)
    path = fill(tmp_path / "state", [job(0, "apes", "ann")], [running], 200.0)
    assert usage_view(read_usage(path, ORIGIN + 300.0), (), {}).total.device_ms == 200_000
    assert usage_view(read_usage(path, ORIGIN + 301.0), (), {}).total.device_ms == 202_000


def test_what_a_pair_shares_is_divided(tmp_path: Path) -> None:
    midnight_s = 86400.0 - ORIGIN % 86400.0
    shared = attempt(
        0, 1, "v100", 1, midnight_s - 100.0, ended_s=midnight_s + 200.0, shared_device_s=60.0
    )
    path = fill(tmp_path / "state", [job(0, "apes", "ann")], [shared], midnight_s + 500.0)
    view = usage_view(read_usage(path, ORIGIN + midnight_s + 500.0), ("day",), {})
    assert [row.device_ms for row in view.rows] == [80_000, 160_000]


def test_days_are_chosen_and_other_tenants_left_out(tmp_path: Path) -> None:
    day_s = 86400.0
    path = fill(
        tmp_path / "state",
        [job(0, "apes", "ann"), job(1, "bees", "bob")],
        [
            attempt(0, 1, "v100", 1, 0.0, ended_s=3 * day_s),
            attempt(1, 1, "v100", 1, 0.0, ended_s=3 * day_s),
        ],
        4 * day_s,
    )
    usage = read_usage(path, ORIGIN + 4 * day_s)
    view = usage_view(
        usage, ("tenant", "day"), {}, since=date(2026, 1, 31), until=date(2026, 2, 2), tenant="bees"
    )
    assert [(row.tenant, row.period, row.device_hours) for row in view.rows] == [
        ("bees", "2026-01-31", 24.0),
        ("bees", "2026-02-01", 24.0),
    ]
    assert (view.since, view.until) == ("2026-01-31", "2026-02-02")


@pytest.mark.parametrize(
    ("names", "says"),
    [(["day", "week"], "one period"), (["x"], "expected some of"), (["type", "type"], "twice")],
)
def test_groupings_that_make_no_sense_are_refused(names: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_groupings(names, "--by")


def test_groupings_come_in_one_order() -> None:
    assert check_groupings(["month", "tenant"], "by") == ("tenant", "month")
    assert set(check_groupings(["user", "type", "tenant", "day"], "by")) < set(GROUPINGS)
