"""Positions of jobs by id, for many jobs at once."""

import numpy as np

from fairlead.model.arrays import Bools, Ints

_DENSE = 1 << 24  # ids below this are looked up in an array, the others in a dict


def rows_of(known: Ints, keys: Ints) -> tuple[Ints, Bools]:
    """Return (keys,) the row of each id in ``known``, and whether it is there; where it is not, the row is
    arbitrary. known: (jobs,) ids, ascending; keys: (keys,) ids."""
    if not len(known):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
    row = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return row, np.asarray(known[row] == keys)


class JobIndex:
    """Maps job ids to positions. Ids may be any integers >= 0; -1 stands for no job and stays -1."""

    def __init__(self) -> None:
        self._position: dict[int, int] = {}
        self._dense: Ints = np.full(1024, -1, np.int64)
        self._large = 0  # ids that the array does not hold

    def __len__(self) -> int:
        return len(self._position)

    def add(self, job: int, position: int) -> None:
        """Add a job at a position."""
        self._position[job] = position
        if job >= _DENSE:
            self._large += 1
            return
        if job >= len(self._dense):
            larger = np.full(max(job + 1, 2 * len(self._dense)), -1, np.int64)
            larger[: len(self._dense)] = self._dense
            self._dense = larger
        self._dense[job] = position

    def pop(self, job: int) -> int:
        """Remove a job; return its position."""
        position = self._position.pop(job)
        if job >= _DENSE:
            self._large -= 1
        else:
            self._dense[job] = -1
        return position

    def jobs(self) -> list[int]:
        """Return the ids, in order of addition."""
        return list(self._position)

    def row_of_id(self) -> Ints:
        """Return the positions, in order of addition."""
        return np.fromiter(self._position.values(), np.int64, len(self._position))

    def find(self, ids: Ints) -> Ints:
        """Return the positions of an array of ids, -1 for -1 and for jobs that were removed."""
        if self._large:
            flat = [self._position.get(j, -1) for j in ids.reshape(-1).tolist()]
            return np.array(flat, np.int64).reshape(ids.shape)
        found = self._dense[ids]
        if ids.shape[1] > 1:
            found[ids < 0] = -1
        return found
