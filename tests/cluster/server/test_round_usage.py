"""Device time of the round in force, by tenant."""

import numpy as np
import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.live_round import EndedAttempt, LiveRound
from fairlead.cluster.server.round_usage import RoundUsage
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.model.events import RoundOutcome


def start(job: int, tenant: str, began_s: float, devices: int = 1) -> Attempt:
    spec = JobSpec(command=("true",), total_steps=1000, scale_factor=devices)
    row = JobRow(
        id=job, name="", tenant=tenant, user="u", spec=spec, submitted_s=0.0, total_steps=1000.0
    )
    held = tuple(range(devices))
    attempt = AttemptRow(
        job=job, attempt=1, node="a", accelerator="v100", devices=held, began_s=began_s
    )
    return Attempt(row, attempt, ranks_on({"a": held}), 10.0, 0.0, ordered=True)


def round_of(*attempts: Attempt) -> LiveRound:
    groups = np.array([[one.row.id] for one in attempts])
    return LiveRound(1, 100.0, 60.0, groups, {one.row.id: one for one in attempts})


def test_starts_count_from_the_round_or_from_when_they_began_until_they_end() -> None:
    current = round_of(start(1, "a", 40.0), start(2, "a", 110.0, devices=2), start(3, "b", 100.0))
    usage = RoundUsage()
    assert usage.device_s(current, 130.0) == pytest.approx({"a": 30.0 + 2 * 20.0, "b": 30.0})
    current.ended[2] = EndedAttempt(131.0, RoundOutcome.RAN, False)
    assert usage.device_s(current, 140.0) == pytest.approx({"a": 40.0, "b": 40.0})
    current.ended[1] = EndedAttempt(141.0, RoundOutcome.RAN, True)
    current.ended[3] = EndedAttempt(141.0, RoundOutcome.RAN, True)
    assert usage.device_s(current, 150.0) == pytest.approx({"a": 0.0, "b": 0.0})


def test_the_next_round_begins_anew() -> None:
    usage = RoundUsage()
    current = round_of(start(1, "a", 100.0))
    current.ended[1] = EndedAttempt(105.0, RoundOutcome.RAN, True)
    assert usage.device_s(current, 110.0) == {"a": 0.0}
    assert usage.device_s(None, 110.0) == {}
    assert usage.device_s(round_of(start(2, "b", 100.0)), 110.0) == {"b": 10.0}
