"""Arrays in the journal: whatever way they are encoded, the bytes are those of msgpack's own encoder."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.model.commands import Command, EndJobs, StartRound
from fairlead.model.events import Event, RoundEnded
from fairlead.model.job import Arrival, Job, JobId
from fairlead.scheduler.array_encoding import pack, pack_ends, pack_report, pack_start, unpack
from fairlead.scheduler.journal import decode, encode, encode_any

SIZES = (0, 1, 2, 4, 5, 9, 13, 57, 60, 61, 120, 9000, 20000)

KEYS = np.array([0xA0] * 5, np.uint8)  # empty ones


def values(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    if kind == "b":
        return rng.random(shape) < 0.5
    most = rng.choice([3, 2**31 - 1, 2**40])
    dense = rng.integers(-most, most, shape)
    some = np.where(rng.random(shape) < rng.choice([0.05, 0.5, 1.0]), dense, 0)
    return some if kind == "i" else np.where(rng.random(shape) < 0.1, -0.0, some * 0.37)


def report(rng: np.random.Generator, n: int, width: int) -> RoundEnded:
    return RoundEnded(
        time_s=float(rng.random()),
        round=int(rng.integers(0, 2**20)),
        steps=values(rng, (n, width), "f"),
        finish_s=values(rng, (n,), "f"),
        outcome=values(rng, (n, width), "i"),
        restart_s=values(rng, (n,), "f"),
    )


def start(rng: np.random.Generator, n: int, width: int) -> StartRound:
    return StartRound(
        time_s=float(rng.random()),
        round=int(rng.integers(0, 2**20)),
        length_s=360.0,
        job_groups=values(rng, (n, width), "i"),
        slot=values(rng, (n,), "i"),
        devices=values(rng, (2 * n,), "i"),
        offsets=values(rng, (n + 1,), "i"),
        kept=values(rng, (n,), "b"),
        active=int(rng.integers(0, 300)),
    )


def ends(rng: np.random.Generator, n: int) -> EndJobs:
    return EndJobs(
        float(rng.random()), values(rng, (n,), "i"), values(rng, (n,), "i"), values(rng, (n,), "f")
    )


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("n", SIZES)
def test_rounds_have_the_bytes_of_the_general_encoder(n: int, width: int) -> None:
    rng = np.random.default_rng([n, width])
    for _ in range(8):
        for record in (report(rng, n, width), start(rng, n, width), ends(rng, n)):
            assert encode(record) == encode_any(record)


class TakesShortWay:
    """An observer: have all rounds been encoded array by array, without the general encoder? It copies what
    it gets: its arrays are read-only, and those of the journal are not."""

    def __init__(self) -> None:
        self.short: list[bool] = []

    def event(self, event: Event) -> None:
        if isinstance(event, RoundEnded):
            self.short.append(pack_report(deepcopy(event), KEYS) is not None)

    def command(self, command: Command) -> None:
        if isinstance(command, StartRound):
            self.short.append(pack_start(deepcopy(command), KEYS) is not None)
        if isinstance(command, EndJobs):
            self.short.append(pack_ends(deepcopy(command), KEYS) is not None)


@pytest.mark.parametrize("profile", ["default", "gavel"])
def test_rounds_of_simulations_take_the_short_way(profile: str) -> None:
    seen = TakesShortWay()
    jobs = [Arrival(0.0, Job(JobId(i), "ResNet-18 (batch size 32)", 1, 1e5)) for i in range(3)]
    simulate(jobs, "v100=2", "las", profile=profile, observers=[seen])
    assert len(seen.short) > 3
    assert all(seen.short)


def test_arrays_of_another_kind_are_encoded_too() -> None:
    rng = np.random.default_rng(1)
    event = report(rng, 6, 2)
    strange = RoundEnded(
        event.time_s,
        3,
        np.asfortranarray(event.steps),
        event.finish_s[::2],
        event.outcome,
        np.ones(3),
    )
    assert encode(strange) == encode_any(strange)
    assert np.array_equal(decode(encode(strange)).finish_s, event.finish_s[::2])  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["f", "i", "b"])
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 5), (200, 1), (2, 3, 4)])
def test_arrays_come_back(kind: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        array = values(rng, shape, kind)
        found = unpack(pack(array))
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
