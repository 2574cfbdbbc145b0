"""Rules by which a job changes its batch size as it trains: never, by Accordion, by the gradient noise scale.

Each keeps what it has to remember in ``memory``, a dictionary of plain data and tensors that is part of the
checkpoint. A rule is shown the gradient of every step, the same on all ranks, and asked for the batch size
at the end of every pass over the data.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

Mode = Literal["static", "accordion", "gns"]


class StaticRule:
    """The batch size stays as it is. needs_gradients: whether ``observe`` has to be called."""

    needs_gradients = False

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}

    def observe(self, gradient: torch.Tensor, batch_size: int) -> None:
        """See the gradient of a step, as one vector, which was averaged over ``batch_size`` samples."""

    def next_batch_size(self, batch_size: int) -> int:
        """Return the batch size of the next pass over the data."""
        return batch_size


class AccordionRule(StaticRule):
    """A large batch except in critical regimes, in which the gradient changes fast.

    A regime is critical where the norm of the mean gradient of one detection interval differs from that of
    the interval before by at least ``threshold`` of it: | |g| - |g'| | / |g'| >= 0.5. The batch is then the
    small one, else the large one. (Where the paper lowers the learning rate a regime is critical as well;
    these workloads do not lower it.)

    Source: Agarwal et al., Accordion, MLSys'21, algorithm 1, with its threshold and its interval of 10
    passes; from large back to small as in Shockwave (Zheng et al., NSDI'23).

    small, large: batch sizes. interval: passes between two comparisons.
    """

    needs_gradients = True

    def __init__(
        self, *, small: int, large: int, interval: int = 10, threshold: float = 0.5
    ) -> None:
        super().__init__()
        self.small, self.large = small, max(small, large)
        self.interval, self.threshold = interval, threshold

    def observe(self, gradient: torch.Tensor, batch_size: int) -> None:  # noqa: ARG002
        memory = self.memory
        total = memory.get("sum")
        memory["sum"] = gradient if total is None else total.to(gradient.device).add_(gradient)
        memory["steps"] = memory.get("steps", 0) + 1

    def next_batch_size(self, batch_size: int) -> int:
        memory = self.memory
        memory["passes"] = memory.get("passes", 0) + 1
        if memory["passes"] % self.interval or "sum" not in memory:
            return batch_size
        before = memory.get("norm")
        memory["norm"] = norm = float(memory.pop("sum").norm()) / memory.pop("steps")
        if before is None:
            return batch_size
        is_critical = abs(norm - before) >= self.threshold * before
        return self.small if is_critical else self.large


class NoiseScaleRule(StaticRule):
    """The batch doubles, once per pass at most, while the gradient noise scale is at least twice as large.

    The noise scale is tr(S) / |G|^2: the variance of the gradient of one sample over the squared norm of the
    true gradient. Batches well below it are dominated by noise, so that twice the batch does almost twice as
    much per step. Of two successive steps with gradients g and g' of batches of B samples each, unbiased
    estimates are |G|^2 = g * g' and tr(S) = B |g - g'|^2 / 2; both are averaged over steps before they are
    divided.

    Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018, appendix A (there of a small
    and a large batch; here of one step's batch and of two together, so that one device is enough).

    large: batch size up to which it doubles. decay: of the moving averages, per step.
    """

    needs_gradients = True

    def __init__(self, *, large: int, decay: float = 0.98) -> None:
        super().__init__()
        self.large, self.decay = large, decay

    def observe(self, gradient: torch.Tensor, batch_size: int) -> None:
        memory = self.memory
        before = memory.get("gradient")
        if before is not None and memory["batch_size"] == batch_size:
            before = before.to(gradient.device)
            self._average("signal", float(gradient @ before))
            self._average("noise", batch_size / 2 * float((gradient - before).square().sum()))
        memory["gradient"], memory["batch_size"] = gradient, batch_size

    def noise_scale(self) -> float:
        """Samples; infinite where the noise hides the gradient, 0 before the first estimate."""
        signal, noise = self.memory.get("signal"), self.memory.get("noise")
        if signal is None or noise is None:
            return 0.0
        return noise / signal if signal > 0 else float("inf")

    def next_batch_size(self, batch_size: int) -> int:
        double = 2 * batch_size
        return double if double <= self.large and self.noise_scale() >= double else batch_size

    def _average(self, name: str, value: float) -> None:
        before = self.memory.get(name, value)
        self.memory[name] = self.decay * before + (1 - self.decay) * value


def make_rule(mode: Mode, *, small: int, large: int, interval: int) -> StaticRule:
    """Return the rule of a mode for a job that starts with the batch size ``small``."""
    if mode == "accordion":
        return AccordionRule(small=small, large=large, interval=interval)
    if mode == "gns":
        return NoiseScaleRule(large=large)
    return StaticRule()
