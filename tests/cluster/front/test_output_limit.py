"""The output that is kept of a tenant's jobs has a bound."""

from pathlib import Path

import pytest

from fairlead.cluster.front.output_limit import OutputLimit
from fairlead.cluster.protocol.messages import LogChunk
from fairlead.cluster.store.log_store import TAIL, LogStore

TENANTS = {1: "eve", 2: "eve", 3: "ann", 4: "eve", 5: "eve"}


class Output:
    """Jobs that print, of which job 1 has not ended."""

    def __init__(self, folder: Path, most: int) -> None:
        self.store = LogStore(folder)
        self.limit = OutputLimit(self.store, TENANTS.get, lambda job: job == 1)
        self.limit.most = most

    def print(self, job: int, size: int, offset: int = 0) -> None:
        data = b"x" * (size - 1) + b"\n"
        chunk = LogChunk(
            node="a", incarnation="a.1", job=job, attempt=1, rank=0, offset=offset, data=data
        )
        self.store.put(chunk, 10_000)
        self.limit.note(job, size)

    @property
    def sizes(self) -> dict[int, int]:
        return {job: self.store.size(job) for job in TENANTS}


def test_the_oldest_output_of_ended_jobs_goes_first_and_that_of_others_stays(
    tmp_path: Path,
) -> None:
    output = Output(tmp_path, 1_000)
    output.print(3, 900)
    for job in (1, 2, 4):
        output.print(job, 300)
    assert output.sizes == {1: 300, 2: 300, 3: 900, 4: 300, 5: 0}
    output.print(5, 300)
    assert output.sizes == {1: 300, 2: 0, 3: 900, 4: 300, 5: 300}


def test_who_reads_is_told_once_what_was_removed(tmp_path: Path) -> None:
    output = Output(tmp_path, 1_000)
    output.print(2, 600)
    output.print(4, 600)
    told = "--- what there was so far is removed: 1,000 bytes of output are kept of a tenant ---\n"
    for cursor in ("", TAIL):
        text, behind = output.store.read(2, cursor, 100)
        assert text == told
        assert output.store.read(2, behind, 100) == ("", behind)
    assert output.store.read(5, "", 100) == ("", "")
    assert "removed" not in output.store.read(4, "", 100)[0]


def test_a_job_that_goes_on_keeps_what_it_prints_from_then_on(tmp_path: Path) -> None:
    output = Output(tmp_path, 1_000)
    output.print(1, 1_001)
    assert output.sizes[1] == 0
    _, behind = output.store.read(1, "", 10_000)
    output.print(1, 5, offset=1_001)
    assert output.store.read(1, behind, 10_000)[0] == "xxxx\n"
    assert output.store.read(1, "", 10_000)[0].endswith("---\nxxxx\n")


@pytest.mark.parametrize("most", [0, 10_000])
def test_what_there_was_before_the_server_was_started_counts(tmp_path: Path, most: int) -> None:
    before = Output(tmp_path, 0)
    for job in (2, 4, 5):
        before.print(job, 5_000)
    output = Output(tmp_path, most)
    output.print(1, 10)
    assert output.sizes[2] == (0 if most else 5_000)
    assert output.sizes[4] == (0 if most else 5_000)
    assert output.sizes[5] == 5_000
