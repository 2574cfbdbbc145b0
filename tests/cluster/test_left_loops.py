"""Jobs whose scripts leave their loops by themselves are moved and come to their end as they do alone."""

import re
import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import Running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

LIMIT_S = 120.0
# Passes of seven batches of ten; the 25th step waits for a file.
SCRIPT = """
import sys, time
from pathlib import Path
import fairlead

here, last = Path(sys.argv[1]), int(sys.argv[2])
n = 0

def load(path):
    global n
    n = int(path.read_text())
    write(f"load {n}")

def write(line):
    with (here / "log").open("a") as file:
        file.write(line + "\\n")

it = fairlead.Iterator(list(range(10)), load=load, save=lambda path: path.write_text(str(n)))
it.step
while n < last:
    for i, x in it.indexed():
        n += 1
        write(f"{n} {x}")
        while n == 25 and not (here / "go").exists():
            time.sleep(0.02)
        if i == 6 or n == last:
            break
"""


def _submit(client: Client, here: Path, last: int, **more: object) -> int:
    here.mkdir()
    words = (sys.executable, "-c", SCRIPT, str(here), str(last))
    (job,) = client.submit([JobSpec(command=words, cwd="/", **more)])  # type: ignore[arg-type]
    return job


def _log(here: Path) -> list[str]:
    file = here / "log"
    return file.read_text().splitlines() if file.exists() else []


def test_a_job_that_breaks_out_of_its_passes_is_moved_and_loses_nothing(
    cluster: Running, tmp_path: Path
) -> None:
    here = tmp_path / "job"
    with cluster.client() as client:
        job = _submit(client, here, 60, total_steps=60, grace_s=LIMIT_S)
        until(lambda: len(_log(here)) >= 25, LIMIT_S)
        client.pause(job)
        until(lambda: client.explain(job).why_here.count("told to stop") > 0, LIMIT_S)
        (here / "go").touch()
        until(lambda: client.job(job).node == "", LIMIT_S)
        client.resume(job)
        until(lambda: client.job(job).state == "completed", LIMIT_S)
        log = _log(here)
        (load,) = (line for line in log if line.startswith("load"))
        assert [line for line in log if line != load] == [f"{i + 1} {i % 7}" for i in range(60)]
        view = client.job(job)
        assert (view.steps, view.failures, view.lost_steps, view.reason) == (60, 0, 0, "")


def test_a_job_that_ends_by_itself_before_its_last_step_is_complete(
    cluster: Running, tmp_path: Path
) -> None:
    here = tmp_path / "job"
    with cluster.client() as client:
        job = _submit(client, here, 18, total_steps=200, max_retries=0)
        until(lambda: client.job(job).state == "completed", LIMIT_S)
        view, (attempt,) = client.job(job), client.attempts(job)
        assert (view.steps, view.starts, view.failures) == (18, 1, 0)
        assert attempt.why == view.reason == "ended by itself at step 18 of 200"
        told = " ".join(client.explain(job).facts)
        assert "It is completed: it ended by itself at step 18 of 200." in told


GANG = """
import os, sys, time
from pathlib import Path
import fairlead
import fairlead.client.rank_sync

fairlead.client.rank_sync.CHECK_S = 1000.0  # check steps 1, 3, 7, 15 on any machine
here, rank = Path(sys.argv[1]), int(os.environ["RANK"])
last = int(sys.argv[2 + rank])
it = fairlead.Iterator(list(range(10)), load=lambda _: None, save=Path.touch)
for x in it:
    time.sleep(0.01)
    if it.step + 1 == last:
        if sys.argv[4:] == [str(rank)]:
            it.complete()
        break
while rank == 1 and last == 12 and not (here / "go").exists():
    time.sleep(0.02)
"""


def _gang(
    client: Client, here: Path, *last: int, total_steps: int = 10**6, completes: int | None = None
) -> int:
    """completes: the rank that calls ``complete`` before it leaves its loop."""
    here.mkdir()
    words = (sys.executable, "-c", GANG, str(here), *map(str, last))
    words += () if completes is None else (str(completes),)
    spec = JobSpec(command=words, cwd="/", total_steps=total_steps, scale_factor=2, max_retries=0)
    (job,) = client.submit([spec])
    return job


