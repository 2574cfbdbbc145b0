"""Shockwave's planner: weights, regulariser, rounds, re-planning; a schedule that the core carries out."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.adapting import Row, snapshot_of_adapting

from fairlead.errors import ConfigError
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.plan import Change, Schedule
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.policies.shockwave.options import (
    DEFAULT,
    RELEASED,
    FinishTimeOrigin,
    Share,
    ShockwaveOptions,
    read_options,
    write_options,
)
from fairlead.policies.shockwave.planner import Shockwave, ShockwaveState

SIZES = (10, 20, 40)
TABLE = Throughputs(
    (SlotType("v100"), SlotType("k80")),
    tuple(JobType.parse(f"Net (batch size {b})", s) for s in (1, 2, 4) for b in SIZES),
    np.array([[4.0, 1.0], [3.0, 0.5], [2.0, 0.3]] * 3),
)
EPOCH_S = 100 / 4.0  # of a job of 1,000 samples at its first batch size


def row(epochs: float, progress: float = 0.0, **more: float) -> Row:
    announced = Adaptation(Mode.SCHEDULE, 1_000, epochs, ((0, 10),))
    return Row("Net (batch size 10)", announced, progress, **more)  # type: ignore[arg-type]


def shot(rows: list[Row], devices: int = 2, **types: int) -> Snapshot:
    cluster = Cluster.of({"v100": devices, **types})
    return snapshot_of_adapting(rows, cluster, TABLE, now_s=10_000.0)


def planned(
    snapshot: Snapshot, options: ShockwaveOptions = DEFAULT
) -> tuple[Schedule, ShockwaveState]:
    planner = Shockwave(options)
    answer = planner.solve(snapshot, planner.start())
    _, state = planner.settle(snapshot, answer, planner.start())
    return answer, state


def test_the_schedule_keeps_within_the_devices() -> None:
    answer, _ = planned(shot([row(200, scale=s) for s in (1, 2, 1, 4, 2)], devices=4))
    scale = np.array([1, 2, 1, 4, 2])
    assert answer.slot.shape == (5, DEFAULT.rounds)
    assert ((answer.slot >= 0).T @ scale <= 4).all()
    assert answer.report.gap is not None
    assert answer.report.gap < 1e-6


def test_a_late_job_runs_first() -> None:
    """All alike, but one has waited five times as long as it would run."""
    rows = [row(40, age_s=100.0) for _ in range(6)] + [row(40, age_s=5_000.0)]
    answer, _ = planned(shot(rows, devices=1))
    assert answer.slot[6, 0] >= 0


def test_a_critical_job_runs_in_every_round() -> None:
    """It alone decides when all are done; without the regulariser, short jobs go first."""
    rows = [row(20) for _ in range(40)] + [row(2_000, progress=1_000)]
    answer, _ = planned(shot(rows, devices=2))
    assert (answer.slot[-1] >= 0).all()
    answer, _ = planned(shot(rows, devices=2), replace(DEFAULT, k=0.0))
    assert (answer.slot[-1] >= 0).sum() < DEFAULT.rounds / 2


def test_rests_that_all_work_covers_are_not_pressed() -> None:
    """A long job that can wait leaves the devices to others; the release's penalty never does."""
    rows = [row(60) for _ in range(30)] + [row(300)]
    answer, _ = planned(shot(rows, devices=1))
    pressed, _ = planned(shot(rows, devices=1), replace(DEFAULT, makespan_slack=0.0))
    assert (answer.slot[-1] >= 0).sum() < (pressed.slot[-1] >= 0).sum()


@pytest.mark.parametrize("k", [1.0, 10.0, 1000.0])
def test_the_regulariser_has_no_scale(k: float) -> None:
    """The same jobs with ten times the epochs, in rounds ten times as long."""
    rows = [(20.0, 3.0), (200.0, 50.0), (80.0, 10.0), (45.0, 0.0)]
    short = shot([row(*r) for r in rows], devices=1)
    long = shot([row(10 * a, 10 * b) for a, b in rows], devices=1)
    options = replace(DEFAULT, k=k, urgent_power=DEFAULT.power)
    long = replace(long, round_s=10 * short.round_s)
    one, ten = (planned(s, options)[0] for s in (short, long))
    assert ((one.slot >= 0).sum(axis=1) == (ten.slot >= 0).sum(axis=1)).all()


