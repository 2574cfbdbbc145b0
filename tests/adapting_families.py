"""Families that adapt, for tests of their profiles."""

from hypothesis import strategies as st

from fairlead.model.adaptation import Adaptation, Mode, steps_per_epoch
from fairlead.model.batch_size_rules import SAMPLES_PER_EPOCH

SIZES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 64, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
    "A3C": (4,),
}
families = st.sampled_from([(m, b) for m, sizes in SIZES.items() for b in sizes])
rules = st.sampled_from([Mode.STATIC, Mode.ACCORDION, Mode.GNS])
scales = st.sampled_from([1, 2, 4, 8])


def name(family: tuple[str, int]) -> str:
    return f"{family[0]} (batch size {family[1]})"


def steps(family: tuple[str, int], epochs: float) -> float:
    return epochs * steps_per_epoch(SAMPLES_PER_EPOCH[family[0]], family[1])


def batch_at(adaptation: Adaptation, epoch: int) -> int:
    return [batch for first, batch in adaptation.schedule if first <= epoch][-1]
