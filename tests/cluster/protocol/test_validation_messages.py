"""What is said of a message that does not fit its struct."""

import gc
import sys
from typing import Any

import msgspec
import pytest

from fairlead.cluster.protocol.messages import NodeReport
from fairlead.cluster.protocol.validation_messages import UNREADABLE, describe_decode_error


def _said(data: bytes) -> str:
    with pytest.raises(UNREADABLE) as raised:
        msgspec.msgpack.decode(data, type=NodeReport)
    return describe_decode_error("Report", data, raised.value)


def _nested(depth: int = 100_000) -> bytes:
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_nested(), "Report: expected object, got array"),
        (b"\x81\xa4node" + _nested(), "Report.node: expected str, got array"),
        (b"\x81\xa5holds\x91" + _nested(), "Report.holds[0]: expected object, got array"),
        (b"\x81\xa5other" + _nested(), "Report: 100008 bytes that are not a whole message"),
        (
            b"\x82\xa5other" + _nested(900) + b"\xa3seq\xa1x",
            "Report.seq: expected int, got str (it is 'x')",
        ),
    ],
)
def test_what_is_nested_deeply_is_never_made(
    data: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection of garbage that began as deep as Python goes failed in whatever it let go."""
    failed: list[Any] = []

    def frames(left: int) -> None:
        if left:
            frames(left - 1)

    def collecting(_phase: str, _info: object) -> None:
        frames(50)

    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    before = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        assert _said(data).startswith(said)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collecting)
    assert not failed


def test_an_entry_of_a_very_long_list_is_not_shown() -> None:
    long = msgspec.msgpack.encode({"holds": [7] * 1_000_000})
    assert _said(long) == "Report.holds[0]: expected object, got int"
    short = msgspec.msgpack.encode({"holds": [7] * 1_000})
    assert _said(short) == "Report.holds[0]: expected object, got int (it is 7)"
