from dataclasses import dataclass, field
from math import inf, nan
from typing import Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fairlead.client.codec import DecodeError, decode, decode_record, encode, encode_record


@dataclass(frozen=True)
class Inner:
    count: int


@dataclass(frozen=True)
class Whole:
    number: int
    text: str
    seconds: float = 0.0
    flag: bool = False
    data: bytes = b""
    choice: Literal["left", "right"] = "left"
    table: dict[str, Inner] = field(default_factory=dict)


@given(
    st.builds(
        Whole,
        number=st.integers(-(2**70), 2**70),
        text=st.text(st.characters(exclude_categories=())),
        seconds=st.floats(allow_nan=False, allow_infinity=False),
        flag=st.booleans(),
        data=st.binary(),
        choice=st.sampled_from(["left", "right"]),
        table=st.dictionaries(st.text(), st.builds(Inner, count=st.integers())),
    )
)
def test_what_was_encoded_is_decoded_as_it_was(whole: Whole) -> None:
    assert decode(encode(whole), Whole) == whole
    assert decode_record(encode_record(whole).encode(), Whole) == whole


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('"number":"1"', "Whole.number: expected a whole number, got '1'"),
        ('"text":1', "Whole.text: expected text, got 1"),
        ('"flag":1', "Whole.flag: expected true or false, got 1"),
        ('"seconds":true', "Whole.seconds: expected a finite number, got True"),
        ('"data":"%"', "Whole.data: expected base64, got '%'"),
        ('"choice":"up"', "Whole.choice: expected 'left' or 'right', got 'up'"),
        ('"table":[]', "Whole.table: expected an object, got a list"),
        ('"table":{"a":{"count":null}}', r"Whole.table\['a'\].count: expected a whole number"),
    ],
)
def test_a_value_of_another_type_is_named(more: str, complaint: str) -> None:
    body = '{"type":"Whole","number":1,"text":"",' + more + "}"
    with pytest.raises(DecodeError, match=f"^{complaint}"):
        decode(body.encode(), Whole)


@given(st.binary(max_size=100))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data, Whole)


@pytest.mark.parametrize("value", [nan, inf])
def test_numbers_that_json_does_not_know_are_not_sent(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode(Whole(1, "", value))
