"""The fewest servers, and who moves so that a job gets there."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given
from tests.drawn import examples
from tests.scheduler.placement.places import (
    FEWEST,
    NO_PREVIOUS_ROUND,
    NODES,
    TYPES,
    place_on_servers,
)

from fairlead.model.cluster import Cluster, Node
from fairlead.scheduler.placement.records import PreviousRound
from fairlead.scheduler.placement.servers import are_scattered

TOGETHER, SPREAD = 0, 1


def running(*where: list[int]) -> PreviousRound:
    """A round before, in which job group u ran on the first type on these devices."""
    sizes = [len(devices) for devices in where]
    return PreviousRound(
        np.arange(len(where)),
        np.zeros(len(where), np.int64),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.array([d for devices in where for d in devices], np.int64),
    )


def test_a_small_job_takes_the_fullest_server_that_holds_it() -> None:
    assert place_on_servers([0, 1, 2], [0, 0, 0], [3, 2, 1]).where == {
        0: [0, 1, 2],
        1: [4, 5],
        2: [3],
    }


def test_a_big_job_goes_first_whatever_the_order() -> None:
    assert place_on_servers([0, 1], [0, 0], [1, 4]).where == {0: [4], 1: [0, 1, 2, 3]}


def test_a_job_larger_than_a_server_takes_as_few_as_can_hold_it() -> None:
    placed = place_on_servers([0], [TOGETHER], [6], fallback=0.5)
    assert placed.where == {0: [0, 1, 2, 3, 4, 5]}
    assert placed.slot == {0: TOGETHER}


def test_a_job_moves_so_that_another_is_consolidated_if_that_pays() -> None:
    """Two jobs of one device in different servers leave no server whole."""
    old = running([0], [4])
    for gain, slot, moved in ((11.0, TOGETHER, 1), (10.0, SPREAD, 0)):
        placed = place_on_servers([0, 1, 2], [0, 0, 0], [1, 1, 4], old, fallback=0.5, gain=gain)
        assert placed.slot[2] == slot
        assert list(placed.kept.values()).count(False) - 1 == moved


def test_the_job_that_costs_least_moves() -> None:
    old = running([0, 1], [4])
    placed = place_on_servers([0, 1, 2], [0, 0, 0], [2, 1, 4], old, fallback=0.5, cost=[20, 10, 40])
    assert placed.kept == {0: True, 1: False, 2: False}
    assert placed.where == {0: [0, 1], 1: [2], 2: [4, 5, 6, 7]}


def test_a_job_that_runs_spread_is_consolidated_when_that_pays_its_own_move() -> None:
    old = running([3, 4])
    stays = place_on_servers([0], [TOGETHER], [2], old, fallback=0.5, gain=10.0)
    assert (stays.where, stays.slot, stays.kept) == ({0: [3, 4]}, {0: SPREAD}, {0: True})
    moves = place_on_servers([0], [TOGETHER], [2], old, fallback=0.5, gain=11.0)
    assert (moves.slot, moves.kept) == ({0: TOGETHER}, {0: False})


def test_without_a_spread_rate_the_later_of_the_plan_gives_way() -> None:
    """Three jobs of three and two devices fit by number, not on two servers of four."""
    old = running([0, 1, 2], [4, 5, 6])
    placed = place_on_servers([2, 0, 1], [0, 0, 0], [3, 3, 2], old, fallback=0.0)
    assert placed.slot[2] == TOGETHER
    assert len(placed.where) == 2
    last = place_on_servers([0, 1, 2], [0, 0, 0], [3, 3, 2], old, fallback=0.0)
    assert last.where == {0: [0, 1, 2], 1: [4, 5, 6]}


def test_without_gain_at_stake_nobody_is_turned_away() -> None:
    """A type that has no spread slot: a job runs wherever there is room."""
    placed = place_on_servers([0, 1, 2], [0, 0, 0], [3, 3, 2], running([0, 1, 2], [4, 5, 6]))
    assert placed.where[2] == [3, 7]


def test_a_spread_share_fills_servers_in_part_used() -> None:
    placed = place_on_servers([0, 1, 2], [TOGETHER, TOGETHER, SPREAD], [3, 3, 2], fallback=2.0)
    assert placed.where[2] == [3, 7]
    assert placed.slot == {0: TOGETHER, 1: TOGETHER, 2: SPREAD}


def test_a_spread_share_says_so_when_it_ends_up_on_one_server() -> None:
    placed = place_on_servers([0, 1], [SPREAD, TOGETHER], [2, 4], fallback=2.0)
    assert placed.where == {0: [4, 5], 1: [0, 1, 2, 3]}
    assert placed.slot == {0: TOGETHER, 1: TOGETHER}


@examples(300)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_happens_devices_and_slots_are_true(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = rng.choice([1, 2, 3, 4, 5, 6], 8)
    fallback = rng.choice([0.0, 0.5, 1.2], 8)
    old = NO_PREVIOUS_ROUND
    for _ in range(4):
        usable = rng.random(12) < 0.95
        group: list[int] = []
        slot: list[int] = []
        left = int(usable[:8].sum())
        for u in rng.permutation(8).tolist():
            if scale[u] <= left:
                left -= scale[u]
                group.append(u)
                slot.append(int(rng.random() < 0.3 and fallback[u] > 0))
        placed = place_on_servers(
            group,
            slot,
            scale,
            old,
            usable,
            fallback=fallback[group],
            gain=rng.choice([0.0, 15.0, 1000.0], len(group)),
            cost=rng.choice([0.0, 10.0], len(group)),
        )
        used = [d for mine in placed.where.values() for d in mine]
        assert len(used) == len(set(used))
        assert usable[used].all()
        assert all(len(mine) == scale[u] for u, mine in placed.where.items())
        spread = are_scattered(placed.old.offsets, placed.old.devices, TYPES, NODES, FEWEST)
        assert [bool(s) for s in spread] == placed.old[1].astype(bool).tolist()
        for u, t in zip(group, slot, strict=True):
            if u not in placed.where:
                assert t == TOGETHER
                assert fallback[u] == 0
        if usable.all() and slot and slot[0] == TOGETHER:
            assert group[0] in placed.where, "the first of the plan always runs"
        old = placed.old


def test_how_many_servers_it_takes() -> None:
    nodes = (Node("a", "x", 2), Node("b", "x", 4), Node("c", "x", 4), Node("d", "y", 1))
    fewest = Cluster(nodes).fewest_servers(11)
    assert fewest[0].tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert fewest[1].tolist() == [0] + [1] * 11
    assert Cluster(nodes).scatterable == ("x",)
