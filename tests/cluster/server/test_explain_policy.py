"""What ``explain`` says after the policy was changed."""

from collections.abc import Callable
from pathlib import Path

from tests.cluster.server_nodes import ADMIN, EngineNodes, engine_nodes

from fairlead.cluster.server.decided_shares import DecidedShares


def test_a_policy_without_shares_is_said_to_give_none(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        jobs = [cluster.submit() for _ in range(2)]

        def facts(job: int) -> str:
            return " ".join(cluster.service.explain(ADMIN, job).facts)

        cluster.until(lambda: all(" of the time on v100" in facts(job) for job in jobs), "shares")
        cluster.service.set_policy(ADMIN, "proportional")
        cluster.until(lambda: "Policy proportional gives it" in facts(jobs[0]), "its decision")
        assert "until policy" not in facts(jobs[0])
        cluster.service.set_policy(ADMIN, "fifo")
        jobs.append(cluster.submit())
        cluster.until(lambda: "takes part in the next" not in facts(jobs[2]), "the next decision")
        _check_no_shares(jobs, facts)
        decided = cluster.service.engine.state.decided
        cluster.service.set_policy(ADMIN, "shockwave")
        cluster.until(lambda: _has_decided_anew(cluster, decided), "its decision")
        _check_no_shares(jobs, facts)


def _check_no_shares(jobs: list[int], facts: Callable[[int], str]) -> None:
    for job in jobs:
        assert " of the time on v100" not in facts(job)
        assert "last solve" not in facts(job)


def _has_decided_anew(cluster: EngineNodes, before: DecidedShares) -> bool:
    """Whether the policy in force has decided since."""
    state = cluster.service.engine.state
    return state.decided is not before and state.decided.policy == state.policy
