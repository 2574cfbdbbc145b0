"""The ledger's account of batch sizes: what each job may use, uses now, and has trained at each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fairlead.model.adaptation import Adaptation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.growable_table import GrowableTable
from fairlead.model.snapshot import Regimes

RowAtBatchSize = Callable[
    [int], int
]  # row of the throughput table at a batch size, -1 = it has none


class RegimeTable(GrowableTable):
    """(jobs,) rows aligned with the jobs'; (jobs, batches) with as many columns as any job needs."""

    columns: ClassVar[dict[str, Any]] = {
        "epochs": np.float64,  # of the whole job
        "current": np.int64,  # column in force
        "done_at_change": np.float64,  # steps done when it came into force
        "batch": (np.int64, "width"),  # 0 = none
        "job_type": (np.int64, "width"),  # row of the throughput table
        "steps_per_epoch": (np.float64, "width"),
        "epochs_trained": (np.float64, "width"),  # epochs trained at each before the one in force
    }
    epochs: Floats
    current: Ints
    done_at_change: Floats
    batch: Ints
    job_type: Ints
    steps_per_epoch: Floats
    epochs_trained: Floats


class RegimeLedger:
    """Empty, and of no cost, until the first job comes that adapts."""

    def __init__(self) -> None:
        self._table = RegimeTable(width=(0,))  # may lack rows of the last jobs
        self.adaptation: list[Adaptation | None] = []  # as announced; None: none was
        self.used = False  # has any job ever adapted?

    @property
    def table(self) -> RegimeTable:
        """A row for every job; one that announced nothing has one epoch and no batch size."""
        missing = len(self.adaptation) - self._table.n
        if missing:
            self._grow(self._table, missing)
        return self._table

    @staticmethod
    def _grow(table: RegimeTable, rows: int) -> slice:
        """Add rows of jobs that announced nothing."""
        at = table.grow(rows)
        table.job_type[at], table.steps_per_epoch[at], table.epochs[at] = -1, 1.0, 1.0
        return at

    def add(
        self, adaptation: Adaptation | None, batch: int, steps: float, row_at: RowAtBatchSize
    ) -> None:
        """A job at the end. batch: the one that it begins with; steps: its total at that."""
        self.adaptation.append(adaptation)
        if adaptation is not None and len(adaptation.batches) > self.table.batch.shape[1]:
            self._widen(len(adaptation.batches))
        if not self.used:
            return
        table, row = self.table, len(self.adaptation) - 1
        if adaptation is None:  # one epoch, all of the job
            table.job_type[row, 0], table.steps_per_epoch[row, 0] = row_at(batch), steps
            return
        n = len(adaptation.batches)
        table.epochs[row] = adaptation.epochs
        table.batch[row, :n] = adaptation.batches
        table.job_type[row, :n] = [row_at(b) for b in adaptation.batches]
        table.steps_per_epoch[row, :n] = adaptation.steps_per_epoch
        table.current[row] = adaptation.batches.index(batch)

    def change(
        self,
        row: int,
        batch: int,
        done: float,
        new_done: float,
        total: float,
        row_at: RowAtBatchSize,
    ) -> int:
        """Take note of a new batch size; its row of the throughput table. done: steps at the old one."""
        found: Ints = np.flatnonzero(self.table.batch[row] == batch)
        column = int(found[0]) if len(found) else self._column_for(row, batch, total, row_at)
        table = self.table
        old = table.current[row]
        trained = (done - table.done_at_change[row]) / table.steps_per_epoch[row, old]
        table.epochs_trained[row, old] += max(trained, 0.0)
        table.current[row], table.done_at_change[row] = column, new_done
        return int(table.job_type[row, column])

    def _column_for(self, row: int, batch: int, total: float, row_at: RowAtBatchSize) -> int:
        """Room for a batch size that nobody had announced."""
        free = np.flatnonzero(self.table.job_type[row] < 0)
        if not len(free):
            self._widen(self.table.batch.shape[1] + 1)
            free = np.array([self.table.batch.shape[1] - 1])
        table, column = self.table, int(free[0])
        table.batch[row, column], table.job_type[row, column] = batch, row_at(batch)
        table.steps_per_epoch[row, column] = total / table.epochs[row]
        return column

    def _widen(self, width: int) -> None:
        """More columns for all."""
        old, new = self.table, RegimeTable(width=(width,))
        new.grow(old.n)
        have = old.batch.shape[1]
        new.job_type[:], new.steps_per_epoch[:] = -1, 1.0
        for name in ("epochs", "current", "done_at_change"):
            getattr(new, name)[:] = getattr(old, name)
        for name in ("batch", "job_type", "steps_per_epoch", "epochs_trained"):
            getattr(new, name)[:, :have] = getattr(old, name)
        self._table, self.used = new, True

    def keep(self, rows: Ints, since: int = 0) -> None:
        """Keep these rows, in this order; the first ``since`` of them stay where they are."""
        if not self.used:
            self.adaptation = [None] * len(rows)
            if self._table.n:
                self._table = RegimeTable(width=(0,))
            return
        self.table.keep(rows, since)
        self.adaptation = [self.adaptation[i] for i in rows.tolist()]

    def take_over(self, other: "RegimeLedger", rows: Ints) -> None:
        """Take over jobs, at the end. rows: (jobs,) of the other."""
        self.append(
            {name: getattr(other.table, name)[rows] for name in RegimeTable.columns},
            [other.adaptation[i] for i in rows.tolist()],
        )

    def append(self, columns: Mapping[str, Any], adaptation: Sequence[Adaptation | None]) -> None:
        """Jobs at the end. columns: of a ``RegimeTable``, with as many batch sizes as it had."""
        width = columns["batch"].shape[1]
        if width > self.table.batch.shape[1]:
            self._widen(width)
        at = self._grow(self.table, len(adaptation))
        self.adaptation += adaptation
        for name, values in columns.items():
            mine = getattr(self.table, name)[at]
            if values.ndim == 1:
                mine[:] = values
            else:
                mine[:, :width] = values

    def announce(self, job_type: Ints, total: Floats) -> None:
        """Note jobs that came before the first that adapts: one regime, all of their steps an epoch. All
        (jobs,): as in the ledger."""
        if self.used:
            unmodified = self._is_unmodified()
            self.table.job_type[unmodified, 0] = job_type[unmodified]
            self.table.steps_per_epoch[unmodified, 0] = total[unmodified]

    def _is_unmodified(self) -> Bools:
        """(jobs,) which are still to be noted."""
        return np.asarray(self.table.job_type.max(axis=1, initial=-1) < 0)

    def shown(self, job_type: Ints, total: Floats, done: Floats) -> Regimes | None:
        """Return the regimes for a planner, None if no job ever adapted; nothing changes.
        All (jobs,): as in the ledger."""
        if not self.used:
            return None
        table, unmodified = self.table, self._is_unmodified()
        job_types, steps = table.job_type, table.steps_per_epoch
        if unmodified.any():
            job_types, steps = job_types.copy(), steps.copy()
            job_types[unmodified, 0], steps[unmodified, 0] = job_type[unmodified], total[unmodified]
        rows = np.arange(table.n)
        epochs_trained = table.epochs_trained.copy()
        trained = (done - table.done_at_change) / steps[rows, table.current]
        epochs_trained[rows, table.current] += np.maximum(trained, 0.0)
        return Regimes(
            batch=table.batch,
            job_type=job_types,
            steps_per_epoch=steps,
            epochs_trained=epochs_trained,
            current=table.current,
            epochs=table.epochs,
            announced=tuple(self.adaptation),
        )
