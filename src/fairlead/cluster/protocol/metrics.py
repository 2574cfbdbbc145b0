"""The metrics that jobs report, as the API shows them."""

import msgspec


class MetricCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric of a job by step. Of many only some are kept, evenly."""

    name: str
    steps: list[int]  # ascending
    # When they were reported: seconds since 1970, of the node's clock; of a line without a time when the
    # server read it, of its clock
    times_s: list[float]
    values: list[float]
    last: float  # the value that was reported last
    last_step: int  # its step
