"""Batch-size schedules in the table of jobs."""

import pytest

from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.job import Job, JobId
from fairlead.simulator.recording.adaptation_columns import adaptation_columns, in_words


def test_jobs_that_adapt_have_a_mode_and_a_schedule() -> None:
    doubling = Adaptation(Mode.GNS, 59_675, 100.0, ((0, 5), (31, 10)))
    jobs = [
        Job(JobId(0), "A3C", 1, 100.0),
        Job(JobId(1), "LM (batch size 5)", 1, 100.0, adaptation=doubling),
    ]
    assert adaptation_columns(jobs) == {"mode": [None, "gns"], "batch_sizes": [None, "0:5;31:10"]}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("0:16", "16"),
        ("0:16;31:32;41:64", "16, 32 from 31, 64 from 41"),
        (
            ";".join(f"{10 * i}:{(32, 128)[i % 2]}" for i in range(9)),
            "32, then 8 changes between 32 and 128",
        ),
    ],
)
def test_people_read_which_size_begins_at_which_epoch(written: str, words: str) -> None:
    assert in_words(written) == words
