"""Step times that were measured, and the model of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.estimation.goodput.fit_step_time import MeasuredStep, ReplicaSetting, fit_step_time
from fairlead.estimation.goodput.step_time_model import StepTimeModel


@dataclass(slots=True)
class StepTimes:
    """Of one job, or of several that train the same model. The model is fitted when it is asked for."""

    max_replicas: int = 0  # with which a step was measured; 0 = none was
    _measured: dict[ReplicaSetting, MeasuredStep] = field(default_factory=dict)
    _model: StepTimeModel | None = None
    _fitted: int = 0  # measured steps in the model

    def __len__(self) -> int:
        return len(self._measured)

    @property
    def measured(self) -> Mapping[ReplicaSetting, MeasuredStep]:
        """Return the steps by how the job ran."""
        return self._measured

    def observe(self, setting: ReplicaSetting, step: MeasuredStep) -> None:
        """Take in a step; only the first one of a setting counts."""
        if setting not in self._measured:
            self._measured[setting] = step
            self.max_replicas = max(self.max_replicas, setting.replicas)

    def model(self) -> StepTimeModel:
        """Return the model of what was measured so far, which must be something."""
        if self._model is None or self._fitted < len(self._measured):
            self._model, self._fitted = fit_step_time(self._measured), len(self._measured)
        return self._model
