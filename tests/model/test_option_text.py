"""Options written as text."""

import pytest

from fairlead.errors import ClusterError, ConfigError
from fairlead.model.option_text import parse_options, split_option


@pytest.mark.parametrize(
    ("text", "pair"),
    [("a=1", ("a", "1")), ("A= x=y ", ("A", " x=y ")), ("a=", ("a", "")), ("flag", ("flag", None))],
)
def test_the_first_equals_sign_parts_name_and_value(text: str, pair: tuple[str, str]) -> None:
    assert split_option(text) == pair


def test_values_by_name() -> None:
    assert parse_options("b = 2 , a=1", "--x") == {"b": "2", "a": "1"}
    assert parse_options(["b=2,3", "a="], "--x") == {"b": "2,3", "a": ""}
    assert parse_options("exact,b=2", "--x", flags=True) == {"exact": "", "b": "2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1,b", "--x: expected TYPE=N, got 'b'"),
        ("=1", "--x: expected TYPE=N, got '=1'"),
        ("a=1,", "--x: expected TYPE=N, got ''"),
        ("a=1, a=2", "--x: a is given twice"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_options(text, "--x", expected="TYPE=N")
    assert str(refused.value) == message
    with pytest.raises(ClusterError):
        parse_options(text, "--x", expected="TYPE=N", error=ClusterError)
