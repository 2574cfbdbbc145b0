import pytest

from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.store.rows import UserRow
from fairlead.cluster.store.tokens import (
    TokenTable,
    check_name,
    hash_token,
    make_node_token,
    make_token,
)
from fairlead.errors import ConfigError


def test_a_token_finds_its_user_and_no_other_does() -> None:
    tokens = {name: make_token() for name in ("ann", "bob")}
    table = TokenTable()
    table.set_users(
        UserRow(user=name, tenant="t", role="user", token_hash=hash_token(token))
        for name, token in tokens.items()
    )
    for name, token in tokens.items():
        assert table.find(token) == Caller(user=name, tenant="t", role="user")
    ann = tokens["ann"]
    for wrong in ("", make_token(), ann[:-1], ann + " ", ann.upper(), "\udcff", "x" * 10**6):
        assert table.find(wrong) is None


def test_a_token_is_good_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    table, token = TokenTable(), make_token()
    row = UserRow(
        user="ann", tenant="t", role="user", token_hash=hash_token(token), expires_s=100.0
    )
    table.set_users([row])
    monkeypatch.setattr("time.time", lambda: 99.9)
    assert table.find(token) is not None
    monkeypatch.setattr("time.time", lambda: 100.0)
    assert table.find(token) is None


def test_the_newest_token_of_a_node_counts_until_it_is_revoked() -> None:
    table, (first, second) = TokenTable(), (make_token(), make_token())
    table.set_node("a", b"", revoked=False)
    assert not table.is_enrolled("a")
    table.set_node("a", hash_token(first), revoked=False)
    assert table.find(first) == Caller(user="node a", tenant="", role="agent", node="a")
    table.set_node("a", hash_token(second), revoked=False)
    assert table.find(first) is None
    assert table.find(second) is not None
    table.set_node("a", b"", revoked=True)
    assert table.find(second) is None
    assert table.is_enrolled("a")  # so that nobody speaks for it with the token that enrols
    table.remove_node("a")
    assert not table.is_enrolled("a")


def test_a_token_that_a_later_state_has_issued_is_known_by_its_signature() -> None:
    key, token = b"k" * 32, make_node_token(b"k" * 32, "a.b-1", 8)
    table = TokenTable()
    assert table.find_agent(token) is None
    table.set_key(key)
    table.set_commit(7)
    assert table.find(token) is None
    found = table.find_agent(token)
    assert found is not None
    assert (found.node, found.token_kind) == ("a.b-1", "outdated")
    forged = (
        make_node_token(b"x" * 32, "a.b-1", 8),
        token.replace("a.b", "c.b"),
        token.replace(".8.", ".9."),
        token.replace(".8.", ".-8."),
        token.replace(".8.", f".{'8' * 60}."),
        token[:-1],
    )
    for wrong in forged:
        assert table.find_agent(wrong) is None
    table.set_node("a.b-1", hash_token(token), revoked=False)
    assert table.find_agent(token) == Caller("node a.b-1", "", "agent", node="a.b-1")
    table.set_node("a.b-1", b"", revoked=True)
    table.set_commit(8)
    assert table.find_agent(token) is None
    table.remove_node("a.b-1")  # and its revocation is forgotten
    assert table.find_agent(token) is None


def test_tokens_are_long_random_and_harmless_in_headers() -> None:
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) == 46 and token.startswith("fl_") for token in tokens)
    assert all(token.isascii() and token.isprintable() and " " not in token for token in tokens)


@pytest.mark.parametrize("name", ["a", "team-1", "A.b_c", "x" * 64, "..a"])
def test_names(name: str) -> None:
    assert check_name("tenant", name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "x" * 65, "\0", "../a"])
def test_names_that_could_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^tenant '"):
        check_name("tenant", name)


def test_a_long_name_is_not_repeated_in_full() -> None:
    with pytest.raises(ConfigError) as refused:
        check_name("user", "y" * 10**6)
    assert len(str(refused.value)) < 250
