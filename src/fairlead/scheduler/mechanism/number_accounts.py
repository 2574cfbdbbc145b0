"""Accounts of elastic jobs: time received and owed by slot type and number of devices.

The scheduler's ledger has the time of a job by slot type. A planner whose shares are by number as well keeps
accounts of its own: what the ledger has more than at the last look, the job received on the number that it
had. In them each number that a job may have stands where a job group stands elsewhere, so that the rules of
the mechanism are the same: no job is in two rows of a round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.plan import Accounts
from fairlead.model.snapshot import Snapshot
from fairlead.policies.elastic.configuration_shares import NumberChoices

_TABLES = ("share", "received_s", "deficit_s")


@dataclass(frozen=True, slots=True)
class NumberAccounts:
    """Accounts, one row for each number of devices of a job, as in ``Snapshot`` for job groups."""

    job: Ints  # (rows,) ids, ascending
    devices: Ints  # (rows,) ascending within a job
    share: Floats  # (rows, slots) in force
    received_s: Floats  # (rows, slots)
    deficit_s: Floats  # (rows, slots)
    seen_job: Ints  # (jobs,) ids at the last look, ascending
    seen_s: Floats  # (jobs, slots) what the ledger had of them then

    @staticmethod
    def begin(snapshot: Snapshot) -> "NumberAccounts":
        """Those of jobs that have kept their numbers so far: what the ledger has."""
        choices = NumberChoices.of(snapshot)
        own = choices.devices == snapshot.job_scale[choices.job]

        def placed(table: Floats) -> Floats:
            return np.where(own[:, None], table[choices.job], 0.0)

        return NumberAccounts(
            job=snapshot.jobs[choices.job],
            devices=choices.devices,
            share=placed(snapshot.share),
            received_s=placed(snapshot.received_s),
            deficit_s=placed(snapshot.deficit_s),
            seen_job=snapshot.jobs.copy(),
            seen_s=snapshot.received_s.copy(),
        )

    def at(self, snapshot: Snapshot, choices: NumberChoices) -> "NumberAccounts":
        """The accounts of the jobs of a snapshot, with the time that they have received since the last
        look."""
        job = snapshot.jobs[choices.job]
        before = _find(self.job, self.devices, job, choices.devices)
        tables = {name: _taken(getattr(self, name), before) for name in _TABLES}
        own = choices.devices == snapshot.job_scale[choices.job]
        seen = _taken(self.seen_s, _find_ids(self.seen_job, snapshot.jobs))
        since_s = np.maximum(snapshot.received_s - seen, 0.0)
        tables["received_s"] += np.where(own[:, None], since_s[choices.job], 0.0)
        return NumberAccounts(
            job=job,
            devices=choices.devices,
            seen_job=snapshot.jobs.copy(),
            seen_s=snapshot.received_s.copy(),
            **tables,
        )

    def seen_by_mechanism(self, snapshot: Snapshot, choices: NumberChoices) -> Snapshot:
        """The snapshot in which each number that a job may have is a job group."""
        own = choices.devices == snapshot.job_scale[choices.job]
        return replace(
            snapshot,
            elastic=None,
            group_members=choices.job[:, None],
            scale=choices.devices,
            rate=choices.rate[:, :, None],
            share=self.share,
            received_s=self.received_s,
            deficit_s=self.deficit_s,
            allocated=snapshot.allocated[choices.job],
            running_on=np.where(own, snapshot.running_on[choices.job], -1),
        )

    def settled(self, accounts: Accounts, answer: Allocation) -> "NumberAccounts":
        """The accounts once an answer is in force. accounts: as the mechanism's rule settles them; the ledger
        begins to count anew."""
        return replace(
            self,
            share=self._shares_of(answer),
            received_s=accounts.received_s,
            deficit_s=accounts.deficit_s,
            seen_s=np.zeros_like(self.seen_s),
        )

    def _shares_of(self, answer: Allocation) -> Floats:
        share, given = np.zeros(self.share.shape), answer.by_number
        if given is None:
            return share
        row, configuration = np.nonzero(given.share)
        job, devices = answer.job_groups[row, 0], given.devices[configuration]
        at = _find(self.job, self.devices, job, devices)
        share[at[at >= 0], given.slot[configuration][at >= 0]] = given.share[row, configuration][
            at >= 0
        ]
        return share

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """All of it, as arrays."""
        names = ("job", "devices", *_TABLES, "seen_job", "seen_s")
        return {f"number_{name}": getattr(self, name) for name in names}

    @staticmethod
    def load_state_dict(arrays: Mapping[str, NDArray[Any]]) -> "NumberAccounts | None":
        """That of which ``state_dict`` made the arrays; None where there is none among them."""
        found = {
            name.removeprefix("number_"): array
            for name, array in arrays.items()
            if name.startswith("number_")
        }
        return NumberAccounts(**found) if found else None


def _find(job: Ints, devices: Ints, wanted: Ints, number: Ints) -> Ints:
    """(wanted,) rows with these jobs and numbers, -1 = there is none. job, devices: (rows,) ascending."""
    most = int(max(devices.max(initial=0), number.max(initial=0))) + 1
    return _find_ids(job * most + devices, wanted * most + number)


def _find_ids(known: Ints, wanted: Ints) -> Ints:
    """(wanted,) positions in ``known``, ascending numbers; -1 = not there."""
    if not len(known):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at, -1)


def _taken(table: Floats, rows: Ints) -> Floats:
    """(wanted, ...) these rows of a table; zeros for -1."""
    if not len(table):
        return np.zeros((len(rows), *table.shape[1:]))
    return np.where((rows >= 0)[:, None], table[rows], 0.0)
