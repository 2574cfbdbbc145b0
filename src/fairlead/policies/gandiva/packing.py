"""Pairs of jobs on the devices of one: chosen by predicted gain, on trial first."""

from itertools import combinations

from fairlead.model.snapshot import Snapshot
from fairlead.policies.gandiva.homes import Homes
from fairlead.policies.gandiva.progress import learned_gains
from fairlead.policies.gandiva.state import Pair, PairRecord

MIN_GAIN = 1.02  # predicted sum of normalised rates from which a trial is worth while


def proposed_pairs(
    snapshot: Snapshot, homes: Homes, pairs: dict[Pair, PairRecord], undone: dict[Pair, float]
) -> dict[Pair, PairRecord]:
    """Return the pairs of the next round: on overloaded servers those in force, and new ones for a trial, the
    largest predicted gain first, until the server is overloaded no more."""
    learned = learned_gains(snapshot, pairs, undone)
    ids, result = snapshot.jobs.tolist(), dict[Pair, PairRecord]()
    position = {job: i for i, job in enumerate(ids)}
    for node in range(len(homes.working)):
        if not homes.overloaded(node):
            continue
        here = [i for i in homes.residents[node] if set(homes.jobs[i].home) == {node}]
        over = homes.load[node] - homes.working[node]
        kept = [(a, b) for a, b in pairs if position[a] in here and position[b] in here]
        for pair in kept:
            result[pair] = pairs[pair]
            over -= homes.scale[position[pair[0]]]
        packed = {position[job] for pair in kept for job in pair}
        single = [i for i in here if i not in packed]
        for a, b in _by_gain(snapshot, homes, single, undone, learned):
            if over <= 0:
                break
            if a in packed or b in packed:
                continue
            packed |= {a, b}
            result[ids[a], ids[b]] = PairRecord()
            over -= homes.scale[a]
    return result


def _by_gain(
    snapshot: Snapshot,
    homes: Homes,
    jobs: list[int],
    undone: dict[Pair, float],
    learned: dict[tuple[int, int], float],
) -> list[tuple[int, int]]:
    """Return pairs of these jobs that are worth a trial, positions ascending in each, the largest predicted
    gain first. A job runs alone first, so that there is a rate to compare with."""
    if snapshot.colocated_rate is None:
        return []
    known = [i for i in jobs if homes.jobs[i].alone_on == homes.slot(i, homes.jobs[i].home)]
    predicted: dict[tuple[int, int, int], float] = {}  # of two job types on a slot
    found = []
    for a, b in combinations(known, 2):
        pair = int(snapshot.jobs[a]), int(snapshot.jobs[b])
        if homes.scale[a] != homes.scale[b] or pair in undone:
            continue
        one, other = sorted((int(snapshot.job_type[a]), int(snapshot.job_type[b])))
        key = one, other, homes.jobs[a].alone_on
        if key not in predicted:
            predicted[key] = _predicted(snapshot, *key)
        gain = learned.get((one, other), predicted[key])
        if predicted[key] > 0 and gain >= MIN_GAIN:
            found.append((-gain, a, b))
    return [(a, b) for _, a, b in sorted(found)]


def _predicted(snapshot: Snapshot, one: int, other: int, slot: int) -> float:
    """Return the believed sum of normalised rates of two job types side by side, 0 = they cannot be."""
    table = snapshot.colocated_rate
    assert table is not None
    first, second = float(table[one, other, slot]), float(table[other, one, slot])
    alone = snapshot.job_type_rate[[one, other], slot].tolist()
    if min(first, second, *alone) <= 0:
        return 0.0
    return float(first / alone[0] + second / alone[1])
