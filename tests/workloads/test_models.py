"""What is particular to single models."""

from typing import Any

import pytest
from tests.workloads.needs import NEEDS_GYMNASIUM, NEEDS_TORCH

pytestmark = NEEDS_TORCH


def has_gradient(model: Any) -> bool:
    return any(weight.grad is not None and weight.grad.any() for weight in model.parameters())


def test_generators_and_discriminators_do_not_learn_from_each_others_losses() -> None:
    import torch

    from fairlead.workloads.cyclegan import CycleGan

    model = CycleGan(side=16, width=4, blocks=1)
    photograph = torch.rand(1, 3, 16, 16)
    translated = model.to_painting(photograph)
    model.judge_painting.deceived(translated).backward(retain_graph=True)
    assert has_gradient(model.to_painting)
    assert not has_gradient(model.judge_painting)
    model.zero_grad()
    model.judge_painting.mistaken(photograph, model.paintings(translated)).backward()
    assert has_gradient(model.judge_painting)
    assert not has_gradient(model.to_painting)


def test_a_pool_shows_new_images_until_it_is_full_and_then_earlier_ones_too() -> None:
    import torch

    from fairlead.workloads.cyclegan import ImagePool

    torch.manual_seed(0)
    pool = ImagePool(capacity=3, side=1)
    shown = [int(pool(torch.full((1, 3, 1, 1), float(i)))[0, 0, 0, 0]) for i in range(20)]
    assert shown[:3] == [0, 1, 2]
    assert 0 < sum(seen < i for i, seen in enumerate(shown)) < 17
    assert len(set(shown[3:])) == 17, "one that was shown in place of a new one is there no more"


def test_a_translation_is_guessed_from_the_words_before_each() -> None:
    import torch

    from fairlead.workloads.translation import Translator

    model = Translator(vocabulary=20, width=16, layers=1)
    source = torch.tensor([[5, 6, 7]])
    seen: list[torch.Tensor] = []
    model.scores.register_forward_hook(lambda _module, _inputs, scores: seen.append(scores))
    for target in ([2, 8, 9, 3], [2, 8, 10, 3]):
        torch.manual_seed(0)  # the same units drop out
        model(source, torch.tensor([target]))
    assert torch.allclose(seen[0][0, :2], seen[1][0, :2], atol=1e-6)
    assert not torch.allclose(seen[0][0, 2], seen[1][0, 2], atol=1e-6)


@NEEDS_GYMNASIUM
def test_returns_are_discounted_and_end_with_their_episode() -> None:
    import torch

    from fairlead.workloads.actor_critic import DISCOUNT, discounted

    rewards = [torch.tensor([1.0, 1.0]), torch.tensor([0.0, 2.0])]
    goes_on = [torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])]
    returns = discounted(rewards, goes_on, torch.tensor([4.0, 4.0]))
    expected = [1 + DISCOUNT**2 * 4, 1.0, DISCOUNT * 4, 2 + DISCOUNT * 4]
    assert returns.tolist() == pytest.approx(expected)


@NEEDS_GYMNASIUM
def test_an_episode_is_put_back_by_its_seed_and_moves() -> None:
    import torch

    from fairlead.workloads.actor_critic import Episode

    first, second = Episode((0, 1)), Episode((0, 1))
    for move in [0, 1] * 40:
        first.play(move)
    second.put_back(first.number, list(first.moves))
    assert torch.equal(first.observation(), second.observation())
    assert [first.play(1) for _ in range(30)] == [second.play(1) for _ in range(30)]
    assert first.number == second.number > 0


@NEEDS_GYMNASIUM
def test_the_network_for_pong_takes_two_frames_of_the_field() -> None:
    import numpy as np
    import torch

    from fairlead.workloads.actor_critic import FRAMES, observed, pong_body

    frame = observed(np.full((210, 160), 255, dtype=np.uint8))
    assert (frame.shape, frame.max()) == ((80, 80), 1.0)
    body, width = pong_body()
    seen = torch.from_numpy(np.stack([frame] * FRAMES)[None].astype(np.float32))
    assert body(seen).shape == (1, width)
