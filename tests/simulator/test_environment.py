"""``fairlead.Environment``: the simulator, decided step by step."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.small import TABLE, job, run

from fairlead import Allocation, AllocationError, Cluster, Environment, InputError, Snapshot
from fairlead.policies.las import Las

JOBS = [job(n, 700.0 * n, 20_000.0 * (1 + n % 3), 1 + n % 2) for n in range(8)]
CLUSTER = Cluster.of({"fast": 2, "slow": 2}, 1, {"fast": 3.0, "slow": 1.0})


def environment(**options: Any) -> Environment:
    return Environment(JOBS, CLUSTER, throughputs=TABLE, **options)


def play(env: Environment, seen: Snapshot, most: int = 10**6) -> tuple[float, dict[str, Any], bool]:
    """Let LAS decide: the sum of rewards, the last info, whether the episode was terminated."""
    info: dict[str, Any] = {}
    total, over, terminated = 0.0, False, False
    while not over and most:
        seen, reward, terminated, truncated, info = env.step(Las().allocate(seen))
        total, over, most = total + reward, terminated or truncated, most - 1
    return total, info, terminated


def test_a_policy_that_decides_step_by_step_does_what_it_does_in_simulate() -> None:
    env = environment()
    seen, _ = env.reset()
    total, info, terminated = play(env, seen)
    whole = run(JOBS, fast=2, slow=2, policy=Las())
    assert terminated
    assert info["avg_jct_s"] == pytest.approx(whole.metrics["avg_jct_s"], rel=1e-12)
    assert -total * 3600 == pytest.approx(float(whole.jobs["jct_s"].sum()), rel=1e-9)


def test_a_fork_goes_on_alone_and_a_seed_gives_the_same_episode_again() -> None:
    env = environment()
    seen, _ = env.reset(seed=3)
    for _ in range(4):
        seen, *_ = env.step(Las().allocate(seen))
    fork = env.fork()
    rest = play(env, seen)
    assert play(fork, seen) == rest
    first = play(env, env.reset(seed=3)[0])
    assert play(env, env.reset(seed=3)[0], 3)[0] != first[0]  # abandoned after three steps
    assert play(env, env.reset(seed=3)[0]) == first


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_an_episode_begins_anew_wherever_the_last_one_was_left(steps: int) -> None:
    fresh = environment()
    first, info = fresh.reset(seed=0)
    whole = play(fresh, first)
    env = environment()
    seen, _ = env.reset(seed=0)
    for _ in range(steps):
        seen, *_ = env.step(Las().allocate(seen))
    for again in (env, env.fork()):
        seen, same_info = again.reset(seed=0)
        assert same_info == info
        assert (seen.now_s, seen.jobs.tolist()) == (first.now_s, first.jobs.tolist())
        assert play(again, seen) == whole


def test_what_an_action_may_not_be_is_said_and_can_be_mended() -> None:
    env = environment()
    seen, _ = env.reset()
    shape = len(seen.jobs), len(seen.slots)
    with pytest.raises(InputError, match=r"expected an array of shape \(1, 2\), got \(3, 3\)"):
        env.step(np.zeros((3, 3)))
    with pytest.raises(AllocationError, match="above 1"):
        env.step(np.ones(shape))
    with pytest.raises(
        AllocationError, match="job 0: the share on fast must be from 0 to 1, got nan"
    ):
        env.step(np.full(shape, np.nan))
    assert isinstance(Las().allocate(seen), Allocation)
    env.step(Las().allocate(seen))


def test_an_allocation_as_action_is_checked_and_may_be_lists() -> None:
    env = environment()
    seen, _ = env.reset()
    good = Las().allocate(seen)
    for wrong, message in (
        (replace(good, share=np.zeros((len(good.share), 6))), "share must have shape"),
        (replace(good, job_groups=np.full((len(good.share), 1), 10**6)), "job 1000000 is not in"),
        (replace(good, job_groups=np.array([[1]])), "job 1 is not in the snapshot"),
    ):
        with pytest.raises(AllocationError, match=message):
            env.step(wrong)
    as_lists: Any = {"job_groups": good.job_groups.tolist(), "share": good.share.tolist()}
    fork = env.fork()
    expected, *same = env.step(good)
    seen, *rest = fork.step(replace(good, **as_lists))
    assert rest == same
    assert seen.jobs.tolist() == expected.jobs.tolist()


def test_an_episode_that_is_cut_off_is_truncated_and_needs_a_reset() -> None:
    env = environment(stop_at_s=3_000.0)
    seen, _ = env.reset()
    _, info, terminated = play(env, seen)
    assert not terminated
    assert info["time_s"] <= 3_000.0
    with pytest.raises(InputError, match=r"call reset\(\)"):
        env.step(Las().allocate(seen))
    with pytest.raises(InputError, match="takes no ideal"):
        environment(ideal=True)
