import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job_type import JobType, RateSource
from fairlead.model.throughputs import Throughputs

parts = st.sampled_from(
    [
        "LM",
        " (batch size ",
        "10",
        "010",
        ")",
        " [only ",
        "a, b",
        "b, a",
        "]",
        " [0a1b2c3d]",
        "\0",
        "7",
    ]
)


@given(st.lists(parts, max_size=9), st.integers(1, 64))
def test_a_name_is_written_as_it_was_read(some: list[str], scale_factor: int) -> None:
    name = "".join(some)
    one = JobType.parse(name, scale_factor)
    assert (one.name, one.scale_factor) == (name, scale_factor)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A3C", JobType("A3C")),
        ("LM (batch size 10)", JobType("LM", 10)),
        ("BERT (batch size 32 x 2048 tokens)", JobType("BERT (batch size 32 x 2048 tokens)")),
        (
            "LM (batch size 10) [only k80, v100]",
            JobType("LM", 10, accelerators=("v100", "k80")),
        ),
        (
            "LM (batch size 10) [0a1b2c3d]",
            JobType("LM", 10, source=RateSource.DECLARED, variant="0a1b2c3d"),
        ),
        ("LM (batch size 10)\0007", JobType("LM", 10, source=RateSource.ESTIMATED, variant="7")),
    ],
)
def test_the_parts_of_a_name(name: str, expected: JobType) -> None:
    assert JobType.parse(name) == expected
    assert hash(JobType.parse(name)) == hash(expected)
    assert JobType.parse(name, 2) != expected


def test_another_batch_size() -> None:
    assert JobType.parse("LM (batch size 10)", 2).with_batch_size(20) == JobType("LM", 20, 2)
    assert JobType.parse("A3C").with_batch_size(20) == JobType("A3C")
    declared = JobType.parse("LM (batch size 10) [0a1b2c3d]", 2)
    assert declared.with_batch_size(20) is declared
    assert declared.measured == JobType("LM", 10, 2)
    assert declared.measured.with_batch_size(20) == JobType("LM", 20, 2)


def test_job_types_are_ordered_immutable_values() -> None:
    kinds = [
        JobType("b"),
        JobType("a", 5),
        JobType("a", None, 2),
        JobType("a", accelerators=("x",)),
    ]
    assert sorted(kinds) == [kinds[3], kinds[2], kinds[1], kinds[0]]
    assert pickle.loads(pickle.dumps(kinds)) == kinds == copy.deepcopy(kinds)
    with pytest.raises(AttributeError, match="immutable: family cannot be set"):
        kinds[0].family = "c"


def test_rates_are_zero_on_accelerators_that_a_job_type_may_not_use() -> None:
    slots = (SlotType("k80"), SlotType("v100"))
    kinds = (JobType("a", accelerators=("v100",)), JobType("b"))
    pair = np.full((2, 2, 2), 0.5)
    table = Throughputs(slots, kinds, np.array([[1.0, 2.0], [3.0, 4.0]]), pair)
    here = table.on(Cluster.of({"k80": 1, "v100": 1}))
    assert here.slots == slots
    assert here.rate.tolist() == [[0.0, 2.0], [3.0, 4.0]]
    assert here.colocated_rate is not None
    assert here.colocated_rate[:, :, 0].tolist() == [[0.0, 0.0], [0.0, 0.5]]
    assert (here.colocated_rate[:, :, 1] == 0.5).all()
