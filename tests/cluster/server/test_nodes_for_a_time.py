"""Nodes that are there for a time only, as those of an allocation are."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import EngineNodes, engine_nodes


def _names(cluster: EngineNodes) -> set[str]:
    return set(cluster.service.engine.state.fleet.nodes)


def test_a_node_says_when_it_is_given_back_and_is_forgotten_once_it_has_left(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register(ends_in_s=7200.0)
        cluster.node("two").register()
        view = cluster.view("one")
        assert (view.state, view.reason[:16]) == ("up", "is given back in")
        assert cluster.view("two").reason == ""
        job = cluster.submit()
        cluster.until(lambda: cluster.job(job).node)
        one.ending = True
        cluster.until(lambda: cluster.view("one").state == "offline")
        cluster.until(lambda: not one.statuses, "its job to leave it")
        one.say(leaving=True)
        cluster.silence(one)
        cluster.until(lambda: _names(cluster) == {"two"})


def test_a_node_that_is_lost_is_forgotten_with_its_leases(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register(ends_in_s=7200.0)
        job = cluster.submit()
        cluster.until(lambda: (job, 1) in one.leased)
        one.run(job, 1)
        one.say()
        cluster.node("two").register()
        cluster.silence(one)
        cluster.until_silence_tells(lambda: _names(cluster) == {"two"})
        cluster.until(lambda: cluster.service.store.attempts(job)[0].end is not None, "its end")


def test_a_round_may_have_been_decided_as_its_node_was_forgotten(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        state = cluster.service.engine.state

        def forget() -> None:
            state.fleet.remove("one")
            state.rebuild_due = True

        cluster.do(forget)  # and the core has not been told
        cluster.silence(one)
        job = cluster.submit()
        two.register()
        cluster.until(lambda: any(key[0] == job for key in two.leased), "a start on the other")


def test_an_attempt_on_a_node_that_is_forgotten_is_over(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        job = cluster.submit()
        cluster.until(lambda: (job, 1) in one.leased)
        cluster.do(lambda: cluster.service.engine.state.remove_node("one"))
        cluster.silence(one)
        two.register()
        cluster.until(lambda: (job, 2) in two.leased, "a start on the other")
        assert cluster.service.store.attempts(job)[0].end is not None


@pytest.mark.parametrize("ends_in_s", [7200.0, -1.0])
def test_the_end_outlives_the_server(tmp_path: Path, ends_in_s: float) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register(ends_in_s=ends_in_s)
    with engine_nodes(tmp_path) as cluster:
        ends_s = cluster.service.engine.state.fleet.nodes["one"].agent.ends_s
        assert (ends_s > 0) == (ends_in_s > 0)
        one = cluster.node("one")
        one.register()
        assert not cluster.service.engine.state.fleet.nodes["one"].agent.ends_s, "it is another one"


def test_a_node_of_the_cluster_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[[node]]\nname = "one"\naccelerator = "v100"\ndevices = 1\n')
    with engine_nodes(tmp_path / "state", cluster_file=file) as cluster:
        one = cluster.node("one")
        one.register(ends_in_s=7200.0)
        one.say(leaving=True)
        cluster.silence(one)
        cluster.until(lambda: cluster.view("one").state == "offline")
        cluster.do(cluster.service.engine.parts.nodes.watch.poll)
        assert _names(cluster) == {"one"}
