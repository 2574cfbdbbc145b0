"""Rules of placement from outside, and the built-in ones by name."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.small import TABLE, job

import fairlead
from fairlead import PlacementRequest
from fairlead.errors import AllocationError, ConfigError
from fairlead.model.cluster import Cluster
from fairlead.scheduler.journal import replay

CLUSTER = Cluster.of({"fast": 4, "slow": 2}, 2, {"fast": 3.0, "slow": 1.0})
JOBS = [job(n, 60.0 * n, 9e3, 1 + n % 2) for n in range(6)]


EXAMPLE = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "place_last.py"))
LastFree = EXAMPLE["LastFree"]


def simulate(placement: object, out: Path | None = None) -> fairlead.Result:
    return fairlead.simulate(
        JOBS,
        CLUSTER,
        "las_aware",
        throughputs=TABLE,
        out=out,
        placement=placement,  # type: ignore[arg-type]
    )


def test_a_rule_of_ones_own_gives_the_devices() -> None:
    got = simulate(LastFree())
    assert got.metrics["n_completed"] == len(JOBS)
    assert got.config["placement"] == "last_free"
    plain = simulate(None)
    assert got.metrics["restarts"] == plain.metrics["restarts"], "held() says who can stay"
    assert not got.placement_intervals.equals(plain.placement_intervals), "on other devices"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    EXAMPLE["main"]()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "fewest_servers",
        "last_free",
    ]


def test_the_rule_of_the_profile_by_its_name_is_the_default() -> None:
    plain, named = simulate(None), simulate("fewest_servers")
    assert plain.jobs.equals(named.jobs)
    assert plain.placement_intervals.equals(named.placement_intervals)
    assert "placement" not in plain.config


def test_a_journal_names_the_rule(tmp_path: Path) -> None:
    simulate("by_device_id", tmp_path / "named")
    assert replay(tmp_path / "named" / "journal")[0] > 10
    simulate(LastFree(), tmp_path / "own")
    with pytest.raises(
        ConfigError, match=r"'last_free': no such entry point in the group fairlead\.pl"
    ):
        replay(tmp_path / "own" / "journal")


def test_names_and_objects_that_are_no_rules_are_refused() -> None:
    with pytest.raises(ConfigError, match="'nothing': no such entry point in the group"):
        simulate("nothing")
    with pytest.raises(ConfigError, match="placement object: has no method 'place'"):
        simulate(object())


def _all_on(devices: list[int]) -> Callable[[PlacementRequest], object]:
    return lambda asked: asked.placed({0: np.array(devices[: asked.needs()[0]], np.int64)})


def _twice(asked: PlacementRequest) -> object:
    asked.needs()
    return asked.placed({row: np.array([0] * n) for row, n in enumerate(asked.needs().tolist())})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: None, "expected what PlacementRequest.placed returns, got NoneType"),
        (_all_on([]), "row 0 needs 1 devices, got 0"),
        (_all_on([99, 98]), "device 99 is not there, or does not work"),
        (_all_on([5, 4]), "is not of the accelerator type that was planned"),
        (_twice, "a device is given to two job groups"),
        (lambda asked: asked.placed({77: np.array([0])}), "rows must be some of those asked for"),
    ],
)
def test_devices_that_cannot_be_given_are_refused(
    answer: Callable[[PlacementRequest], object], said: str
) -> None:
    class Wrong:
        name = "wrong"

        def place(self, request: PlacementRequest) -> object:
            return answer(request)

    with pytest.raises(AllocationError, match=f"placement 'wrong': .*{said}"):
        simulate(Wrong())
