"""TOML texts whose nesting would cost the parser time and memory with its square."""

import pytest

from fairlead.errors import InputError
from fairlead.model.toml import MAX_DEPTH, nesting_of, parse_toml

DOTS = ".a" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"a{DOTS} = 1", id="key"),
        pytest.param(f"[a{DOTS}]", id="table"),
        pytest.param(f"[[a{DOTS}]]", id="array of tables"),
        pytest.param(f"b = {{a{DOTS} = 1}}", id="inline table"),
        pytest.param("a" + " . 'a.a'" * 10_000 + " = 1", id="quoted parts"),
        pytest.param(f"x = '''\n'''\na{DOTS} = 1", id="after a string"),
        pytest.param(f'x = "\\""\na{DOTS} = 1', id="after an escaped quote"),
        pytest.param("a = " + "[" * 1_000, id="arrays"),
        pytest.param("a = " + "{a = " * 1_000, id="inline tables"),
    ],
)
def test_what_is_nested_too_deeply_never_reaches_the_parser(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.model.toml.tomllib.loads", lambda _text: pytest.fail("parsed"))
    with pytest.raises(
        InputError, match=f"^job: is nested too deeply: more than {MAX_DEPTH} levels$"
    ):
        parse_toml(text, "job", InputError)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'a = "{DOTS}"', id="string"),
        pytest.param(f"a = '{DOTS}'", id="literal"),
        pytest.param(f'a = """\n"{DOTS}\n""\\""""', id="string of lines"),
        pytest.param(f"a = '''\n'{DOTS}\n''''", id="literal of lines"),
        pytest.param(f"# {DOTS}\na = 1 # {'[' * 1_000}", id="comment"),
        pytest.param("a = [" + "1.5, " * 1_000 + "]", id="numbers"),
        pytest.param("".join(f"a.b{i} = [[1.5]]\n" for i in range(1_000)), id="many keys"),
        pytest.param("".join(f"[[a.b]]\nc.d = {i}.5\n" for i in range(1_000)), id="many tables"),
        pytest.param("a" + ".a" * (MAX_DEPTH - 1) + " = 1", id="as deep as can be"),
    ],
)
def test_dots_and_brackets_that_are_no_nesting_are_read(text: str) -> None:
    assert parse_toml(text, "job", InputError)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"' + r"\"" * 100_000, id="string"),
        pytest.param('"""' + r"\"" * 100_000, id="string of lines"),
        pytest.param("'''" * 100_001, id="literal of lines"),
    ],
)
def test_a_string_that_never_ends_is_looked_at_once(text: str) -> None:
    assert nesting_of(text) == 1
