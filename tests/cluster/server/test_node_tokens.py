"""Each node has a token of its own, which it is given when it enrols."""

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, WAIT_S, EngineNodes, engine_nodes

from fairlead.cluster.front.facade import ForbiddenError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import PROTOCOL, Register, Welcome
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.store.tokens import hash_token
from fairlead.errors import ConfigError


def enrol(cluster: EngineNodes, name: str, incarnation: str = "one.1", **more: Any) -> Welcome:
    given: dict[str, Any] = {"accelerator": "v100", "devices": 1} | more
    message = Register(
        protocol=PROTOCOL, version="0", node=name, incarnation=incarnation, host="h", **given
    )
    return cluster.service.register(message, token="enrolment").result(WAIT_S)


def published(fleet: Fleet, name: str) -> tuple[bytes, bool]:
    sent = fleet.nodes[name].desired.sent
    assert sent is not None
    return sent.token_hash, sent.revoked


def test_a_node_that_enrols_is_given_a_token_that_outlives_the_server(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        token = enrol(cluster, "a").token
        assert token
        assert published(cluster.service.engine.state.fleet, "a") == (hash_token(token), False)
        node = cluster.node("a")
        assert node.register().token == ""  # with its own
    with engine_nodes(tmp_path) as cluster:
        assert [row.token_hash for row in cluster.service.store.nodes()] == [hash_token(token)]
        assert enrol(cluster, "a", "one.2").token != token  # its agent has lost it


def test_nobody_takes_over_a_node_that_lives_with_the_token_that_enrols(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        token = enrol(cluster, "a").token
        with pytest.raises(ConfigError, match="'a': another agent has this name, and is alive"):
            enrol(cluster, "a", "two.1")
        assert published(cluster.service.engine.state.fleet, "a") == (hash_token(token), False)


def test_the_token_that_enrols_takes_over_no_node_that_may_be_alive(tmp_path: Path) -> None:
    """Not while it is silent for less than a lease, and not before it can have come back to a server that was
    started again."""
    why = "'a': another agent has this name, and may be alive; if it stays silent, the name can"
    with engine_nodes(tmp_path, lease_s=6.0) as cluster:
        node = cluster.node("a")
        enrol(cluster, "a")
        state = cluster.service.engine.state
        cluster.silence(node)
        cluster.until(
            lambda: state.fleet.silent_for_s(state.fleet.nodes["a"]) > state.fleet.silence_s
        )
        with pytest.raises(ConfigError, match=why):
            enrol(cluster, "a", "two.1")
        enrol(cluster, "a")
    with engine_nodes(tmp_path, lease_s=6.0) as cluster:
        with pytest.raises(ConfigError, match=why):
            enrol(cluster, "a", "two.1")
        state = cluster.service.engine.state
        assert enrol(cluster, "a").token, "its own agent, which has lost its token"
        cluster.until(lambda: state.fleet.silent_for_s(state.fleet.nodes["a"]) > 6.0)
        assert enrol(cluster, "a", "two.1").token


@pytest.mark.parametrize("restarts", [False, True])
def test_an_agent_that_has_ended_all_of_the_one_before_it_need_not_wait(
    tmp_path: Path, restarts: bool
) -> None:
    """Its state directory was deleted; the server may have been started again meanwhile."""
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        enrol(cluster, "a", machine="m")
        if not restarts:
            assert enrol(cluster, "a", "two.1", machine="m", cleared=("one.1",)).token
    if restarts:
        with engine_nodes(tmp_path, lease_s=60.0) as cluster:
            with pytest.raises(ConfigError, match="may be alive"):
                enrol(cluster, "a", "two.1", machine="other", cleared=("one.1",))
            assert enrol(cluster, "a", "two.1", machine="m", cleared=("one.1",)).token


def test_a_revoked_node_is_lost_and_enrols_again_once_it_is_put_back(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        enrol(cluster, "a")
        with pytest.raises(ForbiddenError):
            cluster.service.revoke_node(Caller("u", "t", "user"), "a")
        cluster.service.revoke_node(ADMIN, "a")
        assert published(cluster.service.engine.state.fleet, "a") == (b"", True)
        assert cluster.view("a").reason.startswith("its token was revoked")
        with pytest.raises(ConfigError, match="'a': its token was revoked; `fairlead undrain a`"):
            enrol(cluster, "a")
        cluster.until(lambda: cluster.view("a").state == "lost", "its loss")
    with engine_nodes(tmp_path) as cluster:  # that outlives the server
        with pytest.raises(ConfigError, match="its token was revoked"):
            enrol(cluster, "a")
        cluster.service.undrain(ADMIN, "a")
        assert enrol(cluster, "a").token
