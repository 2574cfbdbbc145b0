"""A server that is started again with a shorter lease keeps to those that were granted before."""

import time
from pathlib import Path

import pytest
from tests.cluster.server_nodes import engine_nodes

from fairlead.cluster.store.backup import back_up, restore
from fairlead.cluster.store.lease_lengths import LEASE_LENGTHS, decode_lengths

LONG_S, SHORT_S = 6.0, 1.0


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_job_is_not_started_again_before_an_old_lease_is_over(
    tmp_path: Path, restarts: int
) -> None:
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit(unmanaged=True, grace_s=0.0)
        cluster.until(lambda: (job, 1) in one.leased)
        one.run(job, 1)
        one.say()
        renewed_s = time.monotonic()
        cluster.silence(one)
    for _ in range(restarts - 1):
        with engine_nodes(tmp_path, lease_s=SHORT_S):
            pass
    with engine_nodes(tmp_path, lease_s=SHORT_S) as cluster:
        two = cluster.node("two")
        two.register()
        cluster.until(lambda: (job, 2) in two.leased)
        assert time.monotonic() - renewed_s >= LONG_S


def test_a_state_that_replaces_another_keeps_to_the_leases_of_that(tmp_path: Path) -> None:
    """The backup is from before the lease was made longer."""
    state, backup = tmp_path / "s", tmp_path / "backup"
    with engine_nodes(state, lease_s=SHORT_S) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit(unmanaged=True, grace_s=0.0)
        cluster.until(lambda: (job, 1) in one.leased)
    back_up(state, backup)
    with engine_nodes(state, lease_s=LONG_S):
        pass
    restore(backup, state, replace=True)
    with engine_nodes(state, lease_s=SHORT_S) as cluster:

        def ends_s() -> float:
            found = decode_lengths(cluster.service.store.meta(LEASE_LENGTHS))
            return max((one.until_s or 0.0 for one in found if one.lease_s == LONG_S), default=0.0)

        cluster.until(lambda: ends_s() > 0.0)
        assert ends_s() > cluster.service.engine.state.now_s()


def test_a_lease_that_was_long_ago_holds_up_nothing(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0):
        pass
    with engine_nodes(tmp_path, lease_s=SHORT_S) as cluster:
        clock = cluster.service.engine.state.clock
        clock._offset_s = (clock._offset_s or 0.0) + 100.0
        cluster.submit()  # a commit, with the time
    with engine_nodes(tmp_path, lease_s=SHORT_S) as cluster:
        one = cluster.node("one")
        one.register()
        now = cluster.service.engine.state.fleet.monotonic()
        assert cluster.service.engine.state.fleet.nodes["one"].leases.until - now < 10.0