def test_weights_are_bounded_and_start_at_one() -> None:
    snapshot = shot([row(40, age_s=0.0), row(2, progress=1.5, age_s=9_000.0)], devices=1)
    planner = Shockwave()
    view = planner._remaining_work(snapshot, planner.start())
    target = np.array([1e9, 1_100.0])
    weight = planner._weights(snapshot, view, target, 10_000.0)
    assert weight.tolist() == [1.0, DEFAULT.largest_weight]
    released = Shockwave(replace(RELEASED, largest_weight=float("inf")))
    assert np.isfinite(released._weights(snapshot, view, target, 10_000.0)).all()


def test_the_finish_time_ratio_does_not_fade_as_the_cluster_ages() -> None:
    young, old = (
        replace(shot([row(40, age_s=3_000.0)]), now_s=now_s) for now_s in (3_000.0, 3_000_000.0)
    )
    for lateness, fades in ((FinishTimeOrigin.SUBMISSION, False), (FinishTimeOrigin.START, True)):
        planner = Shockwave(replace(DEFAULT, finish_time_origin=lateness))
        ratios = []
        for snapshot in (young, old):
            view = planner._remaining_work(snapshot, planner.start())
            fair = np.array([snapshot.now_s - 3_000.0 + 1_000.0])
            ratios.append(planner._finish_time_ratio(snapshot, view, fair, snapshot.now_s)[0])
        assert (ratios[0] > 1.01 * ratios[1]) == fades


@pytest.mark.parametrize(
    ("share", "parts"),
    [
        (Share.BY_JOB, [2 / 3] * 3),
        (Share.BY_DEVICE, [2 / 3, 1 / 3, 1 / 6]),
        (Share.BY_DEMAND, [2 / 7] * 3),
    ],
)
def test_shares(share: Share, parts: list[float]) -> None:
    snapshot = shot([row(10, scale=s) for s in (1, 2, 4)])
    assert Shockwave(replace(DEFAULT, share=share))._share(snapshot) == pytest.approx(parts)


def test_when_it_plans_anew() -> None:
    planner = Shockwave()
    _, state = planned(shot([row(40)]))
    state = replace(state, round=3)
    assert not planner.due(0.0, Change.NOTHING, False, state)
    for change in (Change.JOBS, Change.DEVICES, Change.REQUIREMENTS):
        assert planner.due(0.0, change, False, state)
    assert not Shockwave(RELEASED).due(0.0, Change.REQUIREMENTS, False, state)
    assert planner.due(0.0, Change.NOTHING, False, replace(state, round=8))  # every 8 rounds
    assert planner.due(
        0.0, Change.NOTHING, False, replace(state, round=45, first_round=5)
    )  # used up


def test_idle_devices_go_to_the_longest_and_newcomers_wait_for_nobody() -> None:
    snapshot = shot([row(40), row(90), row(60)], devices=2)
    planner = Shockwave()
    _, state = planned(snapshot)
    state = replace(state, slot=np.full_like(state.slot, -1))
    plan, after = planner.plan(snapshot, state)
    assert plan.job_group.tolist() == [1, 2]
    assert after.round == state.round + 1
    plan, _ = planner.plan(snapshot, planner.start())  # nothing planned yet
    assert len(plan.job_group) == 2


def test_what_is_planned_beyond_the_devices_left_does_not_run() -> None:
    snapshot = shot([row(40), row(90)], devices=2)
    _, state = planned(snapshot)
    state = replace(state, slot=np.zeros_like(state.slot))
    fewer = replace(snapshot, capacity=np.array([1.0]))
    plan, _ = Shockwave().plan(fewer, state)
    assert len(plan.job_group) == 1


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(0.5, 400), st.floats(0, 0.99), st.sampled_from([1, 2, 4])),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 6),
    st.integers(0, 6),
)
def test_any_jobs_on_any_types(jobs: list[tuple[float, float, int]], fast: int, slow: int) -> None:
    rows = [row(e, e * p, scale=s, age_s=50.0 * i) for i, (e, p, s) in enumerate(jobs)]
    types = {"k80": slow} if slow else {}
    snapshot = shot(rows, devices=fast, **types)
    answer, state = planned(snapshot)
    scale = snapshot.job_scale
    for column in answer.slot.T:
        used = np.bincount(column[column >= 0], scale[column >= 0], len(snapshot.slots))
        assert (used <= snapshot.capacity).all()
    plan, _ = Shockwave().plan(snapshot, state)
    used = np.bincount(plan.slot, scale[plan.job_group], len(snapshot.slots))
    assert (used <= snapshot.capacity).all()
    waits = np.setdiff1d(np.arange(len(rows)), plan.job_group)
    assert not (scale[waits][:, None] <= (snapshot.capacity - used)[None, :]).any()


