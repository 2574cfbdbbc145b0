"""The tables of a run, and their files."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from fairlead.simulator.recording.recorder import Recorder
from fairlead.simulator.traces.atomic_write import write_atomically


class RunTables(NamedTuple):
    """The tables of a run."""

    jobs: pl.DataFrame
    rounds: pl.DataFrame
    placement_intervals: pl.DataFrame

    @staticmethod
    def of(recorder: Recorder) -> "RunTables":
        """Return the recorded tables."""
        return RunTables(recorder.job_table(), recorder.round_table(), recorder.interval_table())

    def write(self, out: Path) -> None:
        """One file for each, named after it."""
        for name, table in self._asdict().items():
            with write_atomically(out / f"{name}.parquet") as path:
                table.write_parquet(path, compression="lz4", statistics=False)
