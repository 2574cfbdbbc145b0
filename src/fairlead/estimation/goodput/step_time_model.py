"""How long a step of a data-parallel job takes (Pollux, OSDI'21, section 3.2)."""

from dataclasses import astuple, dataclass

import numpy as np

from fairlead.model.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeModel:
    """Seconds of computing grow with the samples of a replica, those of synchronising with the replicas
    beyond two; the overlap says how much of the two pass at once (1 = nothing, 10 = nearly all)."""

    compute_s: float
    compute_per_sample_s: float
    across_nodes_s: float
    across_nodes_per_replica_s: float
    in_node_s: float
    in_node_per_replica_s: float
    overlap: float

    def array(self) -> Floats:
        """(7,) the parameters in the order of the fields."""
        return np.array(astuple(self))

    def scaled(self, ratio: float) -> "StepTimeModel":
        """Return the model of a device on which all takes so many times as long."""
        values = [*(ratio * self.array()[:-1]).tolist(), self.overlap]
        return StepTimeModel(**dict(zip(StepTimeModel.__slots__, values, strict=True)))

    def computing_s(self, local_batch: Floats) -> Floats:
        """Return the seconds of the gradients of so many samples."""
        return self.compute_s + self.compute_per_sample_s * local_batch

    def synchronising_s(self, nodes: Floats, replicas: Floats) -> Floats:
        """Return the seconds in which replicas on so many nodes average their gradients."""
        more = np.maximum(replicas - 2, 0)
        across = self.across_nodes_s + self.across_nodes_per_replica_s * more
        inside = self.in_node_s + self.in_node_per_replica_s * more
        return np.where(nodes > 1, across, np.where(replicas > 1, inside, 0.0))

    def step_s(
        self, nodes: Floats, replicas: Floats, local_batch: Floats, accumulation_steps: Floats
    ) -> Floats:
        """Return the seconds of a step of the whole job, with those before it that only accumulate."""
        computing_s = self.computing_s(local_batch)
        synchronising_s = self.synchronising_s(nodes, replicas)
        g = self.overlap
        together_s = np.where(
            synchronising_s > 0,
            (computing_s**g + np.maximum(synchronising_s, 1e-12) ** g) ** (1 / g),
            computing_s,
        )
        return accumulation_steps * computing_s + together_s
