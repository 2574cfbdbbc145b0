"""What fits in number fits in place."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ConfigError
from fairlead.simulator.pollux_reference.policies import Nodes
from fairlead.simulator.pollux_reference.whole_nodes import device_counts, place_on_whole_nodes


def test_powers_of_two_and_whole_nodes() -> None:
    assert device_counts([4] * 4).tolist() == [1, 2, 4, 8, 12, 16]
    assert device_counts([8]).tolist() == [1, 2, 4, 8]
    assert device_counts([1, 1, 1]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("sizes", [[3, 3], [4, 8], [6]])
def test_other_nodes_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ConfigError, match="--devices-per-server: this policy needs nodes of 1, 2"):
        device_counts(sizes)


def some_counts(rng: np.random.Generator, sizes: list[int]) -> dict[str, int]:
    """Numbers of devices of jobs that fill a part of the cluster."""
    allowed, left, found = device_counts(sizes), sum(sizes), dict[str, int]()
    for k in rng.permutation(12)[: rng.integers(1, 13)]:
        fitting = allowed[allowed <= left]
        if not len(fitting):
            break
        found[f"j{k}"] = int(rng.choice(fitting))
        left -= found[f"j{k}"]
    return found


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 6), st.integers(0, 1 << 32), st.integers(1, 8))
def test_round_after_round_all_have_a_place(
    per_node: int, nodes: int, seed: int, rounds: int
) -> None:
    sizes = [per_node] * nodes
    rng, before = np.random.default_rng(seed), dict[str, Nodes]()
    for _ in range(rounds):
        counts = some_counts(rng, sizes)
        found = place_on_whole_nodes(counts, before, sizes)
        assert {name: len(theirs) for name, theirs in found.items()} == counts
        used = Counter(node for theirs in found.values() for node in theirs)
        assert all(used[node] <= per_node for node in used)
        for name, theirs in found.items():
            if counts[name] >= per_node:
                assert all(used[node] == theirs.count(node) == per_node for node in theirs)
            else:
                assert len(set(theirs)) == 1
        if counts == {name: len(theirs) for name, theirs in before.items()}:
            assert found == before
        before = found


def test_the_emptiest_node_is_cleared_for_whom_no_other_has_room() -> None:
    before = {"a": (0,), "b": (1, 1), "c": (2, 2), "d": (0, 0)}
    found = place_on_whole_nodes({"a": 1, "b": 2, "c": 2, "e": 4}, before, [4, 4, 4])
    assert found["e"] == (0,) * 4
    assert (found["b"], found["c"]) == ((1, 1), (2, 2))
    assert found["a"] in ((1,), (2,))
