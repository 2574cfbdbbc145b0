from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from fairlead.client.messages import (
    HEADER,
    MAX_MESSAGE_BYTES,
    Adapt,
    FromAgent,
    FromRank,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    RankFrames,
    RankRefused,
    frame,
)
from fairlead.errors import WireError


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


MESSAGES = [Hello(1, 2, "secret", 3), Progress(2, 10, 5, 0.5, renew=True), Adapt(2, 64, 90, 11)]


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), max_size=30))
def test_messages_arrive_whole_in_whatever_pieces_they_come(sizes: list[int]) -> None:
    data = b"".join(map(frame, MESSAGES))
    frames: RankFrames[FromRank] = RankFrames(FromRank)
    got: list[FromRank] = []
    for size in [*sizes, len(data)]:
        got += frames.feed(data[:size])
        data = data[size:]
    assert got == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (MAX_MESSAGE_BYTES + 1).to_bytes(4, "little"),
        b"\1\0\0\0\xc1",
        b"\2\0\0\0{}",
        framed(b'{"type":["Loaded"]}'),
        framed(b'{"type":"Loaded","attempt":true,"step":1,"load_s":0.5}'),
        framed(b'{"type":"Loaded","attempt":1.0,"step":1,"load_s":0.5}'),
        framed(b'{"type":"Loaded","attempt":1,"step":"1","load_s":0.5}'),
        framed(b'{"type":"Loaded","attempt":1,"step":1,"load_s":NaN}'),
        framed(b'{"type":"Loaded","attempt":1,"step":1,"load_s":1e999}'),
        framed(b'{"type":"Loaded","attempt":1,"step":1}'),
        framed(b"[" * 60_000),
        frame(RankRefused("not for this side")),
        frame(RankEnded(1, 2, 3, 0.0, True)).replace(b"completed", b"kompleted"),
        framed(b"\x91" * 64),
    ],
)
def test_a_stranger_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        list(RankFrames[FromRank](FromRank).feed(data))


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with suppress(WireError):
        list(RankFrames[FromAgent](FromAgent).feed(data))


def test_a_message_that_nobody_would_take_is_not_sent() -> None:
    with pytest.raises(WireError, match="at most"):
        frame(RankRefused("x" * MAX_MESSAGE_BYTES))


def test_what_a_newer_peer_adds_is_passed_over_and_what_an_older_one_lacks_has_its_default() -> (
    None
):
    newer = framed(b'{"type":"Loaded","attempt":1,"step":7,"load_s":2,"more":[1]}')
    assert list(RankFrames[FromRank](FromRank).feed(newer)) == [Loaded(1, 7, 2.0)]
    older = framed(b'{"type":"Progress","attempt":1,"step":7,"saved_step":0,"save_s":0.0}')
    assert list(RankFrames[FromRank](FromRank).feed(older)) == [Progress(1, 7, 0, 0.0)]
