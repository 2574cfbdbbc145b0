"""Accounts of elastic jobs: the work that each is owed by its shares, and the round that pays it best.

Shares by type and number of devices are seldom those of any sequence of rounds: one job's half of the time on
all devices of a type and another's whole time on one of them cannot both be had. So what a job is owed is
counted in work, wherever it is done: its shares promise so many steps per second. Each round gives all jobs
the configurations after which they are behind least: the sum of the squares of the seconds of promised work
that each is behind falls most (``solve.multiple_choice``). In the long run this does whatever work rounds can
do (the least drift of Lyapunov: Neely, Stochastic Network Optimization, 2010, chapter 4), and where shares
promise more, jobs are behind alike.

The ledger has the time of a job by slot type; what it has more than at the last look, the job received on the
number that it had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.plan import RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.elastic.configuration_shares import NumberChoices
from fairlead.policies.elastic.planner import JobConfigurations, configurations_of
from fairlead.policies.solve.multiple_choice import MultipleChoice, solve_multiple_choice
from fairlead.scheduler.mechanism.settings import MechanismSettings

MOST_BEHIND = 20.0  # rounds that a job counts as behind at most, or
MOST_STARTS = 4.0  # so many times what the start that takes longest is worth waiting for
_SPARE = 1e-3  # part of a round's worth that work beyond what is owed counts


@dataclass(frozen=True, slots=True)
class NumberAccounts:
    """Shares in force by number of devices, and the work that jobs are owed by them."""

    job: Ints  # (choices,) ids, ascending
    devices: Ints  # (choices,) ascending within a job
    share: Floats  # (choices, slots) in force
    seen_job: Ints  # (jobs,) ids at the last look, ascending
    seen_s: Floats  # (jobs, slots) what the ledger had of them then
    received: Floats  # (jobs,) steps since the accounts were settled
    owed: Floats  # (jobs,) steps from before that; below 0 where a job was ahead

    @staticmethod
    def begin(snapshot: Snapshot) -> "NumberAccounts":
        """Those of jobs that have kept their numbers so far."""
        choices = NumberChoices.of(snapshot)
        own = choices.devices == snapshot.job_scale[choices.job]
        return NumberAccounts(
            job=snapshot.jobs[choices.job],
            devices=choices.devices,
            share=np.where(own[:, None], snapshot.share[choices.job], 0.0),
            seen_job=snapshot.jobs.copy(),
            seen_s=snapshot.received_s.copy(),
            received=(snapshot.received_s * snapshot.solo_rate).sum(axis=1),
            owed=(snapshot.deficit_s * snapshot.solo_rate).sum(axis=1),
        )

    def at(self, snapshot: Snapshot, choices: NumberChoices) -> "NumberAccounts":
        """The accounts of the jobs of a snapshot, with what they have received since the last look."""
        job = snapshot.jobs[choices.job]
        rows = _find(self.job, self.devices, job, choices.devices)
        before = _find_ids(self.seen_job, snapshot.jobs)
        since_s = np.maximum(snapshot.received_s - _taken(self.seen_s, before), 0.0)
        return NumberAccounts(
            job=job,
            devices=choices.devices,
            share=_taken(self.share, rows),
            seen_job=snapshot.jobs.copy(),
            seen_s=snapshot.received_s.copy(),
            received=_taken(self.received, before) + (since_s * snapshot.solo_rate).sum(axis=1),
            owed=_taken(self.owed, before),
        )

    def settled(
        self,
        snapshot: Snapshot,
        choices: NumberChoices,
        answer: Allocation,
        elapsed_s: float,
        settings: MechanismSettings,
    ) -> "NumberAccounts":
        """The accounts once an answer is in force; the ledger begins to count anew. A job is ahead by a round
        at most. elapsed_s: since the accounts were settled."""
        owed = self.owed + self._promised(choices) * elapsed_s - self.received
        after = replace(self, share=self._shares_of(answer), seen_s=np.zeros_like(self.seen_s))
        promised, most_s = after._promised(choices), _most_behind_s(snapshot, settings)
        owed_s = np.divide(owed, promised, out=np.zeros_like(owed), where=promised > 0)
        owed_s = np.maximum(_comparable(owed_s, most_s), -snapshot.round_s)
        return replace(after, received=np.zeros_like(owed), owed=owed_s * promised)

    def plan(
        self,
        snapshot: Snapshot,
        choices: NumberChoices,
        elapsed_s: float,
        settings: MechanismSettings,
    ) -> RoundPlan:
        """The round after which jobs are behind least. elapsed_s: since the accounts were settled.

        A start counts by its part of the time for which the configuration is of use: until the job is done,
        and until a move has to pay off at most. In a configuration in which it has a share a job stays as if
        it were behind by what a start is worth waiting for, the preemption hysteresis.
        """
        round_s, given = snapshot.round_s, configurations_of(snapshot)
        promised = self._promised(choices)
        some = promised > 0
        pace = np.where(some, promised, 1.0)[:, None]
        behind_s = (self.owed + promised * (elapsed_s + round_s) - self.received) / pace[:, 0]
        most_s = _most_behind_s(snapshot, settings)
        behind_s = np.maximum(_comparable(np.where(some, behind_s, 0.0), most_s), 0.0)
        runs = np.flatnonzero(snapshot.running_on >= 0)
        present = given.column_of(snapshot, runs)
        stays = np.zeros(given.rate.shape, np.bool_)
        stays[runs, present] = True
        rate, best = given.rate, given.rate.max(axis=1, initial=0.0)[:, None]
        left_s = snapshot.steps_left[:, None] / np.maximum(rate, 1e-300)
        use_s = np.clip(left_s, 1.0, settings.payback_period_s)
        start_s = np.minimum(snapshot.restart_s[:, None] / use_s, 1.0) * round_s
        worked_s = np.where(stays, round_s, round_s - start_s)
        work_s = np.where(some[:, None], rate * worked_s / pace, 0.0)
        debt_s = np.repeat(behind_s[:, None], rate.shape[1], axis=1)
        has_share = self._has_share(snapshot, choices, given)[runs, present]
        start_worth_s = settings.preemption_hysteresis * snapshot.restart_s[runs]
        debt_s[runs, present] += np.where(has_share, start_worth_s, 0.0)
        gain = debt_s**2 - np.maximum(debt_s - work_s, 0.0) ** 2
        gain += _SPARE * round_s * worked_s * rate / np.maximum(best, 1e-300)
        chosen = solve_multiple_choice(
            MultipleChoice(
                worth=np.where(rate > 0, gain, -np.inf),
                none=np.zeros(len(gain)),
                resource=given.accelerator,
                demand=given.devices,
                capacity=snapshot.capacity.astype(np.int64),
            )
        ).option
        group = np.flatnonzero(chosen >= 0)
        slot, scale = given.slot[group, chosen[group]], given.devices[chosen[group]]
        return RoundPlan(job_group=group, slot=slot, scale=scale)

    def _promised(self, choices: NumberChoices) -> Floats:
        """(jobs,) steps/s by the shares in force."""
        steps = (self.share * choices.rate).sum(axis=1)
        return np.bincount(choices.job, steps, len(self.seen_job)).astype(np.float64)

    def _has_share(
        self, snapshot: Snapshot, choices: NumberChoices, given: JobConfigurations
    ) -> Bools:
        """(jobs, configurations) whether a job has a share there, on any slot type of that type."""
        found, types = np.zeros(given.rate.shape, np.bool_), len(snapshot.capacity)
        for slot, accelerator in enumerate(snapshot.accelerator_of_slot.tolist()):
            some = np.flatnonzero(self.share[:, slot] > 0)
            column = given.column_of_choice(choices.devices[some], accelerator, types)
            found[choices.job[some], column] = True
        return found

    def _shares_of(self, answer: Allocation) -> Floats:
        share, given = np.zeros(self.share.shape), answer.by_number
        if given is None:
            return share
        row, configuration = np.nonzero(given.share)
        job, devices = answer.job_groups[row, 0], given.devices[configuration]
        at = _find(self.job, self.devices, job, devices)
        there = at >= 0
        share[at[there], given.slot[configuration[there]]] = given.share[row, configuration][there]
        return share

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """All of it, as arrays."""
        return {f"number_{name}": getattr(self, name) for name in self.__dataclass_fields__}

    @staticmethod
    def load_state_dict(arrays: Mapping[str, NDArray[Any]]) -> "NumberAccounts | None":
        """That of which ``state_dict`` made the arrays; None where there is none among them."""
        found = {
            name.removeprefix("number_"): array
            for name, array in arrays.items()
            if name.startswith("number_")
        }
        return NumberAccounts(**found) if found else None


def _most_behind_s(snapshot: Snapshot, settings: MechanismSettings) -> float:
    """Seconds of promised work that a job counts as behind at most."""
    start_worth_s = settings.preemption_hysteresis * float(snapshot.restart_s.max(initial=0.0))
    return max(MOST_BEHIND * snapshot.round_s, MOST_STARTS * start_worth_s)


def _comparable(behind_s: Floats, most_s: float) -> Floats:
    """The seconds behind, less what all would be behind by where shares promise more than rounds can give:
    the one who is behind most counts as ``most_s``."""
    return behind_s - max(0.0, float(behind_s.max(initial=0.0)) - most_s)


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
    taken = np.zeros((len(rows), *table.shape[1:]))
    there = rows >= 0
    taken[there] = table[rows[there]]
    return taken
