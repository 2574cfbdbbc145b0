"""Residual networks for images, and the loss with which they learn classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from fairlead.workloads.data import Dataset
from fairlead.workloads.parts import WorkloadParts


class ResidualBlock(nn.Module):
    """Convolutions with a path around them, which is a projection where the shape changes."""

    def __init__(self, layers: Sequence[nn.Module], inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        is_same = inputs == outputs and stride == 1
        self.around = nn.Identity() if is_same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, inputs, height, width) -> (n, outputs, height / stride, width / stride)."""
        return torch.relu(self.layers(x) + self.around(x))


class ImageClassifier(nn.Module):
    """A network that answers with a loss: bytes of images are augmented (shifted by up to an eighth of their
    side, mirrored at random) and normalised first."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(n, 3, side, side) bytes, (n,) classes -> the mean cross entropy."""
        x = augment(images).float() / 127.5 - 1
        return nn.functional.cross_entropy(self.network(x), labels)


def augment(images: torch.Tensor) -> torch.Tensor:
    """Return the images shifted, all by the same random step, and each mirrored or not."""
    reach = images.shape[-1] // 8
    down, right = torch.randint(-reach, reach + 1, (2,)).tolist()
    shifted = images.roll((down, right), dims=(2, 3))
    mirrored = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(mirrored[:, None, None, None], shifted.flip(3), shifted)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the size, but for the stride, and batch normalisation."""
    same = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(same, nn.BatchNorm2d(outputs))


def basic_block(inputs: int, width: int, stride: int) -> tuple[ResidualBlock, int]:
    """Two convolutions of 3 x 3, and the channels that come out."""
    layers = [convolution(inputs, width, 3, stride), nn.ReLU(), convolution(width, width, 3)]
    return ResidualBlock(layers, inputs, width, stride), width


def bottleneck_block(inputs: int, width: int, stride: int) -> tuple[ResidualBlock, int]:
    """1 x 1, 3 x 3 and 1 x 1, with four times the width at the end."""
    layers = [
        *(convolution(inputs, width, 1), nn.ReLU()),
        *(convolution(width, width, 3, stride), nn.ReLU()),
        convolution(width, 4 * width, 1),
    ]
    return ResidualBlock(layers, inputs, 4 * width, stride), 4 * width


def residual_network(
    stem: Sequence[nn.Module],
    block: Callable[[int, int, int], tuple[ResidualBlock, int]],
    blocks: Sequence[int],
    width: int,
    classes: int,
) -> nn.Sequential:
    """Return a network of stages of ``blocks``; each stage after the first halves the sides and doubles the
    width. stem: what comes before, with ``width`` channels at its end."""
    layers: list[nn.Module] = [*stem]
    channels = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            stride = 2 if stage and i == 0 else 1
            made, channels = block(channels, width << stage, stride)
            layers.append(made)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    return nn.Sequential(*layers, *head)


def classification(
    network: nn.Module, samples: Dataset, *, weight_decay: float, learning_rate: float
) -> WorkloadParts:
    """Return the parts of a workload that classifies images, by SGD with momentum."""
    sgd: Callable[[Any], torch.optim.Optimizer] = partial(
        torch.optim.SGD, lr=learning_rate, momentum=0.9, weight_decay=weight_decay
    )
    return WorkloadParts(
        model=ImageClassifier(network),
        samples=samples,
        make_optimizer=sgd,
        learning_rate=learning_rate,
    )