def test_options_are_written_and_read() -> None:
    for options in (DEFAULT, RELEASED, replace(DEFAULT, bases=(0.0, 0.5, 1.0), stickiness=0.25)):
        assert read_options(write_options(options)) == options
    named = registry.make("shockwave:power=3,rounds=12", seed=0, profile="default")
    assert isinstance(named, Shockwave)
    assert named.spec == "shockwave:rounds=12,power=3.0"


def test_a_file_of_the_release(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text('{"future_rounds": 10, "k": 10.0, "lambda": 5, "rhomax": 1.0, "gpu_ram": 16}')
    assert read_options(str(path)) == replace(RELEASED, rounds=10, k=10.0, power=5.0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("power = 'much'", "power: must be a number, got 'much'"),
        ("rounds = 0", "rounds: must be from 1 to 100, got 0"),
        ("foo = 1", "'foo' is not an option"),
        ("preset = 'best'", "preset: must be one of default, released, got 'best'"),
        ("rounds = ", "is not valid TOML"),
        ("bases = [0.0, 0.5, 0.4, 1.0]", "bases: must be rising numbers from 0 to 1"),
        ("share = 'mine'", "share: must be one of by_job"),
        ("k = nan", "k: must be a finite number >= 0, got nan"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as problem:
        read_options(str(path))
    assert str(problem.value).startswith(str(path))
    assert says in str(problem.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: cannot read the configuration"):
        read_options("no.toml")


@pytest.mark.parametrize("options", [DEFAULT, RELEASED, replace(DEFAULT, whole_epochs=True)])
def test_jobs_in_their_last_epoch_are_planned(options: ShockwaveOptions) -> None:
    """In whole epochs nothing is left of them."""
    answer, _ = planned(shot([row(8, progress=7.5), row(8, progress=7.9)], devices=1), options)
    assert (answer.slot >= 0).any()


def test_a_job_that_can_run_nowhere_now_is_in_nobodys_way() -> None:
    """One of the types is lost; the long job that needs it does not hide the critical one."""
    rows = [row(20) for _ in range(40)] + [row(2_000, progress=1_000), row(90_000, scale=4)]
    snapshot = shot(rows, devices=2, k80=4)
    lost = replace(snapshot, capacity=np.where(snapshot.capacity == 4, 0.0, 2.0))
    answer, _ = planned(lost)
    assert (answer.slot[-1] < 0).all()
    assert (answer.slot[-2] >= 0).all()


def test_weights_of_owners_count() -> None:
    """Alike in all else, the heavier job gets more rounds; the release takes no notice."""
    snapshot = replace(shot([row(200), row(200)], devices=1), weight=np.array([1.0, 4.0]))
    answer, _ = planned(snapshot)
    light, heavy = (answer.slot >= 0).sum(axis=1)
    assert heavy > light
    assert Shockwave()._share(snapshot) == pytest.approx([0.2, 0.8])
    assert Shockwave(RELEASED)._share(snapshot) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("power=2,power=3", "power is given twice"),
        ("rounds", "expected NAME=VALUE, got 'rounds'"),
        ("bases=0,0.5,1", "numbers of bases stand between slashes"),
        ("rounds=1000", "rounds: must be from 1 to 100, got 1000"),
        ("share=mine", "share: must be one of by_job, by_device, by_demand, got 'mine'"),
    ],
)
def test_bad_options_in_place_are_named(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        read_options(text)


def test_a_preset_in_place() -> None:
    assert read_options("released,rounds=10") == replace(RELEASED, rounds=10)
    assert read_options("preset=released,rounds=10") == replace(RELEASED, rounds=10)
