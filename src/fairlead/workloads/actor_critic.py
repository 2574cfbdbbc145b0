"""Advantage actor-critic on Pong, or on CartPole, which stands in where the Atari environments are absent.

Pong is played where ``ale_py`` is installed. CartPole is no Atari game: it has four numbers as observations
and a small network, so it shows how such a job is scheduled and saved, not how fast Pong trains.

The batch size is the number of environments; in each step all of them play 20 moves by the present policy,
which then learns from the returns, bootstrapped by its own value of what comes next. That is A3C (Mnih et
al., Asynchronous Methods for Deep Reinforcement Learning, ICML'16) with its workers in step with one another
instead of asynchronous, so that a run can be repeated.

There is no data set. ``--data`` is refused.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from fairlead.client.random_state import derive_seed
from fairlead.errors import InputError
from fairlead.workloads.data import TensorDataset
from fairlead.workloads.parts import BuildOptions, WorkloadParts

MOVES, DISCOUNT, VALUE_WEIGHT, ENTROPY_WEIGHT = 20, 0.99, 0.5, 0.01
LEARNING_RATE, MAX_NORM, ENVIRONMENTS = 1e-3, 0.5, 4
PONG_SIDE, FRAMES = 80, 2


class Episode:
    """One environment, played from episode to episode. Its state is the seed of its episode and the moves
    since then: any environment that is deterministic for a seed is put back by playing them again."""

    def __init__(self, place: tuple[int, int]) -> None:
        """place: rank, and number of the environment there."""
        self.place = place
        self.number = -1  # of the present episode
        self.moves: list[int] = []
        self._environment = make_environment()
        self._frames: list[np.ndarray[Any, Any]] = []
        self.begin(0)

    def begin(self, number: int) -> None:
        """Begin an episode."""
        self.number, self.moves = number, []
        first, _ = self._environment.reset(seed=derive_seed(*self.place, number) % (1 << 31))
        self._frames = [observed(first)] * FRAMES

    def play(self, move: int) -> tuple[float, bool]:
        """Return the reward of a move and whether the episode has ended with it; the next one has begun
        then."""
        seen, reward, terminated, truncated, _ = self._environment.step(move)
        self.moves.append(move)
        self._frames = [*self._frames[1:], observed(seen)]
        if terminated or truncated:
            self.begin(self.number + 1)
        return float(reward), bool(terminated or truncated)

    def observation(self) -> torch.Tensor:
        """The last two frames of a game, (2, side, side); or the numbers of the last one."""
        stacked = np.stack(self._frames) if self._frames[0].ndim == 2 else self._frames[-1]
        return torch.from_numpy(stacked.astype(np.float32))

    def put_back(self, number: int, moves: list[int]) -> None:
        """Be at this place of this episode."""
        self.begin(number)
        for move in moves:
            self.play(move)


class Episodes:
    """The environments of this rank, as an object with state."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._episodes: list[Episode] = []

    def first(self, count: int) -> list[Episode]:
        """So many of them; new ones are made where there are fewer."""
        while len(self._episodes) < count:
            self._episodes.append(Episode((self._rank, len(self._episodes))))
        return self._episodes[:count]

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": [[one.number, list(one.moves)] for one in self._episodes]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = state["episodes"]
        for episode, (number, moves) in zip(self.first(len(saved)), saved, strict=True):
            episode.put_back(number, moves)


