"""``fairlead.GymEnvironment``: the environment with arrays of fixed shapes. Skipped without Gymnasium."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.small import TABLE, job

from fairlead import Cluster, ConfigError, Environment, RunError
from fairlead.policies.las import Las

pytest.importorskip("gymnasium", reason="Gymnasium is not installed")

from gymnasium.utils.env_checker import check_env

from fairlead.simulator.gym_environment import GymEnvironment, fitting_shares

JOBS = [job(n, 700.0 * n, 20_000.0 * (1 + n % 3), 1 + n % 2) for n in range(8)]
CLUSTER = Cluster.of({"fast": 2, "slow": 2}, 1, {"fast": 3.0, "slow": 1.0})


def environment(**options: Any) -> GymEnvironment:
    return GymEnvironment(JOBS, CLUSTER, throughputs=TABLE, **options)


@pytest.mark.filterwarnings("ignore:.*Box observation space m")  # some features know no bounds
def test_gymnasiums_own_checks_pass() -> None:
    check_env(environment(max_jobs=4), skip_render_check=True)


def test_shares_of_a_policy_do_what_they_do_in_environment() -> None:
    plain = Environment(JOBS, CLUSTER, throughputs=TABLE)
    seen, _ = plain.reset(seed=0)
    wrapped = environment(max_jobs=16)
    wrapped.reset(seed=0)
    over = False
    while not over:
        shares = Las().allocate(seen).share[:, :]
        action = np.zeros(wrapped.action_space.shape)
        action[: len(shares)] = shares
        seen, reward, *ended, info = plain.step(shares)
        observed, same_reward, *same_ended, same_info = wrapped.step(action)
        assert same_reward == pytest.approx(reward)
        assert same_ended == ended
        assert info["avg_jct_s"] == pytest.approx(same_info["avg_jct_s"])
        over = any(ended)
    assert observed["present"].sum() == len(seen.jobs)


def test_any_action_is_cut_to_what_fits_and_jobs_beyond_the_rows_wait() -> None:
    random = np.random.default_rng(0)
    env = environment(max_jobs=2)
    _, info = env.reset(seed=0)
    hidden, over = 0, False
    while not over:
        snapshot = env._snapshot
        assert snapshot is not None
        share = fitting_shares(random.uniform(-2, 2, snapshot.solo_rate.shape), snapshot)
        assert (share.sum(axis=1) <= 1 + 1e-12).all()
        used = (snapshot.job_scale[:, None] * share).sum(axis=0)
        assert (used <= snapshot.capacity[snapshot.accelerator_of_slot] + 1e-9).all()
        hidden = max(hidden, info["n_hidden"])
        _, _, terminated, truncated, info = env.step(random.uniform(0, 1, (2, 2)))
        over = terminated or truncated
    assert hidden > 0
    assert info["n_completed"] == len(JOBS)


@pytest.mark.parametrize("max_jobs", [0, 2.5, True, 10**9])
def test_rows_are_a_number(max_jobs: Any) -> None:
    with pytest.raises(
        ConfigError, match="max_jobs: expected a whole number from 1 to 100000, got"
    ):
        environment(max_jobs=max_jobs)


def test_an_action_of_another_shape_is_refused() -> None:
    env = environment(max_jobs=3)
    env.reset()
    with pytest.raises(
        ConfigError, match=r"action: expected an array of shape \(3, 2\), got \(2,\)"
    ):
        env.step(np.zeros(2))
    with pytest.raises(ConfigError, match=r"action: expected an array of shape \(3, 2\), got 'x'"):
        env.step("x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="action: row 1, slot 0: expected a number, got nan"):
        env.step(np.array([[0.0, 0.0], [np.nan, 0.0], [0.0, 0.0]]))
    assert env.step(np.array([[2.0, -1.0], [0.0, 0.0], [0.0, 0.0]]))[4]["time_s"] > 0


def test_a_step_before_the_first_reset_is_one_sentence() -> None:
    with pytest.raises(RunError, match=r"the episode has not begun: call reset\(\) first"):
        environment().step(np.zeros((64, 2)))


def test_an_episode_begins_anew_and_a_fork_goes_on_alone() -> None:
    def rewards(env: GymEnvironment, steps: int = 10**6) -> list[float]:
        found = []
        while steps:
            _, reward, *ended, _ = env.step(np.full(env.action_space.shape, 0.3))
            found.append(reward)
            steps = 0 if any(ended) else steps - 1
        return found

    env = environment(max_jobs=4)
    first, info = env.reset(seed=0)
    whole = rewards(env)
    again, same_info = env.reset(seed=0)
    assert same_info == info
    assert all(np.array_equal(again[name], first[name]) for name in first)
    begun = rewards(env, 3)
    fork = env.fork()
    assert begun + rewards(env) == begun + rewards(fork) == whole
    rewards_left = fork.reset(seed=0)[1], rewards(fork)
    assert rewards_left == (info, whole)


def test_without_gymnasium_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import fairlead; fairlead.GymEnvironment([], '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "GymEnvironment needs the package gymnasium: pip install 'fairlead[gym]'" in done.stderr
