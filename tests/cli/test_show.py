"""Tables of the live cluster."""

import msgspec
from tests.cli.test_job_history import JOB

from fairlead.cli.terminal_views import job_table
from fairlead.cluster.protocol.api_models import JobView


def cells(job: JobView) -> dict[str, str]:
    """Name of a column -> what it says of a job."""
    table = job_table([job])
    return {str(c.header): "".join(map(str, c.cells)) for c in table.columns}


def test_a_job_that_fails_and_waits_is_seen_to() -> None:
    found = cells(msgspec.structs.replace(JOB, failures=3, starts=8, queued_s=7200.0))
    assert (found["starts"], found["failures"], found["queued"]) == ("8", "3", "2 h")


def test_a_job_that_has_started_over_is_marked() -> None:
    marked = "starts over whenever it is stopped"
    again = msgspec.structs.replace(JOB, starts_over=True, starts=2)
    assert cells(again)["why"] == marked
    assert cells(msgspec.structs.replace(again, starts=1))["why"] == ""
    ended = msgspec.structs.replace(again, state="completed", ended_s=99.0)
    assert cells(ended)["why"] == ""
    assert cells(msgspec.structs.replace(again, reason="paused"))["why"] == "paused"