class ActorCritic(nn.Module):
    """A policy and a value of what it sees."""

    def __init__(self, episodes: Episodes, body: nn.Module, width: int, moves: int) -> None:
        super().__init__()
        self.episodes = episodes
        self.body = body
        self.policy, self.value = nn.Linear(width, moves), nn.Linear(width, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(environments,) of this rank, of which only the number counts -> the loss of what they played."""
        episodes = self.episodes.first(len(rows))
        seen, moves, returns = self._play(episodes, rows.device)
        hidden = self.body(seen)
        log_policy, value = self.policy(hidden).log_softmax(1), self.value(hidden)[:, 0]
        advantage = returns - value
        chosen = log_policy.gather(1, moves[:, None])[:, 0]
        entropy = -(log_policy.exp() * log_policy).sum(1).mean()
        actor = -(chosen * advantage.detach()).mean()
        return actor + VALUE_WEIGHT * advantage.square().mean() - ENTROPY_WEIGHT * entropy

    def _play(
        self, episodes: list[Episode], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Observations, moves and returns, each (MOVES x environments, ...)."""
        seen, moves, rewards, goes_on = [], [], [], []
        with torch.no_grad():
            for _ in range(MOVES):
                now = torch.stack([one.observation() for one in episodes])
                policy = self.policy(self.body(now.to(device))).softmax(1).cpu()
                move = policy.multinomial(1)[:, 0]
                played = [
                    one.play(number) for one, number in zip(episodes, move.tolist(), strict=True)
                ]
                seen.append(now)
                moves.append(move)
                rewards.append(torch.tensor([reward for reward, _ in played]))
                goes_on.append(torch.tensor([0.0 if ended else 1.0 for _, ended in played]))
            last = torch.stack([one.observation() for one in episodes])
            value = self.value(self.body(last.to(device)))[:, 0].cpu()
        returns = discounted(rewards, goes_on, value)
        return torch.cat(seen).to(device), torch.cat(moves).to(device), returns.to(device)


def discounted(
    rewards: list[torch.Tensor], goes_on: list[torch.Tensor], value: torch.Tensor
) -> torch.Tensor:
    """Return the discounted returns of all moves in turn. goes_on: 0 where an episode ended with the move.
    value: of what comes after the last move."""
    returns = []
    for reward, on in zip(reversed(rewards), reversed(goes_on), strict=True):
        value = reward + DISCOUNT * on * value
        returns.append(value)
    return torch.cat(returns[::-1])


def has_pong() -> bool:
    """Whether the Atari environments are installed."""
    return find_spec("ale_py") is not None


def make_environment() -> Any:
    """Pong, or CartPole in its place."""
    if not has_pong():
        return gymnasium.make("CartPole-v1")
    gymnasium.register_envs(import_module("ale_py"))
    return gymnasium.make("ALE/Pong-v5", obs_type="grayscale")


def observed(frame: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of a frame of Pong (210, 160) the playing field, at half the resolution, in -1 to 1; all else as it
    is."""
    if frame.ndim != 2:
        return frame
    field: np.ndarray[Any, Any] = frame[34:194:2, ::2] / 127.5 - 1
    return field


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: 16 units of CartPole instead of 128."""
    if options.data is not None:
        raise InputError(f"--data: a3c plays a game and reads no data, got {str(options.data)!r}")
    environment = make_environment()
    body, width = pong_body() if has_pong() else cartpole_body(16 if options.small else 128)
    episodes = Episodes(options.rank)
    return WorkloadParts(
        model=ActorCritic(episodes, body, width, int(environment.action_space.n)),
        samples=TensorDataset(torch.arange(ENVIRONMENTS)),
        make_optimizer=partial(torch.optim.Adam, lr=LEARNING_RATE),
        learning_rate=LEARNING_RATE,
        growth_power=0.5,
        max_norm=MAX_NORM,
        state={"episodes": episodes},
    )


def cartpole_body(width: int) -> tuple[nn.Module, int]:
    """Return a network for four numbers, and the width of what it gives."""
    return nn.Sequential(nn.Linear(4, width), nn.Tanh()), width


def pong_body() -> tuple[nn.Module, int]:
    """Return a network for two frames, and the width of what it gives."""
    side = PONG_SIDE // 8 - 2
    layers = [
        *(nn.Conv2d(FRAMES, 16, 8, 4), nn.ReLU()),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * side * side, 256), nn.ReLU()),
    ]
    return nn.Sequential(*layers), 256
