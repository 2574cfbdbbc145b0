"""Metrics that a training script reports: loss, accuracy, whatever is a number.

They go into a file, a line of JSON for each report, which the agent of the node reads and passes on to the
server: nothing is waited for, and what is written is passed on whatever becomes of the script, the agent or
the server. The file is in ``FAIRLEAD_METRICS_FILE``, which the agent sets for rank 0; without it nothing is
written. Whoever sets it by hand gets the lines.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import threading
import time
from math import isfinite
from typing import Any

from fairlead.client.arguments import whole_number
from fairlead.client.rank_environment import print_to_log
from fairlead.errors import ConfigError

VARIABLE = "FAIRLEAD_METRICS_FILE"
NAME = r"[A-Za-z_][A-Za-z0-9_./-]{0,63}"  # of a metric
MAX_NAMES = 100  # metrics of a job
MAX_STEP = (1 << 53) - 1
FULL_RATE = 2_000  # values of a metric, all of which are written; of further ones fewer and fewer
MAX_FILE = 64 << 20  # bytes; more is not written
_name = re.compile(NAME)


class MetricsFile:
    """Writes the reports of a process. Any thread may.

    Of a metric the first ``FULL_RATE`` values are written, of the next twice as many every second one, and so
    on: the file stays small however often a script reports. The last one is written in any case, when the
    process ends.
    """

    def __init__(self, path: str) -> None:
        """path: "" = nothing is written."""
        self._path = path
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}  # values that were reported of each metric
        self._last: dict[str, tuple[int, float, float]] = {}  # step, time, value; not written yet
        self._pid = os.getpid()
        self._reports = 0
        self._written = -1  # bytes of the file, -1 = it is not looked at yet
        self._told: set[str] = set()  # what has been said once

    def report(self, step: int | None, metrics: dict[str, Any]) -> None:
        """Write down values. Raises ConfigError for a name, a step or a value that is none."""
        at = None if step is None else whole_number("report: step", step, 0)
        if at is not None and at > MAX_STEP:
            raise ConfigError(f"report: step: expected at most {MAX_STEP}, got {at}")
        values = {name: _number(name, value) for name, value in metrics.items()}
        with self._lock:
            at = self._reports if at is None else at
            self._reports += 1
            now = round(time.time(), 3)
            kept = {
                name: value for name, value in values.items() if self._is_kept(name, value, at, now)
            }
            if kept and self._path:
                self._write({"step": at, "time": now, "metrics": kept})

    def write_last(self) -> None:
        """Write the last value of each metric, where it is not. Does nothing in a fork."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            last, self._last = self._last, {}
            lines: dict[tuple[int, float], dict[str, float]] = {}
            for name, (step, at, value) in last.items():
                lines.setdefault((step, at), {})[name] = value
            for (step, at), metrics in sorted(lines.items()) if self._path else ():
                self._write({"step": step, "time": at, "metrics": metrics})

    def _is_kept(self, name: str, value: float, step: int, now: float) -> bool:
        if not isfinite(value):
            self._tell(name, f"report: {name} is {value} at step {step}: such values are not kept")
            return False
        if name not in self._counts and len(self._counts) >= MAX_NAMES:
            self._tell("names", f"report: {name}: only the first {MAX_NAMES} metrics are kept")
            return False
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        kept = count % (1 << (count // FULL_RATE + 1).bit_length() - 1) == 0
        if kept:
            self._last.pop(name, None)
        else:
            self._last[name] = step, now, value
        return kept

    def _write(self, line: dict[str, object]) -> None:
        """One call appends the line, so that none is torn. A full disk ends no training."""
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
            try:
                if self._written < 0:
                    self._written = os.fstat(file).st_size
                if self._written + len(data) > MAX_FILE:
                    self._tell("size", f"report: {self._path} is full: no more metrics are kept")
                    return
                self._written += os.write(file, data)
            finally:
                os.close(file)
        except OSError as problem:
            self._tell("file", f"report: {self._path}: {problem.strerror}: metrics are not kept")

    def _tell(self, what: str, sentence: str) -> None:
        if what not in self._told and self._path:
            self._told.add(what)
            print_to_log(sentence)


def _number(name: str, value: Any) -> float:
    """Return the value of a metric as a float. Raises ConfigError where it is no single number."""
    if not _name.fullmatch(name):
        raise ConfigError(
            "report: the name of a metric has up to 64 letters, digits and _ . / -, and begins with a letter "
            f"or _, got {name!r}"
        )
    if hasattr(value, "requires_grad") and hasattr(value, "detach"):  # else PyTorch warns
        value = value.detach()
    is_number = hasattr(value, "__float__") and not isinstance(value, (bool, str))
    try:
        if is_number:
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last from tensors of several
        pass
    raise ConfigError(f"report: {name}: expected a number, got {value!r}")


_file = MetricsFile("")
_file_key = ("", 0)


def report(step: int | None = None, **metrics: Any) -> None:
    """Report values of metrics at a step: ``report(step=100, loss=0.3, accuracy=0.9)``.

    Returns at once. Rank 0's reports count; those of other ranks, and of scripts that do not run under
    Fairlead, are ignored. A step that is reported again, after a restart for example, replaces what was
    reported of it. step: from 0 on; None = the number of reports that this process has made before. NaN and
    infinity are not kept, which the job's output says once.

    Raises ConfigError for a value that is no number, a name with other characters than letters, digits and
    ``_./-``, or a negative step.
    """
    global _file, _file_key
    is_rank_0 = os.environ.get("RANK", "0") in ("", "0")
    key = (os.environ.get(VARIABLE, "") if is_rank_0 else "", os.getpid())
    if key != _file_key:  # the first report of this process, or of a fork of it
        _file, _file_key = MetricsFile(key[0]), key
        atexit.register(_file.write_last)
    _file.report(step, metrics)
