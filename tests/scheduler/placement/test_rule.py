"""Rules of placement from outside, and the built-in ones by name."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small import TABLE, job

import fairlead
from fairlead import Placement, PlacementRequest
from fairlead.errors import AllocationError, ConfigError
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.journal import replay
from fairlead.scheduler.placement.records import (
    MoveTradeoffs,
    PlannedGroups,
    PreviousRound,
    Topology,
)
from fairlead.scheduler.placement.rule import FewestServers

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
    assert got.metrics["restarts"] == plain.metrics["restarts"], (
        "previous_devices() says who can stay"
    )
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


class Answers:
    """A rule that answers as it is told."""

    name = "mine"

    def __init__(self, answer: Callable[[PlacementRequest], Any]) -> None:
        self.answer = answer

    def place(self, request: PlacementRequest) -> Any:
        return self.answer(request)


def _all_on(devices: list[int]) -> Callable[[PlacementRequest], object]:
    return lambda asked: asked.placement(
        {0: np.array(devices[: asked.device_counts()[0]], np.int64)}
    )


def _twice(asked: PlacementRequest) -> object:
    return asked.placement(
        {row: np.array([0] * n) for row, n in enumerate(asked.device_counts().tolist())}
    )


def _changed(**fields: Callable[[Any], Any]) -> Callable[[PlacementRequest], Any]:
    """The answer of the example, with fields that are made otherwise."""

    def answer(asked: PlacementRequest) -> Any:
        made = LastFree().place(asked)
        return made._replace(**{name: make(getattr(made, name)) for name, make in fields.items()})

    return answer


def _given(devices: Any) -> Callable[[PlacementRequest], Any]:
    return lambda asked: asked.placement(devices)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: None, "expected what PlacementRequest.placement returns, got None"),
        (lambda _: (None,) * 5, "order must be whole numbers in one dimension, got None"),
        (_all_on([]), "row 0 needs 1 devices, got 0"),
        (_all_on([99, 98]), "device 99 is not there, or does not work"),
        (_all_on([5, 4]), "is not of the accelerator type that was planned"),
        (_twice, "a device is given to two job groups"),
        (_given({77: np.array([0])}), "rows must be some of those asked for"),
        (_given({0: None}), "devices of row 0 must be whole numbers in one dimension, got None"),
        (_given({0: [0.5]}), "devices of row 0 must be whole numbers in one dimension, got [0.5]"),
        (_given({0: [[0]]}), "devices of row 0 must be whole numbers in one dimension, got [[0]]"),
        (_given({"a": "b"}), "rows must be whole numbers in one dimension, got ['a']"),
        (_given([1]), "placement(): expected a mapping from rows to their devices, got [1]"),
        (_changed(kept=np.ones_like), "kept of row 0 must be False with the devices that it gets"),
        (_changed(kept=lambda a: a[:0]), "kept must have shape (1,), got array([], dtype=bool)"),
        (_changed(kept=lambda _: None), "kept must have shape (1,), got None"),
        (_changed(slot=lambda a: 1 - a), "slot of row 0 must be 0 with the devices that it gets"),
        (_changed(slot=lambda a: a + 77), "slot of row 0 must be 0 with the devices that it gets"),
        (
            _changed(offsets=lambda a: a[:1]),
            "offsets must be 2 numbers from 0 to 1, got array([0])",
        ),
        (_changed(offsets=lambda a: a + 0.5), "offsets must be whole numbers in one dimension"),
        (_changed(order=lambda a: a - 1), "rows must be some of those asked for, each once"),
    ],
)
def test_devices_that_cannot_be_given_are_refused(
    answer: Callable[[PlacementRequest], object], said: str
) -> None:
    with pytest.raises(AllocationError) as problem:
        simulate(Answers(answer))
    assert str(problem.value).startswith("placement 'mine' at ")
    assert said in str(problem.value)


def test_what_a_rule_raises_names_it_the_time_and_the_line() -> None:
    said = r"^placement 'mine' at 0 s: ZeroDivisionError: .* \(.*test_rule\.py:\d+\)$"
    with pytest.raises(fairlead.SolveError, match=said):
        simulate(Answers(lambda _: 1 / 0))


def _arrays(part: str, record: Any) -> list[tuple[str, str]]:
    return [(part, name) for name in record._fields]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *_arrays("plan", PlannedGroups),
        *_arrays("before", PreviousRound),
        *_arrays("topology", Topology),
        *_arrays("tradeoffs", MoveTradeoffs),
    ],
)
def test_a_rule_cannot_write_to_what_it_is_shown(part: str, name: str) -> None:
    def write(asked: PlacementRequest) -> Any:
        getattr(getattr(asked, part), name)[...] = 0

    said = r"^placement 'mine' at 0 s: ValueError: .* read-only \(.*test_rule\.py:\d+\)$"
    with pytest.raises(fairlead.SolveError, match=said):
        simulate(Answers(write))


def test_what_a_rule_keeps_of_its_answer_is_not_what_runs() -> None:
    """Arrays of an answer are its own; the scheduler goes on with copies."""
    kept: list[Placement] = []

    def answer(asked: PlacementRequest) -> Placement:
        for old in kept:
            old.devices[:] = 0
            old.slot[:] = 1
        kept.append(LastFree().place(asked))
        return kept[-1]

    plain, odd = simulate(LastFree()), simulate(Answers(answer))
    assert plain.jobs.equals(odd.jobs)
    assert plain.placement_intervals.equals(odd.placement_intervals)


@pytest.mark.parametrize("policy", ["las_aware", "fifo_aware"])
def test_the_rule_of_the_default_profile_passes_as_one_from_outside(policy: str) -> None:
    """It says of rows, slots and who stays what follows from the devices, also where locality matters."""

    def answer(asked: PlacementRequest) -> Any:
        parts = (asked.plan, asked.before, asked.topology, asked.tradeoffs)
        own: list[Any] = [type(part)(*map(np.copy, part)) for part in parts]  # type: ignore[arg-type]
        return FewestServers().place(PlacementRequest(*own))

    spread = [10.0, 9.0], [18.0, 12.0], [32.0, 8.0]
    slots = (SlotType("fast"), SlotType("fast", Locality.SCATTERED))
    table = Throughputs(slots, TABLE.job_types, np.array(spread))
    arrivals = [job(n, 300.0 * n, 9e4, (1, 2, 4, 1, 2)[n % 5]) for n in range(15)]
    cluster = Cluster.of({"fast": 8}, 4)
    results = [
        fairlead.simulate(arrivals, cluster, policy, throughputs=table, placement=rule)
        for rule in (None, Answers(answer))
    ]
    assert results[0].metrics["restarts"] > 0
    assert results[0].jobs.equals(results[1].jobs)
    assert results[0].placement_intervals.equals(results[1].placement_intervals)
