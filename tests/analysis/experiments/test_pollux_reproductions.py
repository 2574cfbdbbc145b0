"""Pollux's experiments, with applications and workloads that a test makes."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.analysis.experiments.made_up import MadeUpContext, complete, rows_of
from tests.simulator.pollux_reference.measured import write_application, write_workload

from fairlead.analysis.experiments.published import pollux_release
from fairlead.analysis.experiments.reproduce import reproductions


@dataclass
class DataContext(MadeUpContext):
    """Has data of its own."""

    def shared(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture
def context(tmp_path: Path) -> DataContext:
    folder = write_application(tmp_path / "pollux", epochs=12)
    for name in pollux_release.FOLDERS.values():
        (folder / name).mkdir()
        for number in pollux_release.WORKLOADS["small"]:
            write_workload(
                folder / name / f"workload-{number}.csv", "a,0,app,2,32", "b,90,app,4,64"
            )
    return DataContext(complete, folder=tmp_path)


def test_they_are_all_there() -> None:
    found = {name: one for name, one in reproductions().items() if name.startswith("pollux-")}
    assert list(found) == ["pollux-load", "pollux-period"]
    assert all(one.needs_data for one in found.values())


def test_completion_times_stand_beside_those_published(context: DataContext) -> None:
    found = pollux_release.load(context)
    rows = rows_of(found, "Average completion time at load 0.5")
    assert list(rows) == list(pollux_release.NAMES.values())
    published = pollux_release.PUBLISHED["pollux", 0.5]
    assert rows["Pollux"].published == pytest.approx((published[0] + published[4]) / 2)
    assert rows["Sia"].published is None
    fairness = rows_of(found, "Fairness and restarts at load 1.0")
    assert fairness["elastic SRPT: worst rho"].ours is not None
    assert "Tiresias: worst rho" not in fairness
    assert "Tiresias: restarts per run" in fairness


def test_rarer_decisions_take_longer(context: DataContext) -> None:
    rows = rows_of(pollux_release.period(context), "Average completion time at load 1.0")
    jct_s = [row.ours or 0.0 for what, row in rows.items() if what.startswith("Pollux")]
    assert len(jct_s) == len(pollux_release.PERIODS)
    assert jct_s[0] < jct_s[-1]
    assert all(row.published is None for row in rows.values()), "of eight workloads, not of two"


@pytest.mark.parametrize("load", pollux_release.FOLDERS)
def test_means_of_what_was_published(load: float) -> None:
    """As the release states them."""
    means = {
        policy: sum(pollux_release.PUBLISHED[policy, load]) / 8
        for policy in ("tiresias", "optimus", "pollux")
    }
    known = {
        0.5: {"tiresias": 2091.5, "optimus": 2395.4, "pollux": 1534.0},
        1.0: {"tiresias": 4038.2, "optimus": 5681.9, "pollux": 2751.1},
    }
    assert means == pytest.approx(known[load], abs=0.1)
