"""The noise of a round's measurement, learned as jobs are measured again."""

import numpy as np

from fairlead.model.arrays import Bools, Floats

NOISE = 0.05  # sigma of a round's measurement, until measurements tell
PRIOR_MEASUREMENTS = 20.0  # weight of this prior, in measurements
STEPS = 1.0  # steps that a count may be off by at either end of a round


class RoundNoise:
    """Standard deviation of the logarithm of a rate that a round measures."""

    def __init__(self) -> None:
        self._count = PRIOR_MEASUREMENTS  # measurements
        self._squares = PRIOR_MEASUREMENTS * NOISE**2  # sum of their squared errors

    @property
    def sigma(self) -> float:
        """The standard deviation of a measurement without rounding of its steps."""
        return float(np.sqrt(self._squares / self._count))

    def precision(self, steps: Floats) -> Floats:
        """(measurements,) the weight of each, relative to one without rounding of its steps."""
        rounding = (STEPS / np.maximum(steps, STEPS)) ** 2 / 6
        out: Floats = self.sigma**2 / (self.sigma**2 + rounding)
        return out

    def learn(self, squares: Floats, usual: Bools) -> None:
        """Take in squared errors, of those measurements that are usual; both (measurements,)."""
        self._count += float(usual.sum())
        self._squares += float(squares[usual].sum())

    def state_dict(self) -> Floats:
        """(2,) measurements, and the sum of their squared errors."""
        return np.array([self._count, self._squares])

    def load_state_dict(self, state: Floats) -> None:
        """Restore what ``state_dict`` returned."""
        self._count, self._squares = (float(x) for x in state)
