"""What one node more or less of a type is worth to the jobs that there are: its shadow price.

The worth of a set of devices is the optimum of

    max  sum_ct weight_c (rate_ct / best_c) y_ct
    s.t. sum_t y_ct <= count_c                    the time of the jobs of class c
         sum_c devices_c y_ct <= capacity_t       the devices of type t
         y >= 0

over classes c of like jobs and accelerator types t: jobs that run at their best rate, by weight. A price is
the difference that a whole node makes, and not a dual value: that is 0 or undetermined at a type without
devices, and there the first node is to be judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.job_classes import JobClasses
from fairlead.policies.solve.program import Program
from fairlead.policies.solve.share_problem import ShareProblem

LEAST_GAIN = 0.1  # jobs at their best rate that a node must bring to be asked for
_KEPT_GAIN = LEAST_GAIN / 2  # and to be kept: nodes do not come and go at the limit


@dataclass(frozen=True, kw_only=True, slots=True)
class JobClass:
    """Jobs that are alike and want devices."""

    count: int
    devices: int  # of each job
    weight: float
    rates: Mapping[str, float]  # accelerator type -> steps/s; not on types that are left out
    left_s: float  # run time that is left of the longest of them, at its best rate


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSize:
    """The nodes of a type that an engine starts."""

    accelerator: str
    devices: int  # of a node
    maximum: int  # nodes

    @property
    def most_devices(self) -> int:
        """Return the devices of all nodes that there may be."""
        return self.devices * self.maximum


class NodeDemand:
    """The jobs that want devices, and what devices are worth to them."""

    def __init__(self, classes: Sequence[JobClass], sizes: Sequence[NodeSize]) -> None:
        """sizes: what the engine can start. Jobs with more devices than there may be of a type do not run on
        it."""
        self._classes = classes
        self._most = {one.accelerator: one.most_devices for one in sizes}
        self._worth: dict[tuple[tuple[str, int], ...], float] = {}

    def left_s(self, accelerator: str) -> float:
        """Return the run time that is left of the longest job that runs on a type; 0 = there is none."""
        return max((one.left_s for one in self._classes if accelerator in one.rates), default=0.0)

    def gain(self, capacity: Mapping[str, int], size: NodeSize) -> float:
        """Return the jobs at their best rate that one node more brings. capacity: devices by type."""
        more = {**capacity, size.accelerator: capacity.get(size.accelerator, 0) + size.devices}
        return self.worth(more) - self.worth(capacity)

    def is_worth_keeping(self, capacity: Mapping[str, int], size: NodeSize) -> bool:
        """Return whether something is lost with one of the nodes of a type. capacity: devices with it."""
        less = {**capacity, size.accelerator: capacity.get(size.accelerator, 0) - size.devices}
        return self.worth(capacity) - self.worth(less) >= _KEPT_GAIN

    def worth(self, capacity: Mapping[str, int]) -> float:
        """Return the jobs that run at their best rate, by weight, at the optimum."""
        key = tuple(sorted((t, n) for t, n in capacity.items() if n > 0))
        if key not in self._worth:
            self._worth[key] = self._solve(dict(key))
        return self._worth[key]

    def _solve(self, capacity: Mapping[str, int]) -> float:
        types = list(capacity)
        rows = [[self._rate(one, t, capacity[t]) for t in types] for one in self._classes]
        rate = np.array(rows, np.float64).reshape(len(self._classes), len(types))
        runs = np.flatnonzero((rate > 0).any(axis=1))
        if not len(runs):
            return 0.0
        chosen = [self._classes[i] for i in runs.tolist()]
        best = np.array([max(one.rates.values()) for one in chosen])
        order = np.arange(len(chosen))
        problem = ShareProblem(
            classes=JobClasses(
                order, np.array([one.count for one in chosen], np.float64), order, order
            ),
            scale=np.array([one.devices for one in chosen], np.float64),
            rate=rate[runs] / best[:, None],
            accelerator_of_slot=np.arange(len(types)),
            slot_devices=np.ones(len(types)),
            capacity=np.array([capacity[t] for t in types], np.float64),
            job_type=np.zeros(len(chosen), np.int64),
            colocated_rate=None,
        )
        weight = np.array([one.weight for one in chosen])
        solution = (
            Program(problem=problem).load().maximise(LinearObjective(weight, np.zeros(len(types))))
        )
        return float(solution.objective)

    def _rate(self, one: JobClass, accelerator: str, present: int) -> float:
        most = max(self._most.get(accelerator, 0), present)
        return one.rates.get(accelerator, 0.0) if one.devices <= most else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedNode:
    """A node to ask for, and the jobs at their best rate that it brings."""

    size: NodeSize
    gain: float

    @property
    def price(self) -> float:
        """Return its gain per device."""
        return self.gain / self.size.devices


def wanted_nodes(
    demand: NodeDemand,
    sizes: Sequence[NodeSize],
    capacity: Mapping[str, int],
    *,
    nodes: Mapping[str, int],
    most: int,
) -> list[WantedNode]:
    """Return at most ``most`` nodes to ask for, one after the other: each time that of the highest price with
    those before it, of equal ones the first of ``sizes``; none that brings less than ``LEAST_GAIN``.

    capacity: accelerator type -> devices that there are or that were asked for; nodes: of them, those that
    count towards the maxima.
    """
    capacity, count = dict(capacity), dict(nodes)
    found: list[WantedNode] = []
    while len(found) < most:
        open_ = [one for one in sizes if count.get(one.accelerator, 0) < one.maximum]
        offers = [WantedNode(size=one, gain=demand.gain(capacity, one)) for one in open_]
        offers = [one for one in offers if one.gain >= LEAST_GAIN]
        if not offers:
            break
        best = max(offers, key=lambda one: round(one.price, 9))
        found.append(best)
        accelerator = best.size.accelerator
        capacity[accelerator] = capacity.get(accelerator, 0) + best.size.devices
        count[accelerator] = count.get(accelerator, 0) + 1
    return found
