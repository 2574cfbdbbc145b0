"""State of Gandiva's planner from round to round, and the same as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pair: TypeAlias = tuple[int, int]  # ids of two jobs, the smaller first

IDLE, ALONE = -2, -1  # in place of a partner: did not run, ran alone


class JobRecord(NamedTuple):
    """The facts that the planner knows of a job besides the snapshot."""

    home: tuple[int, ...] = ()  # node of each device, ascending; () = it is in the queue
    turn: float = float("nan")  # weighted run time: of those at home on a server, the least is next
    ran_s: float = 0.0  # run time when the last round was planned
    steps_left: float = 0.0  # at the same time
    waited: int = 0  # rounds in the queue
    alone: float = 0.0  # steps/s measured without a partner, 0 = not yet
    alone_on: int = -1  # slot where that was
    slot: int = -1  # of the last round
    partner: int = IDLE  # of the last round: id of a job, ALONE or IDLE


class PairRecord(NamedTuple):
    """A pair that is in force, or on trial."""

    rounds: int = 0  # in which its progress was measured
    progress: float = 0.0  # the mean sum of normalised rates; taking turns is 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaState:
    """State of the planner; replaced, never changed."""

    nodes: tuple[str, ...] = ()  # names, in the order in which homes count them
    jobs: Mapping[int, JobRecord] = field(default_factory=dict)  # by id
    pairs: Mapping[Pair, PairRecord] = field(default_factory=dict)
    undone: Mapping[Pair, float] = field(default_factory=dict)  # pairs that did not help
    answered: tuple[Pair, ...] = ()  # pairs of the last answer to ``solve``


_FIELDS = ("turn", "ran_s", "steps_left", "waited", "alone", "alone_on", "slot", "partner")


def as_arrays(state: GandivaState) -> dict[str, NDArray[Any]]:
    """Return the whole state as named arrays."""
    records = list(state.jobs.values())
    homes = [record.home for record in records]
    pairs = [(*pair, *record) for pair, record in state.pairs.items()]
    return {
        "nodes": np.array(list("\n".join(state.nodes).encode()), np.int64),
        "jobs": np.array(list(state.jobs), np.int64),
        "records": np.array(
            [[getattr(record, name) for name in _FIELDS] for record in records], np.float64
        ).reshape(-1, len(_FIELDS)),
        "offsets": np.cumsum([0, *map(len, homes)]).astype(np.int64),
        "homes": np.array([node for home in homes for node in home], np.int64),
        "pairs": np.array(pairs, np.float64).reshape(-1, 4),
        "undone": np.array([(*pair, gain) for pair, gain in state.undone.items()]).reshape(-1, 3),
        "answered": np.array(state.answered, np.int64).reshape(-1, 2),
    }


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> GandivaState:
    """Return the state of which ``as_arrays`` made these."""
    names = bytes(arrays["nodes"].tolist()).decode()
    offsets, homes = arrays["offsets"].tolist(), arrays["homes"].tolist()
    jobs: dict[int, JobRecord] = {}
    for k, (job, row) in enumerate(
        zip(arrays["jobs"].tolist(), arrays["records"].tolist(), strict=True)
    ):
        turn, ran_s, steps_left, waited, alone, alone_on, slot, partner = row
        jobs[job] = JobRecord(
            home=tuple(homes[offsets[k] : offsets[k + 1]]),
            turn=turn,
            ran_s=ran_s,
            steps_left=steps_left,
            waited=int(waited),
            alone=alone,
            alone_on=int(alone_on),
            slot=int(slot),
            partner=int(partner),
        )
    return GandivaState(
        nodes=tuple(names.split("\n")) if names else (),
        jobs=jobs,
        pairs={
            (int(a), int(b)): PairRecord(int(rounds), progress)
            for a, b, rounds, progress in arrays["pairs"].tolist()
        },
        undone={(int(a), int(b)): gain for a, b, gain in arrays["undone"].tolist()},
        answered=tuple((a, b) for a, b in arrays["answered"].tolist()),
    )
