import msgspec
import pytest

from fairlead.live.reasons import stated
from fairlead.live.views import JobView


def view(**fields: object) -> JobView:
    """A job that ran on v100."""
    plain = {
        "id": 1, "name": "", "tenant": "t", "user": "u", "family": "", "scale_factor": 1,
        "weight": 1.0, "state": "running", "total_steps": 100.0, "steps": 0.0, "saved_step": 0,
        "submitted_s": 0.0, "started_s": None, "ended_s": None, "node": "", "accelerator": "",
        "devices": (), "epoch": 0, "starts": 1, "preemptions": 0, "failures": 0, "run_s": 0.0,
        "lost_steps": 0.0, "overhead_s": 0.0, "rates": {}, "measured_rate": 6.8, "slo_s": None,
        "reason": "", "measured_on": "v100", "claimed": {"v100": 10.0},
    }  # fmt: skip
    return msgspec.convert(plain | fields, JobView)


def test_the_owner_is_told_how_far_off_the_stated_rate_was() -> None:
    assert stated(view()) == " You said 10 steps/s on v100, measured 6.8."


@pytest.mark.parametrize(
    "fields",
    [
        {"claimed": {}},
        {"claimed": {"k80": 10.0}},
        {"measured_rate": None},
        {"measured_rate": 9.5},
        {"measured_on": ""},
    ],
)
def test_nothing_is_said_where_nothing_is_off_or_known(fields: dict[str, object]) -> None:
    assert stated(view(**fields)) == ""
