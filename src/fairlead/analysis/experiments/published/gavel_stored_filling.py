"""Water filling as it ran when Gavel's figure of hierarchical policies was made.

Each turn raises all jobs with a weight together, as far as the worst off of them goes, by one linear
program. After it those that cannot rise any more are to be kept where they are and the rest raised again;
but the integer program that finds them found none that can rise, as it does where it fails. So every job
with a weight is kept after one turn: with fairness inside the entities there is only one. What a job has
beyond its level is then whatever the solver ends at, hence ``embedding``.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.analysis.experiments.published.self_dual_embedding import minimise
from fairlead.model.arrays import Floats, Ints


def stored_filling(
    rate: Floats, capacity: Floats, entity: Ints, entity_weight: Floats, weight: Floats, fifo: bool
) -> Floats:
    """(jobs,) throughput of each job over that at equal shares of the cluster.

    Every job uses one device. rate: (jobs, types) steps/s; capacity: (types,) devices; entity: (jobs,)
    position in ``entity_weight``; weight: (jobs,); fifo: inside entities, in place of fairness.
    """
    value = rate / (rate @ capacity / capacity.sum())[:, None]
    level = np.zeros(len(rate))
    running = np.zeros(len(rate), np.bool_)
    got = level
    while not running.all():
        pace = _pace(entity, entity_weight, np.where(running, 0.0, weight), fifo)
        found = _raised(value, capacity, pace, level)
        if found is None:
            break
        got, rise = found
        level = level + pace * rise
        running |= pace > 0
    return got


def _pace(entity: Ints, entity_weight: Floats, weight: Floats, fifo: bool) -> Floats:
    """(jobs,) an entity's weight, by the weights of its jobs or to the first that has one."""
    pace = np.zeros(len(entity))
    for one in range(len(entity_weight)):
        mine = np.flatnonzero((entity == one) & (weight > 0))
        if fifo:
            mine = mine[:1]
        if mine.size:
            pace[mine] = entity_weight[one] * weight[mine] / weight[mine].sum()
    return pace


def _raised(
    value: Floats, capacity: Floats, pace: Floats, level: Floats
) -> tuple[Floats, float] | None:
    """Return (jobs,) what each job gets, and the rise z; None where the solver finds nothing.
    max z  s.t.  got_i >= level_i + z pace_i,  got_i >= level_i,  time, devices."""
    jobs, types = value.shape
    says = pace > 0
    got = _by_job(value)
    gain = np.divide(1.0, pace, out=np.zeros(jobs), where=says)
    largest = float(value.max())  # stands where a job has no say in the rise
    rows = (
        (-gain[:, None] * got, np.where(says, -level * gain, largest), 1.0),
        (-np.eye(jobs * types), np.zeros(jobs * types), 0.0),
        (np.tile(np.eye(types), jobs), capacity, 0.0),
        (_by_job(np.ones_like(value)), np.ones(jobs), 0.0),
        (-got, -level, 0.0),
    )
    found = minimise(*_stacked(rows, jobs * types))
    return None if found is None else (got @ found[:-1], float(found[-1]))


def _by_job(value: Floats) -> Floats:
    """(jobs, jobs x types) rows that add up each job's own shares times their value."""
    jobs, types = value.shape
    rows = np.zeros((jobs, jobs, types))
    rows[np.arange(jobs), np.arange(jobs)] = value
    return rows.reshape(jobs, jobs * types)


def _stacked(
    rows: Sequence[tuple[Floats, Floats, float]], columns: int
) -> tuple[Floats, Floats, Floats]:
    """G, h and c of the program over the shares and, last, the rise."""
    g = np.vstack([np.column_stack([part, np.full(len(part), rise)]) for part, _, rise in rows])
    return g, np.concatenate([bound for _, bound, _ in rows]), -np.eye(1, columns + 1, columns)[0]
