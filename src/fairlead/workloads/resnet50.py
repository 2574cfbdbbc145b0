"""ResNet-50 on ImageNet: images of 224 x 224 pixels in 1,000 classes, 100,000 of them per pass.

The network of He et al. (Deep Residual Learning, CVPR'16), its stride in the convolution of 3 x 3. A folder
of data has a folder of images for each class; a pass is over all that are there.
"""

from __future__ import annotations

from torch import nn

from fairlead.workloads.data import Dataset, generate_images, read_image_classes
from fairlead.workloads.parts import BuildOptions, WorkloadParts
from fairlead.workloads.residual_network import (
    bottleneck_block,
    classification,
    convolution,
    residual_network,
)

SAMPLES, SIDE, CLASSES = 100_000, 224, 1_000


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: an eighth of the width, 160 images of 64 x 64 pixels."""
    width, side = (8, 64) if options.small else (64, SIDE)
    samples: Dataset
    if options.data is None:
        classes = 10 if options.small else CLASSES
        samples = generate_images(160 if options.small else SAMPLES, side, classes)
    else:
        samples, classes = read_image_classes(options.data, side)
    stem = (convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
    network = residual_network(stem, bottleneck_block, (3, 4, 6, 3), width, classes)
    return classification(network, samples, weight_decay=1e-4, learning_rate=0.0125)
