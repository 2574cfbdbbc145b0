"""The workloads by name: what the papers say of each, and the module that builds it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from fairlead.workloads.parts import BuildOptions, WorkloadParts


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and its data set.

    family: the name of the catalogue, without a batch size.
    batch_sizes: those of the papers; the first is the default, the last the one that adaptation grows to.
    module: in this package; its ``build`` makes the parts.
    save_ranks: whose state a checkpoint has to hold.
    """

    name: str
    family: str
    about: str
    batch_sizes: tuple[int, ...]
    module: str
    save_ranks: Literal["zero", "all"] = "zero"

    def build(self, options: BuildOptions) -> WorkloadParts:
        """Return the model, its samples and its optimizer. Raises ConfigError where a library is absent, and
        InputError where the folder of data cannot be used."""
        try:
            module = import_module(f"fairlead.workloads.{self.module}")
        except ModuleNotFoundError as problem:
            raise ConfigError(missing_library(self.name, problem.name)) from None
        parts: WorkloadParts = module.build(options)
        return parts


WORKLOADS = {
    one.name: one
    for one in (
        Workload(
            name="resnet18",
            family="ResNet-18",
            about="image classification, CIFAR-10",
            batch_sizes=(16, 32, 64, 128, 256),
            module="resnet18",
        ),
        Workload(
            name="resnet50",
            family="ResNet-50",
            about="image classification, ImageNet",
            batch_sizes=(16, 32, 64, 128),
            module="resnet50",
        ),
        Workload(
            name="cyclegan",
            family="CycleGAN",
            about="image-to-image translation, monet2photo",
            batch_sizes=(1,),
            module="cyclegan",
        ),
        Workload(
            name="a3c",
            family="A3C",
            about="actor-critic reinforcement learning, Pong (or CartPole)",
            batch_sizes=(4,),
            module="actor_critic",
            save_ranks="all",  # each rank has the episodes of its own environments
        ),
        Workload(
            name="lm",
            family="LM",
            about="LSTM language model, Wikitext-2",
            batch_sizes=(5, 10, 20, 40, 80),
            module="language_model",
        ),
        Workload(
            name="transformer",
            family="Transformer",
            about="translation, Multi30k",
            batch_sizes=(16, 32, 64, 128, 256),
            module="translation",
        ),
        Workload(
            name="recommendation",
            family="Recommendation",
            about="autoencoder of ratings, ML-20M",
            batch_sizes=(512, 1024, 2048, 4096, 8192),
            module="recommendation",
        ),
    )
}


def missing_library(who: str, library: str | None) -> str:
    """The sentence for a workload that needs a library which is not installed."""
    return f"{who}: needs {library}, which is not installed: pip install 'fairlead[workloads]'"
