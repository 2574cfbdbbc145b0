"""ResNet-18 on CIFAR-10: 50,000 images of 32 x 32 pixels in 10 classes.

The network of He et al. (Deep Residual Learning, CVPR'16) with a stem for small images: one convolution of
3 x 3 without pooling.
"""

from __future__ import annotations

from torch import nn

from fairlead.workloads.data import generate_images, read_cifar
from fairlead.workloads.parts import BuildOptions, WorkloadParts
from fairlead.workloads.residual_network import (
    basic_block,
    classification,
    convolution,
    residual_network,
)

SAMPLES, SIDE, CLASSES = 50_000, 32, 10


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: an eighth of the width, 160 images."""
    width = 8 if options.small else 64
    if options.data is None:
        samples = generate_images(160 if options.small else SAMPLES, SIDE, CLASSES)
    else:
        samples = read_cifar(options.data)
    stem = (convolution(3, width, 3), nn.ReLU())
    network = residual_network(stem, basic_block, (2, 2, 2, 2), width, CLASSES)
    return classification(network, samples, weight_decay=5e-4, learning_rate=0.05)
