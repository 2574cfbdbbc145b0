"""A server that was away: what is billed to attempts that ended meanwhile."""

import time
from pathlib import Path

from tests.cluster.server_nodes import ADMIN, LEASE_S, engine_nodes

AWAY_S = 6.0  # longer than a lease, its grace and the silence that is allowed
BUSY_S = 1.5  # that a machine may take between two lines of a test


def test_an_attempt_that_ran_on_for_longer_than_was_written_down_is_billed_until_its_node_says(
    tmp_path: Path,
) -> None:
    """Its leases were renewed, which is not written: the disk was full, and then the server was killed."""
    with engine_nodes(tmp_path) as cluster:
        node, job = cluster.node("one", "one.1"), cluster.submit()
        node.register()
        cluster.until(lambda: node.statuses.keys() & node.leased)
        (key,) = node.statuses
        node.run(*key, loaded_step=0, step=5, ran_s=1.0)
        cluster.until(lambda: cluster.job(job).steps >= 5)
    began = cluster.service.engine.state.now_s()
    time.sleep(AWAY_S)
    with engine_nodes(tmp_path) as cluster:
        again = cluster.node("one", "one.1")
        again.end(*key, exit_code=1, loaded_step=0, step=50, ended_age_s=0.0)
        again.register()
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[0].ended_s)
        ended = cluster.service.attempts(ADMIN, job)[0].ended_s
        assert ended is not None
        assert ended - began > AWAY_S - BUSY_S


def test_an_attempt_that_began_and_ended_while_the_server_was_away_is_billed_for_its_time(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node, job = cluster.node("one", "one.1"), cluster.submit()
        node.register()
        cluster.until(lambda: node.statuses.keys() & node.leased)
        (key,) = node.statuses
    began = cluster.service.engine.state.now_s()
    time.sleep(AWAY_S)
    with engine_nodes(tmp_path) as cluster:
        again = cluster.node("one", "one.1")
        again.end(*key, exit_code=1, loaded_step=0, step=5, ran_s=1.0, ended_age_s=AWAY_S - 1.0)
        again.register()
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[0].ended_s)
        attempt = cluster.service.attempts(ADMIN, job)[0]
        assert attempt.trained_s is not None
        assert attempt.ended_s is not None
        assert abs(attempt.trained_s - began) < BUSY_S
        assert abs(attempt.ended_s - began - 1.0) < BUSY_S


def test_attempts_that_ended_while_the_server_was_away_are_billed_until_then(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        nodes = [cluster.node(name, f"{name}.1") for name in ("one", "two")]
        jobs = [cluster.submit() for _ in nodes]
        for node in nodes:
            node.register()
        cluster.until(lambda: all(node.statuses.keys() & node.leased for node in nodes))
        for node in nodes:
            (key,) = node.statuses
            node.run(*key, loaded_step=0, step=5, ran_s=1.0)
        cluster.until(lambda: all(cluster.job(job).steps >= 5 for job in jobs))
    ended, began = time.monotonic(), cluster.service.engine.state.now_s()
    time.sleep(AWAY_S)
    with engine_nodes(tmp_path) as cluster:
        again = cluster.node("one", "one.1")
        ((job, attempt),) = nodes[0].statuses
        age_s = time.monotonic() - ended
        again.end(job, attempt, exit_code=1, loaded_step=0, step=5, ended_age_s=age_s)
        again.register()
        cluster.until(lambda: all(cluster.service.attempts(ADMIN, one)[0].ended_s for one in jobs))
        (other,) = set(jobs) - {job}
        told, lost = (cluster.service.attempts(ADMIN, one)[0].ended_s for one in (job, other))
        assert told is not None
        assert abs(told - began) < BUSY_S, "as its node told"
        assert lost is not None
        assert lost - began < AWAY_S, "no lease lasted any longer"
        assert lost >= began + LEASE_S / 2, "but that long it may have run"
