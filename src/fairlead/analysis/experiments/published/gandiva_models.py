"""The eight models of Gandiva's experiments: how fast they are alone, and two of them on one device.

Published is by how much a device does more when several jobs of one model share it. From that the rate of a
job beside another follows here by a model of our own: a job alone uses a part ``demand`` of what a device can
do, 1 over 1 plus the published gain; two jobs whose demands add up to no more than 1 do not notice each
other, and otherwise share in proportion. The length of mini-batches is not published: ours are assumed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model.cluster import Locality, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

SCALES = (1, 2, 4)
P100_SPEED = 1.1  # over a P40, assumed
SCATTERED = 0.8  # rate on several servers over that on one, assumed
TYPES = ("p100", "p40")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """gain: published, of several jobs on one device; batch_s: a mini-batch on a P40, assumed."""

    name: str
    gain: float
    batch_s: float

    @property
    def demand(self) -> float:
        """The part of a device that a job alone uses; above 1, two lose by sharing."""
        return 1.0 / (1.0 + self.gain)


MODELS = (
    TrainedModel("VAE", 4.12, 0.05),
    TrainedModel("SuperResolution", 2.60, 0.1),
    TrainedModel("RHN", 0.46, 0.3),
    TrainedModel("SCRNN", 0.39, 0.2),
    TrainedModel("MI-LSTM", 0.17, 0.25),
    TrainedModel("LSTM", -0.16, 0.25),
    TrainedModel("ResNet-50", -0.13, 0.4),
    TrainedModel("ResNext-50", -0.11, 0.6),
)


def throughputs(models: Iterable[TrainedModel] = MODELS) -> Throughputs:
    """Rates on P100 and P40, on one server and on several, alone and beside each other."""
    rows = [(model, scale) for model in models for scale in SCALES]
    slots = tuple(SlotType(t, locality) for t in TYPES for locality in Locality)
    speed = np.array(
        [
            (P100_SPEED if slot.accelerator == "p100" else 1.0)
            * (1.0 if slot.locality is Locality.CONSOLIDATED else SCATTERED)
            for slot in slots
        ]
    )
    alone = np.array([scale / model.batch_s for model, scale in rows])
    rate = alone[:, None] * speed
    rate[[scale == 1 for _, scale in rows]] = alone[[scale == 1 for _, scale in rows], None] * [
        P100_SPEED if slot.accelerator == "p100" else 1.0 for slot in slots
    ]
    demand = np.array([model.demand for model, _ in rows])
    part = np.minimum(1.0, 1.0 / (demand[:, None] + demand))
    same = np.array([[one == other for _, other in rows] for _, one in rows])
    pair = np.where(same, part, 0.0)[:, :, None] * rate[:, None, :]
    job_types = tuple(JobType.parse(model.name, scale) for model, scale in rows)
    return Throughputs(slots, job_types, rate, pair)


def arrivals(
    times_s: Iterable[float], chosen: Iterable[tuple[TrainedModel, int, float]]
) -> Iterator[Arrival]:
    """Jobs of a model, on so many devices, with so many seconds of work of one P40."""
    for number, (time_s, (model, scale, work_s)) in enumerate(zip(times_s, chosen, strict=True)):
        steps = max(1.0, round(work_s / model.batch_s))
        yield Arrival(float(time_s), Job(JobId(number), model.name, scale, steps))
