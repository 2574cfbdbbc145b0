"""The metrics that jobs report, as the API shows them."""

import msgspec


class MetricCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric of a job by step. Of many only some are kept, evenly."""

    name: str
    steps: list[int]  # ascending
    times_s: list[float]  # when they were reported: seconds since 1970, of the node's clock
    values: list[float]
    last: float  # the value that was reported last
    last_step: int  # its step
