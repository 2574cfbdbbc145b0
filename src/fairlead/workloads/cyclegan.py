"""CycleGAN on monet2photo: 6,287 photographs and 1,072 paintings of 256 x 256 pixels, unpaired.

Two generators of nine residual blocks translate between the domains, two discriminators judge patches, all
with instance normalisation; least-squares, cycle and identity losses with the weights 1, 10 and 5, and pools
of 50 earlier translations for the discriminators (Zhu et al., Unpaired Image-to-Image Translation, ICCV'17).
A folder of data has the paintings in ``trainA`` and the photographs in ``trainB``.

Generators and discriminators learn from one loss with one optimizer: neither's part of the loss has a
gradient in the other's weights, so this equals two steps from the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import torch
from torch import nn

from fairlead.workloads.data import (
    Dataset,
    ImageFiles,
    UnpairedDataset,
    generate_images,
    image_paths,
)
from fairlead.workloads.parts import BuildOptions, WorkloadParts

PHOTOGRAPHS, PAINTINGS, SIDE = 6_287, 1_072, 256
WIDTH, BLOCKS, POOL, LEARNING_RATE = 64, 9, 50, 2e-4
CYCLE_WEIGHT, IDENTITY_WEIGHT = 10.0, 5.0


class GeneratorBlock(nn.Module):
    """Two convolutions with a path around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_layer(width, width, 3), *_layer(width, width, 3)[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return x + self.layers(x)


class ImagePool(nn.Module):
    """Earlier translations, half of which a discriminator sees in place of new ones. Part of the checkpoint,
    as they are buffers."""

    def __init__(self, capacity: int, side: int) -> None:
        super().__init__()
        self.register_buffer("images", torch.zeros(capacity, 3, side, side))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return as many images, each new or earlier."""
        return torch.stack([self._exchange(image) for image in images.detach()])

    def _exchange(self, image: torch.Tensor) -> torch.Tensor:
        count = int(self.count)
        if count < len(self.images):
            self.images[count] = image
            self.count += 1
            return image
        keeps, place = torch.rand(()).item() < 0.5, int(torch.randint(count, ()))
        if keeps:
            return image
        earlier = self.images[place].clone()
        self.images[place] = image
        return earlier


class Discriminator(nn.Module):
    """Judges overlapping patches; its losses are those of least squares."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(width, 2 * width, 4, 2, 1), nn.InstanceNorm2d(2 * width)),
            *(nn.LeakyReLU(0.2), nn.Conv2d(2 * width, 1, 4, 1, 1)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 3, side, side) -> a score for each patch, 1 = real."""
        return self.layers(images)

    def deceived(self, images: torch.Tensor) -> torch.Tensor:
        """The generator's loss: how far its images are from being taken for real. Without a gradient in the
        weights of this network."""
        frozen = {name: weight.detach() for name, weight in self.named_parameters()}
        return (torch.func.functional_call(self, frozen, (images,)) - 1).square().mean()

    def mistaken(self, real: torch.Tensor, translated: torch.Tensor) -> torch.Tensor:
        """The discriminator's loss."""
        return ((self(real) - 1).square().mean() + self(translated).square().mean()) / 2


class CycleGan(nn.Module):
    """Both directions, and the sum of all losses."""

    def __init__(self, *, side: int, width: int, blocks: int) -> None:
        super().__init__()
        self.to_photograph = _generator(width, blocks)
        self.to_painting = _generator(width, blocks)
        self.judge_photograph, self.judge_painting = Discriminator(width), Discriminator(width)
        self.photographs, self.paintings = ImagePool(POOL, side), ImagePool(POOL, side)

    def forward(self, photographs: torch.Tensor, paintings: torch.Tensor) -> torch.Tensor:
        """(n, 3, side, side) bytes each -> the sum of the losses of all four networks."""
        photograph, painting = (x.float() / 127.5 - 1 for x in (photographs, paintings))
        new_painting, new_photograph = self.to_painting(photograph), self.to_photograph(painting)
        generators = (
            self.judge_painting.deceived(new_painting)
            + self.judge_photograph.deceived(new_photograph)
            + CYCLE_WEIGHT * _distance(self.to_photograph(new_painting), photograph)
            + CYCLE_WEIGHT * _distance(self.to_painting(new_photograph), painting)
            + IDENTITY_WEIGHT * _distance(self.to_photograph(photograph), photograph)
            + IDENTITY_WEIGHT * _distance(self.to_painting(painting), painting)
        )
        discriminators = self.judge_painting.mistaken(
            painting, self.paintings(new_painting)
        ) + self.judge_photograph.mistaken(photograph, self.photographs(new_photograph))
        return generators + discriminators


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: an eighth of the width, one block, 32 x 32 pixels."""
    side, width, blocks = (32, 8, 1) if options.small else (SIDE, WIDTH, BLOCKS)
    photographs, paintings = _domains(options, side)
    return WorkloadParts(
        model=CycleGan(side=side, width=width, blocks=blocks),
        samples=UnpairedDataset(photographs, paintings),
        make_optimizer=partial(torch.optim.Adam, lr=LEARNING_RATE, betas=(0.5, 0.999)),
        learning_rate=LEARNING_RATE,
        growth_power=0.5,
    )


def _domains(options: BuildOptions, side: int) -> Iterator[Dataset]:
    """Photographs, and paintings."""
    if options.data is not None:
        for name in ("trainB", "trainA"):
            yield ImageFiles(image_paths(options.data / name), side)
    else:
        for count in (20, 10) if options.small else (PHOTOGRAPHS, PAINTINGS):
            yield generate_images(count, side, 1, labelled=False)


def _generator(width: int, blocks: int) -> nn.Sequential:
    down = [_layer(width << i, width << i + 1, 3, stride=2) for i in range(2)]
    up = [
        (nn.Upsample(scale_factor=2), *_layer(width << i + 1, width << i, 3))
        for i in reversed(range(2))
    ]
    middle = [GeneratorBlock(4 * width) for _ in range(blocks)]
    last = (nn.Conv2d(width, 3, 7, padding=3, padding_mode="reflect"), nn.Tanh())
    return nn.Sequential(*_layer(3, width, 7), *chain(*down), *middle, *chain(*up), *last)


def _layer(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Module, ...]:
    same = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, padding_mode="reflect")
    return same, nn.InstanceNorm2d(outputs), nn.ReLU()


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one - other).abs().mean()