def test_a_gang_is_complete_once_all_its_ranks_have_left_their_loops(
    cluster: Running, tmp_path: Path
) -> None:
    here = tmp_path / "job"
    with cluster.client() as client:
        job = _gang(client, here, 12, 12)
        until(lambda: client.job(job).state == "finishing", LIMIT_S)  # rank 0 has ended
        (here / "go").touch()
        until(lambda: client.job(job).ended_s is not None, LIMIT_S)
        view, (attempt,) = client.job(job), client.attempts(job)
        assert (view.state, view.steps, view.failures) == ("completed", 12, 0)
        assert attempt.why == "ended by itself at step 12 of 1000000"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_gang_of_which_one_rank_alone_calls_complete_has_left_its_loops_by_itself(
    cluster: Running, tmp_path: Path, rank: int
) -> None:
    """It was started again for ever: the rank could not agree with the others, and lost its lease."""
    with cluster.client() as client:
        job = _gang(client, tmp_path / "job", 11, 11, completes=rank)
        until(lambda: client.job(job).ended_s is not None or client.job(job).starts > 1, LIMIT_S)
        view, (attempt,) = client.job(job), client.attempts(job)
        assert (view.state, view.steps, view.failures) == ("completed", 11, 0)
        assert attempt.why == "ended by itself at step 11 of 1000000"
        log, _ = client.log(job)
        assert f"complete() was called by rank {rank} alone" in log


@pytest.mark.parametrize(
    ("first", "second", "total", "told"),
    [
        (9, 10, 10**6, "ended by itself at step 9 of 1000000; it "),
        (10, 9, 10**6, "ended by itself at step 10 of 1000000; it "),
        (10, 9, 10, ""),
    ],
)
def test_a_gang_whose_ranks_leave_their_loops_at_different_steps_is_told(
    cluster: Running, tmp_path: Path, first: int, second: int, total: int, told: str
) -> None:
    least, most = (0, 1) if first < second else (1, 0)
    uneven = f"left its loops at different steps: rank {least} at step 9, rank {most} at step 10"
    with cluster.client() as client:
        job = _gang(client, tmp_path / "job", first, second, total_steps=total)
        until(lambda: client.job(job).ended_s is not None, LIMIT_S)
        view, (attempt,) = client.job(job), client.attempts(job)
        assert (view.state, view.steps, view.failures) == ("completed", first, 0)
        assert attempt.why == view.reason == f"{told}{uneven}"
        facts = " ".join(client.explain(job).facts)
        assert f"It is completed: it {told}{uneven}." in facts
    assert f"job {job} {told}{uneven}" in cluster.log()


EPOCHS = """
import os, sys
from pathlib import Path
import fairlead

batches = int(sys.argv[1 + int(os.environ["RANK"])])
it = fairlead.Iterator(
    lambda epoch, size: iter(range(batches)), load=lambda _: None, save=Path.touch, epochs=3
)
for epoch in it.epochs():
    for x in it:
        pass
"""


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (10, 9, "left its loops at different steps: rank 1 at step 27, rank 0 at step 30"),
        (
            9,
            10,
            "ended by itself at step 27 of 30; it left its loops at different steps: rank 0 at step 27, "
            "rank 1 at step 30",
        ),
    ],
)
def test_a_gang_whose_ranks_have_data_of_different_length_does_all_its_epochs(
    cluster: Running, first: int, second: int, told: str
) -> None:
    """It failed at the end of the shorter data, and lost all since its last checkpoint."""
    words = (sys.executable, "-c", EPOCHS, str(first), str(second))
    spec = JobSpec(command=words, cwd="/", total_steps=30, scale_factor=2, max_retries=0)
    with cluster.client() as client:
        (job,) = client.submit([spec])
        until(lambda: client.job(job).ended_s is not None, LIMIT_S)
        view = client.job(job)
        assert (view.state, view.steps, view.failures) == ("completed", 3 * first, 0)
        assert view.reason == told


def test_a_gang_of_which_a_rank_leaves_while_another_trains_has_failed(
    cluster: Running, tmp_path: Path
) -> None:
    with cluster.client() as client:
        job = _gang(client, tmp_path / "job", 10**6, 15)
        until(lambda: client.job(job).state == "dropped", LIMIT_S)
        why = client.attempts(job)[0].why  # whichever of the two ends is heard of first
        assert re.search("rank 1 ended first, with exit code 0|rank 1 is gone", why)
