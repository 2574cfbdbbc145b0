"""The seam of throughput estimation: what an estimator hears, and what it says.

An estimator hears of jobs as they are submitted, of what they did in every round, and of their end. Asked for
its beliefs, it says what it now believes otherwise than before; ``feed`` makes events of that, which the
core takes over. All columns of rates are slot types of the table that it was told of last.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import ConfigError
from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.job import Job
from fairlead.model.job_type import JobType
from fairlead.model.option_text import parse_options
from fairlead.model.throughputs import Throughputs

__all__ = [
    "Beliefs",
    "CheckpointableEstimator",
    "Estimator",
    "Measurement",
    "check_spec",
    "make_estimator",
]


class Estimator(Protocol):
    """Learns rates. Calls come in the order of events; ``beliefs`` comes before each decision."""

    def table(self, throughputs: Throughputs) -> None:
        """Another table is in force: it has more kinds, other rates or, on another cluster, other slot
        types. Where the slot types differ, all that is believed of jobs is to be said anew."""

    def submitted(self, jobs: Sequence[Job], claimed: Floats | None) -> None:
        """Jobs arrive; their kinds are in the table. claimed: (jobs, slots) steps/s as their users say, NaN
        = nothing said; None = nobody said anything. ``beliefs`` is asked before the core knows them."""

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        """Jobs train on at other batch sizes (samples per step). What was believed of them holds no
        longer, and they go by the table until something new is said."""

    def measured(self, report: Measurement) -> None:
        """A round is over."""

    def ended(self, jobs: Ints) -> None:
        """Jobs have left; jobs: ids. Their beliefs need not be taken back."""

    def beliefs(self) -> Beliefs | None:
        """What is believed otherwise than when this was asked last; None = nothing. Say only what differs
        so much that it is worth to solve anew."""


@runtime_checkable
class CheckpointableEstimator(Protocol):
    """An estimator whose knowledge outlives the process: a live server takes it up again."""

    def state_dict(self) -> Mapping[str, NDArray[Any]]:
        """All that was learned, as named arrays of its own."""

    def load_state_dict(self, kept: Mapping[str, NDArray[Any]]) -> None:
        """Take up what another estimator of the same sort has learned; called before all else but
        ``table``. What is believed of jobs is said anew by the next ``beliefs``."""


_Make: TypeAlias = Callable[[Mapping[str, str], Throughputs, Cluster, int], Estimator]


def _gavel(
    options: Mapping[str, str], table: Throughputs, cluster: Cluster, seed: int
) -> Estimator:
    from fairlead.estimation.gavel_estimator import GavelEstimator

    return GavelEstimator.of(options, table, cluster, seed)


def _fairlead(
    options: Mapping[str, str], table: Throughputs, cluster: Cluster, seed: int
) -> Estimator:
    from fairlead.estimation.fairlead_estimator import make

    return make(options, table, cluster, seed)


def _users(
    options: Mapping[str, str], table: Throughputs, _cluster: Cluster, _seed: int
) -> Estimator:
    from fairlead.estimation.user_bias import Trusting

    if options:
        raise ConfigError("estimator users takes no options")
    return Trusting(table)


ESTIMATORS: dict[str, _Make] = {"gavel": _gavel, "fairlead": _fairlead, "users": _users}


def make_estimator(
    spec: str, throughputs: Throughputs, cluster: Cluster, seed: int
) -> Estimator | None:
    """The estimator behind a text such as "gavel:references=16,profiling=0.2"; None for "oracle": the core
    then believes the table. throughputs: on the cluster's slot types. ConfigError for what is not known."""
    name, options = parse(spec)
    if name == "oracle":
        if options:
            raise ConfigError(f"estimator {spec!r}: oracle takes no options")
        return None
    return ESTIMATORS[name](options, throughputs, cluster, seed)


def check_spec(spec: str) -> None:
    """ConfigError names what is wrong with a spec."""
    slot = (SlotType("any"),)
    table = Throughputs(slot, (JobType("any"),), np.ones((1, 1)))
    make_estimator(spec, table, Cluster((Node("any", "any", 1),)), 0)


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Name and options of a spec; an option without a value has "". ConfigError names what is wrong."""
    name, _, rest = spec.partition(":")
    if name not in ESTIMATORS and name != "oracle":
        names = ", ".join(["oracle", *sorted(ESTIMATORS)])
        raise ConfigError(f"estimator {spec!r} is not known (choose from {names})")
    return name, parse_options(filter(None, rest.split(",")), f"estimator {spec!r}", flags=True)


def part(estimator: str, name: str, text: str) -> float:
    """An option that is a part of something. Raises ConfigError."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1:
        raise ConfigError(
            f"estimator {estimator}: {name} must be a number from 0 to 1, got {text!r}"
        )
    return value
