from pathlib import Path

import pytest

from fairlead.cluster.protocol.api_models import Sample
from fairlead.cluster.store.samples import Samples
from fairlead.errors import StoreError


def sample(time_s: float) -> Sample:
    return Sample(
        time_s=time_s,
        allocated={"v100": 1},
        capacity={"v100": 2},
        running=1,
        waiting=0,
        share={"a": 0.5},
    )


def test_samples_come_back_in_order_from_a_time_on(tmp_path: Path) -> None:
    with Samples(tmp_path / "samples.db") as samples:
        for time_s in range(5):
            samples.add(sample(time_s))
        assert samples.since(3) == [sample(3), sample(4)]
    with Samples(tmp_path / "samples.db") as samples:
        assert len(samples.since(0)) == 5


def test_old_samples_are_thinned_and_the_oldest_are_gone(tmp_path: Path) -> None:
    with Samples(tmp_path / "samples.db", raw=20, every=10, rows=30) as samples:
        for number in range(1, 501):
            samples.add(sample(number))
        kept = [int(one.time_s) for one in samples.since(0)]
    assert kept[-20:] == list(range(481, 501))
    assert kept[:-20] == [number for number in range(381, 481) if number % 10 == 0]


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    path.write_bytes(b"nonsense" * 1000)
    with Samples(path) as samples:
        samples.add(sample(1))
        assert samples.since(0) == [sample(1)]
    assert (tmp_path / "samples.db.damaged-1").read_bytes() == b"nonsense" * 1000


def test_a_closed_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    samples = Samples(tmp_path / "samples.db")
    with pytest.raises(StoreError, match=r"samples\.db: is closed"):
        samples.add(sample(1))
