"""Errors about fields of TOML files name the line."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ConfigError, InputError
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import line_of, naming_lines, with_line

TEXT = '''\
# a comment with steps = 7
command = [
  "python",  # steps = 8
  "train.py",
]
note = """
steps = 9
"""
steps = 5
"quoted key" = 1
a.b.c = 2
inline = { x = 1, y = [1, 2] }

[rates]
v100 = 3.0
k80 = 1.0

[[node]]
name = "one"

[[node]]
name = "two"  # the second
devices = 4
[node.more]
deep = 1
'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("command",), 2),
        (("command", 1), 2),
        (("note",), 6),
        (("steps",), 9),
        (("quoted key",), 10),
        (("a", "b", "c"), 11),
        (("inline", "y", 1), 12),
        (("rates",), 14),
        (("rates", "k80"), 16),
        (("node", 0), 18),
        (("node", 1), 21),
        (("node", 1, "devices"), 23),
        (("node", 1, "more", "deep"), 25),
        (("node", 2), None),
        (("rates", "p100"), None),
    ],
)
def test_the_line_of_a_key_is_where_its_statement_begins(
    keys: tuple[str | int, ...], line: int | None
) -> None:
    assert line_of(TEXT, keys) == line
    assert line_of(TEXT.replace("\n", "\r\n"), keys) == line


_VALUES = st.sampled_from(['"x"', "1", "[\n 1,\n # no\n 2\n]", "'''\nk = 1\n'''", "{ q = 1 }"])


@given(st.lists(st.tuples(st.sampled_from(["", "# k = 1\n", "\n\n"]), _VALUES), min_size=1))
def test_the_line_of_any_key_is_found(statements: list[tuple[str, str]]) -> None:
    text, lines = "", []
    for number, (before, value) in enumerate(statements):
        text += before
        lines.append(text.count("\n") + 1)
        text += f"k{number} = {value}\n"
    assert set(tomllib.loads(text)) == {f"k{n}" for n in range(len(lines))}
    assert [line_of(text, (f"k{n}",)) for n in range(len(lines))] == lines


def test_a_text_that_takes_too_long_has_no_line() -> None:
    text = "a = [\n" + "1,\n" * 3000 + "]\nb = 1\n"
    assert line_of(text, ("b",)) is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("steps: must be at least 1, got 5", ":9: steps: must be at least 1, got 5"),
        ("rates.k80: must be a number", ":16: rates.k80: must be a number"),
        ("[rates] k80: expected a number", ":16: [rates] k80: expected a number"),
        ("command[1]: expected a text", ":2: command[1]: expected a text"),
        ("node 2: devices: must be 1", ":23: node 2: devices: must be 1"),
        ("node 2: unknown key 'devices'; known: x", ":23: node 2: unknown key 'devices'; known: x"),
        ("node 1: 'devices' is missing", ":18: node 1: 'devices' is missing"),
        ("the file: unknown key 'note'; known: x", ":6: the file: unknown key 'note'; known: x"),
        ("'steps' is not an option", ":9: 'steps' is not an option"),
        ("quoted key: is unknown", ":10: quoted key: is unknown"),
        ("total_steps: is missing", ": total_steps: is missing"),
        ("is not valid TOML", ": is not valid TOML"),
    ],
)
def test_an_error_about_a_field_names_the_line(tmp_path: Path, said: str, told: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TEXT)
    assert _told(path, ConfigError(f"{path}: {said}")) == f"{path}{told}"


def test_what_is_not_of_the_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    assert (
        _told(path, ConfigError(f"{path}: steps: wrong")) == f"{path}: steps: wrong"
    )  # it is gone
    path.write_text(TEXT)
    assert _told(path, ConfigError("--other: steps: wrong")) == "--other: steps: wrong"
    assert _told(None, ConfigError("steps: wrong")) == "steps: wrong"


def _told(path: Path | None, problem: Any) -> str:
    with pytest.raises(InputError) as raised, naming_lines(path):
        raise problem
    assert type(raised.value) is type(problem)
    return str(raised.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("steps = 1\n", encoding="utf-8-sig")
    assert read_toml(path, ConfigError) == {"steps": 1}
    told = _told(path, ConfigError(f"{path}: steps: must be at least 2, got 1"))
    assert told == f"{path}:1: steps: must be at least 2, got 1"


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n"])
def test_a_file_that_ends_within_a_value_is_told_with_its_last_line(
    tmp_path: Path, end: str
) -> None:
    path = tmp_path / "a.toml"
    for text, said in (("a = 1\nb = [\n  2", "Unclosed array"), ("a = 1\n\nb = ", "Invalid value")):
        path.write_text(text + end * (said != "Invalid value"), newline="")
        with pytest.raises(ConfigError) as refused:
            read_toml(path, ConfigError)
        assert str(refused.value) == f"{path}:3: is not valid TOML: {said} (at the end)"


@pytest.mark.parametrize("rest", ["", "\n", "\nmore = 1\n"])
def test_a_key_that_is_given_twice_is_named_with_its_line(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "a.toml"
    for text, key in (("port = 1\nb = 2\nport = 3", "port"), ("[a]\nx.y = 1\nx.y = '='", "x.y")):
        path.write_text(text + rest)
        with pytest.raises(ConfigError) as refused:
            read_toml(path, ConfigError)
        assert str(refused.value) == f"{path}:3: is not valid TOML: the key {key} is given twice"


def test_a_line_that_takes_too_much_to_find_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a = [\n" + "1,\n" * 1_000 + "]\nb = 1\n"
    parsed = []
    loads = tomllib.loads

    def counting(part: str) -> Any:
        parsed.append(len(part))
        return loads(part)

    monkeypatch.setattr(tomllib, "loads", counting)
    said = with_line("job: b: is wrong", "job", text, 10 * len(text))
    assert said == "job: b: is wrong"
    assert sum(parsed) < 15 * len(text)
    assert with_line("job: b: is wrong", "job", "\n\nb = 1") == "job:3: b: is wrong"
