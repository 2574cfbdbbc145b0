"""Nodes that are well, that are not, and that somebody says are not; see ``engine_nodes``."""

from pathlib import Path

from tests.live.engine_nodes import ADMIN, engine_nodes


def test_a_cordoned_node_is_given_no_jobs_and_says_why(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        two.register()
        watch = cluster.service.engine.membership
        cluster.do(lambda: watch.cordon("one", "3 jobs failed there"))
        view = cluster.view("one")
        assert (view.state, view.reason) == ("unhealthy", "3 jobs failed there")
        assert view.state_since_s is not None
        first, second = cluster.submit(), cluster.submit()
        cluster.until(lambda: two.jobs & {first, second})
        assert one.jobs == set()
        cluster.do(lambda: watch.uncordon("one"))
        assert cluster.view("one").state == "up"
        cluster.until(lambda: one.jobs)


def test_a_cordon_outlives_the_server_and_an_administrator_ends_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        cluster.do(lambda: cluster.service.engine.membership.cordon("one", "it eats jobs"))
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one", "one.2")
        one.register()
        assert cluster.view("one").reason == "it eats jobs"
        cluster.service.undrain(ADMIN, "one")
        assert cluster.view("one").state == "up"
