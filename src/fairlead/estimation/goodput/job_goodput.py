"""What is known of the goodput of one job."""

from dataclasses import dataclass, field

import numpy as np

from fairlead.estimation.goodput.best_batch import BatchLimits, BestBatch, GradientNoise, best_batch
from fairlead.estimation.goodput.fit_step_time import MeasuredStep, ReplicaSetting
from fairlead.estimation.goodput.step_time_model import StepTimeModel
from fairlead.estimation.goodput.step_times import StepTimes
from fairlead.model.arrays import Ints


@dataclass(slots=True)
class JobGoodput:
    """Learns from each step that is measured. times: the job's own, or those of all jobs of its model;
    noise: of its present gradients, None = not known."""

    limits: BatchLimits
    times: StepTimes = field(default_factory=StepTimes)
    noise: GradientNoise | None = None

    @property
    def is_known(self) -> bool:
        """Return whether the goodput can be told."""
        return self.noise is not None and len(self.times) > 0

    @property
    def version(self) -> tuple[int, GradientNoise | None]:
        """Return what differs once more is known."""
        return len(self.times), self.noise

    def observe(self, setting: ReplicaSetting, step: MeasuredStep) -> None:
        """Take in a step."""
        self.times.observe(setting, step)

    def best(self, nodes: Ints, replicas: Ints, model: StepTimeModel | None = None) -> BestBatch:
        """Return the best batch for numbers of nodes and replicas, (counts,) each. model: of the step
        times, None = that of what was measured. Raises ValueError while the goodput cannot be told."""
        if self.noise is None:
            raise ValueError("the noise of the gradients is not known yet")
        return best_batch(model or self.times.model(), self.noise, self.limits, nodes, replicas)

    def best_alone(self, nodes: int, replicas: int) -> tuple[int, int]:
        """Return the samples at once on a device and the accumulation steps, for one number of each."""
        found = self.best(np.array([nodes]), np.array([replicas]))
        return int(found.local[0]), int(found.accumulation_steps[0])
