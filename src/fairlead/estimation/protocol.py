"""The interface of estimators of throughput: the calls that they receive, the beliefs that they return.

An estimator learns of jobs as they are submitted, of what they did in every round, and of their end. Asked
for its beliefs, it returns those that have changed; ``EstimatingBackend`` makes events of them, which the
core takes over. All columns of rates are slot types of the table that it was given last.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.model.arrays import Floats, Ints
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs


class Estimator(Protocol):
    """Learns rates. Calls come in the order of events; ``beliefs`` is called before each decision."""

    def table(self, throughputs: Throughputs) -> None:
        """Another table is in force: it has more job types, other rates or, on another cluster, other slot
        types. Where the slot types differ, all that is believed of jobs is to be announced anew."""

    def submitted(self, jobs: Sequence[Job], user_estimates: Floats | None) -> None:
        """Jobs arrive; their job types are in the table. user_estimates: (jobs, slots) steps/s as their users
        estimate them, NaN = no estimate; None = nobody gave one. ``beliefs`` is asked before the core knows
        the jobs."""

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        """Jobs train on at other batch sizes (samples per step). What was believed of them holds no
        longer, and they go by the table until something new is announced."""

    def measured(self, report: Measurement) -> None:
        """Learn from what the jobs of a round did."""

    def ended(self, jobs: Ints) -> None:
        """Jobs have left; jobs: ids. Their beliefs need not be taken back."""

    def beliefs(self) -> Beliefs | None:
        """Return the beliefs that differ from those returned before; None = none do. A difference counts
        only if it is large enough to be worth a new solve."""


@runtime_checkable
class CheckpointableEstimator(Protocol):
    """An estimator whose knowledge outlives the process: a live server takes it up again."""

    def state_dict(self) -> Mapping[str, NDArray[Any]]:
        """All that was learned, as named arrays of its own."""

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what another estimator of the same sort has learned; called before all else but
        ``table``. The next ``beliefs`` returns what is believed of jobs anew."""
