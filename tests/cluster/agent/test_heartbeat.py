"""Heartbeats stay spread, whatever made nodes report in between."""

import random

import pytest

from fairlead.cluster.agent.heartbeat import until_heartbeat_s


@pytest.mark.parametrize("heartbeat_s", [0.05, 2.0, 20.0])
def test_no_report_comes_later_than_promised_and_none_follows_at_once(heartbeat_s: float) -> None:
    draw = random.Random(1)
    for _ in range(1_000):
        wait_s = until_heartbeat_s(
            heartbeat_s=heartbeat_s, phase=draw.random(), now=draw.uniform(0.0, 1e6)
        )
        assert 0.1 * heartbeat_s - 1e-6 <= wait_s <= heartbeat_s + 1e-6


def test_nodes_that_reported_together_do_not_send_heartbeats_together() -> None:
    draw = random.Random(2)
    at = sorted(
        until_heartbeat_s(heartbeat_s=4.0, phase=draw.random(), now=1_000.0) for _ in range(1_000)
    )
    most = max(sum(1 for other in at if start <= other < start + 0.4) for start in at)
    assert most < 200  # of 1,000 in a ninth of the period, where 111 are to be expected


def test_a_node_keeps_its_place_in_the_period() -> None:
    now, places = 5.0, set()
    for _ in range(50):
        now += until_heartbeat_s(heartbeat_s=2.0, phase=0.3, now=now)
        places.add(round(now / 1.8 % 1.0, 6))
        now += 0.01  # the call
    assert places == {0.3}
