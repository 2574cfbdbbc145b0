"""Time for which jobs keep devices that they were told to leave."""

import numpy as np
import pytest
from tests.scheduler.core.test_changes import pause_jobs
from tests.scheduler.core.test_scheduler import (
    handle_all,
    round_report,
    scheduler,
    started_round,
    submit,
)

from fairlead.errors import ProtocolError
from fairlead.model.events import DevicesKept
from fairlead.scheduler.journal import decode, encode

ROUND_S = 360.0


def kept(time_s: float, *seconds: tuple[int, float], accelerator: str = "v100") -> DevicesKept:
    jobs, kept_s = zip(*seconds, strict=True)
    return DevicesKept(
        time_s,
        np.array(jobs, np.int64),
        (accelerator,) * len(jobs),
        np.array(kept_s, np.float64),
    )


@pytest.mark.parametrize("policy", ["las_aware", "max_min_fairness", "gandiva"])
def test_it_is_time_that_the_job_has_received(policy: str) -> None:
    """Of two jobs that take turns, the one that kept the device for four rounds gets as many less,
    give or take what a start is worth."""
    lead = {}
    for rounds in (0, 4):
        core, ran = scheduler(policy, a=1), {1: 0, 2: 0}
        commands = handle_all(core, submit(1, 2))
        for number in range(1, 25):
            now = started_round(commands)
            ran[int(now.job_groups[0, 0])] += 1
            if number == 2:
                core.handle(kept(number * ROUND_S, (1, rounds * ROUND_S)))
            commands = handle_all(core, round_report(now, number * ROUND_S, 360.0))
        lead[rounds] = ran[2] - ran[1]
    assert abs(lead[0]) <= 1
    assert 3 <= lead[4] <= 6


def test_it_counts_for_jobs_that_are_paused_and_not_for_those_that_have_left() -> None:
    core = scheduler("las_aware", a=2)
    now = started_round(handle_all(core, submit(1, 2)))
    handle_all(core, pause_jobs(1.0, 2), round_report(now, ROUND_S, 1.0))
    before = core.data.ledger.runs.ran_s.sum(), core.data.paused_jobs.runs.ran_s.sum()
    core.handle(kept(800.0, (1, 10.0), (2, 20.0), (99, 40.0), (1, 1.0)))
    core.handle(kept(800.0, (1, 10.0), accelerator="gone"))
    assert core.data.ledger.runs.ran_s.sum() == before[0] + 11.0
    assert core.data.paused_jobs.runs.ran_s.sum() == before[1] + 20.0


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (kept(1.0, (1, -1.0)), "times must be finite"),
        (kept(1.0, (1, np.inf)), "times must be finite"),
    ],
)
def test_what_cannot_be_is_refused(event: DevicesKept, why: str) -> None:
    core = scheduler("las_aware", a=1)
    handle_all(core, submit(1))
    with pytest.raises(ProtocolError, match=why):
        core.handle(event)


def test_the_journal_keeps_it() -> None:
    event = kept(3.0, (1, 2.5), (4, 1.0))
    found = decode(encode(event))
    assert isinstance(found, DevicesKept)
    assert found.jobs.tolist() == [1, 4]
    assert found.accelerators == ("v100", "v100")
    assert found.kept_s.tolist() == [2.5, 1.0]
