"""TOML texts whose nesting would cost the parser time and memory with its square."""

import pytest

from fairlead.errors import InputError
from fairlead.model.toml import MAX_DEPTH, MAX_PARTS, nesting_of, parse_sent_toml, parse_toml

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


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("a.b{i}" + ".a" * 20 + " = 1\n", id="deep keys"),
        pytest.param("a{i} = 1\n", id="flat keys"),
        pytest.param("a{i} = [1, [2, 3], {{b = 4}}]\n", id="values"),
    ],
)
def test_a_text_that_is_sent_with_more_than_any_job_has_is_not_parsed(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(line.format(i=i) for i in range(MAX_PARTS + 1))
    assert parse_sent_toml(line.format(i=1), "job", InputError)
    monkeypatch.setattr("fairlead.model.toml.tomllib.loads", lambda _text: pytest.fail("parsed"))
    with pytest.raises(InputError, match=r"^job: has too many keys and values"):
        parse_sent_toml(text, "job", InputError)


def test_the_largest_job_may_be_sent() -> None:
    words = ", ".join(f"'word-{i}'" for i in range(4_096))
    variables = "".join(f"V{i} = 'a.b=[c, d]'\n" for i in range(1_024))
    rates = "".join(f"t{i} = 1.5\n" for i in range(1_000))
    text = f"command = [{words}]\n[env]\n{variables}[rates]\n{rates}"
    assert len(parse_sent_toml(text, "job", InputError)["command"]) == 4_096
