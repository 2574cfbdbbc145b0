"""The effects of the last round: turns that were used up, rates measured alone, progress of pairs."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.snapshot import Servers, Snapshot
from fairlead.policies.gandiva.homes import solo_rates
from fairlead.policies.gandiva.state import (
    ALONE,
    IDLE,
    GandivaState,
    JobRecord,
    Pair,
    PairRecord,
)

TRIAL_ROUNDS = 2  # after which a pair is judged; it is then undone within its third round
_SMOOTHING = 0.3  # weight of the newest round in the progress of a pair that was kept


@dataclass(frozen=True, slots=True)
class Measured:
    """Records brought up to the present."""

    jobs: list[JobRecord]  # by position in the snapshot
    pairs: dict[Pair, PairRecord]  # those whose two jobs are there
    undone: dict[Pair, float]  # the same; with those that the last round has shown not to help


def measure(snapshot: Snapshot, state: GandivaState, servers: Servers) -> Measured:
    """Enter what jobs have done since the state was made. Jobs that it does not know have no home."""
    homes = _renumbering(servers, state)
    jobs: list[JobRecord] = []
    relative: dict[int, float] = {}  # job -> its rate beside its partner over its rate alone
    rows = zip(
        snapshot.jobs.tolist(),
        snapshot.weight.tolist(),
        snapshot.ran_s.tolist(),
        snapshot.steps_left.tolist(),
        strict=True,
    )
    solo_rate = solo_rates(snapshot)
    for i, (job, weight, ran_s, steps_left) in enumerate(rows):
        known = state.jobs.get(job)
        if known is None:
            jobs.append(JobRecord(ran_s=ran_s, steps_left=steps_left))
            continue
        known = _brought_home(known, homes)
        lasted_s, steps = ran_s - known.ran_s, known.steps_left - steps_left
        if lasted_s > 0:  # also of one that kept devices which it was to leave
            packed = known.partner not in (ALONE, IDLE)
            used_s = lasted_s / 2 if packed else lasted_s  # two on a device use half of it each
            known = known._replace(turn=known.turn + used_s / weight)
            if packed:
                alone = known.alone if known.alone_on == known.slot else solo_rate[i, known.slot]
                relative[job] = steps / lasted_s / alone if alone > 0 else 0.0
            elif steps > 0 and known.partner == ALONE:
                known = known._replace(alone=steps / lasted_s, alone_on=known.slot)
        jobs.append(known._replace(ran_s=ran_s, steps_left=steps_left))
    return _judged(jobs, relative, snapshot, state)


def _renumbering(servers: Servers, state: GandivaState) -> list[int] | None:
    """Return the new position of each node that homes name, -1 = it is gone; None where nothing changed."""
    if servers.names == state.nodes:
        return None
    position = {name: k for k, name in enumerate(servers.names)}
    return [position.get(name, -1) for name in state.nodes]


def _brought_home(record: JobRecord, homes: list[int] | None) -> JobRecord:
    if homes is None or not record.home:
        return record
    moved = sorted(homes[node] for node in record.home)
    return record._replace(home=() if moved[0] < 0 else tuple(moved))


def _judged(
    jobs: list[JobRecord], relative: dict[int, float], snapshot: Snapshot, state: GandivaState
) -> Measured:
    """Undo pairs after their trial, and any time later, where they do not beat taking turns."""
    there = set(snapshot.jobs.tolist())
    pairs: dict[Pair, PairRecord] = {}
    undone = {pair: gain for pair, gain in state.undone.items() if there.issuperset(pair)}
    for pair, record in state.pairs.items():
        if not there.issuperset(pair):
            continue
        a, b = pair
        if a in relative and b in relative:
            record = _with_round(record, relative[a] + relative[b])
        if record.rounds >= TRIAL_ROUNDS and record.progress <= 1.0:
            undone[pair] = record.progress
        else:
            pairs[pair] = record
    return Measured(jobs, pairs, undone)


def _with_round(record: PairRecord, progress: float) -> PairRecord:
    """Return the record with one more round: a plain mean during the trial, smoothed afterwards."""
    part = max(1.0 / (record.rounds + 1), _SMOOTHING)
    return PairRecord(
        record.rounds + 1, float(record.progress + part * (progress - record.progress))
    )


def learned_gains(
    snapshot: Snapshot, pairs: dict[Pair, PairRecord], undone: dict[Pair, float]
) -> dict[tuple[int, int], float]:
    """Return the measured sum of normalised rates of two job types, of pairs that are or were in force."""
    row = dict(zip(snapshot.jobs.tolist(), snapshot.job_type.tolist(), strict=True))
    found = dict(undone)
    found |= {pair: one.progress for pair, one in pairs.items() if one.rounds >= TRIAL_ROUNDS}
    gains: dict[tuple[int, int], list[float]] = {}
    for (a, b), gain in found.items():
        one, other = sorted((row[a], row[b]))
        gains.setdefault((one, other), []).append(gain)
    return {types: float(np.mean(some)) for types, some in gains.items()}
