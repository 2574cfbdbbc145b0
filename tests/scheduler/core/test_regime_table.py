"""The ledger's books on batch sizes."""

import numpy as np

from fairlead.model.adaptation import Adaptation, Mode
from fairlead.scheduler.core.regime_table import RegimeLedger


def row_at(batch: int) -> int:
    return batch


def adapting(batch: int) -> Adaptation:
    return Adaptation(Mode.SCHEDULE, 100, 4.0, ((0, batch), (2, 2 * batch)))


def test_jobs_that_came_before_the_first_that_adapts_have_one_epoch() -> None:
    ledger = RegimeLedger()
    for _ in range(3):
        ledger.add(None, 8, 50.0, row_at)
    ledger.keep(np.array([0, 2]), since=1)
    assert not ledger.used
    ledger.add(adapting(16), 16, 28.0, row_at)
    assert ledger.used
    assert ledger.table.epochs.tolist() == [1.0, 1.0, 4.0]
    assert ledger.table.batch.tolist() == [[0, 0], [0, 0], [16, 32]]
    assert ledger.table.job_type[2].tolist() == [16, 32]
    assert [one is not None for one in ledger.adaptation] == [False, False, True]


def test_the_table_has_a_row_for_every_job_though_none_adapts() -> None:
    ledger = RegimeLedger()
    for _ in range(3):
        ledger.add(None, 8, 50.0, row_at)
    assert ledger.table.n == 3
    ledger.keep(np.array([1]), since=0)
    assert ledger.table.epochs.tolist() == [1.0]
    assert ledger.shown(np.zeros(1, np.int64), np.ones(1), np.zeros(1)) is None


def test_jobs_go_from_one_ledger_to_another() -> None:
    one, other = RegimeLedger(), RegimeLedger()
    one.add(None, 8, 50.0, row_at)
    other.add(None, 8, 50.0, row_at)
    other.add(adapting(4), 4, 100.0, row_at)
    one.take_over(other, np.array([1, 0]))
    assert one.used
    assert one.table.epochs.tolist() == [1.0, 4.0, 1.0]
    assert one.table.batch[1].tolist() == [4, 8]
