"""Window problems as JSON lines: what Shockwave's planner had to decide, one plan per line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from fairlead.errors import InputError
from fairlead.model.argument_checks import brief_repr
from fairlead.model.arrays import Floats
from fairlead.model.limits import MAX_DEVICES, MAX_NUMBER, MIN_POSITIVE
from fairlead.policies.solve.planning_horizon import PlanningProblem
from fairlead.policies.solve.welfare import (
    relaxed_weights,
    remaining_table,
    utility_table,
)
from fairlead.simulator.traces.fields import (
    above_zero,
    at_least_zero,
    number,
    seconds_above_zero,
    whole,
)
from fairlead.simulator.traces.source import Source

MAX_CELLS = 50_000_000  # jobs x rounds
MAX_PRIORITY = 1e30  # of a job: a power, recorded ones reach 1e18


@dataclass(frozen=True, slots=True)
class PlanningInstance:
    """One line, checked. Lengths of all jobs' arrays are equal."""

    line: int
    problem: PlanningProblem
    weight: Floats  # (jobs,) of the welfare


def read_windows(path: str | Path) -> Iterator[PlanningInstance]:
    """The window problems of a file (docs/formats.md); fields of other names are ignored."""
    source = Source(path, InputError)
    lines = 0
    for line, text in source.lines():
        if not text.strip():
            continue
        lines += 1
        try:
            record = _decode(text)
        except msgspec.MsgspecError as problem:
            raise source.fault(line, f"not a window problem: {problem}") from None
        yield _Checked(source, line).instance(record)
    if not lines:
        raise source.fault(None, "is empty")


class _Instance(msgspec.Struct):
    G: int  # devices
    F: int  # rounds
    T: float  # s per round
    round: float  # number of the round that comes next
    k: float  # penalty of a second that remains of the job with most of them
    bases: list[float]  # parts of a job's epochs
    logs: list[float]  # the welfare there
    nw: list[int]  # devices of each job
    E: list[float]  # epochs in all
    cur: list[float]  # epochs done
    d: list[float]  # s per epoch
    R: list[float]  # s that are left
    ids: list[int] | None = None
    lam: float = 0.0  # exponent of lateness
    rhomax: float = 1.0  # lateness from which it counts
    ftf: list[float] | None = None  # finish time that would be fair, s


class _PlanningRecord(msgspec.Struct):
    inst: _Instance
    priorities: list[float] | None = None


_decode = msgspec.json.Decoder(_PlanningRecord).decode


class _Checked:
    """Records of one line into problems; every complaint names file, line, field and value."""

    def __init__(self, source: Source, line: int) -> None:
        self.source = source
        self.line = line

    def instance(self, record: _PlanningRecord) -> PlanningInstance:
        inst = record.inst
        devices, rounds, round_s = self._frame(inst)
        bases, logs = self._welfare(inst)
        done, epochs, epoch_s = self._epochs(inst)
        left_s = self._column("R", inst.R, len(inst.nw), zero=True)
        weight = self._weights(record, left_s)
        jobs = len(inst.nw)
        utility = utility_table(
            done=done,
            epochs=epochs,
            epoch_s=epoch_s,
            round_s=round_s,
            rounds=rounds,
            bases=bases,
            logs=logs,
        )
        problem = PlanningProblem(
            devices=np.array([devices]),
            rounds=rounds,
            scale=np.array(
                [
                    self._whole(f"inst.nw[{j}]", scale, 1, MAX_DEVICES)
                    for j, scale in enumerate(inst.nw)
                ],
                np.int64,
            ),
            utility=weight[:, None] * utility / (max(jobs, 1) * rounds),
            remaining=remaining_table(left_s, done, epochs, epoch_s, round_s, rounds),
            penalty=at_least_zero(self.source, self.line, "inst.k", inst.k),
            at_least=np.zeros(jobs, np.int64),
        )
        return PlanningInstance(self.line, problem, weight)

    def _frame(self, inst: _Instance) -> tuple[int, int, float]:
        devices = self._whole("inst.G", inst.G, 1, MAX_DEVICES)
        rounds = self._whole("inst.F", inst.F, 1, MAX_CELLS)
        if rounds * len(inst.nw) > MAX_CELLS:
            raise self._fault(
                "inst.F", f"jobs x rounds must be <= {MAX_CELLS}, got {len(inst.nw)} x {rounds}"
            )
        return devices, rounds, seconds_above_zero(self.source, self.line, "inst.T", inst.T)

    def _welfare(self, inst: _Instance) -> tuple[Floats, Floats]:
        bases = self._numbers("bases", inst.bases)
        logs = self._numbers("logs", inst.logs)
        if len(bases) < 2 or (np.diff(bases) < MIN_POSITIVE).any():
            raise self._fault(
                "inst.bases", f"expected two or more, rising, got {brief_repr(inst.bases)}"
            )
        if len(logs) != len(bases):
            raise self._fault("inst.logs", f"expected {len(bases)} values, got {len(logs)}")
        slope = np.diff(logs) / np.diff(bases)
        if slope[-1] < 0 or (np.diff(slope) > 1e-9 * np.abs(slope[:-1])).any():
            raise self._fault(
                "inst.logs", f"expected rising and concave, got {brief_repr(inst.logs)}"
            )
        return bases, logs

    def _numbers(self, name: str, values: list[float]) -> Floats:
        """(values,) numbers of any sign."""
        checked = [
            number(self.source, self.line, f"inst.{name}[{at}]", value)
            for at, value in enumerate(values)
        ]
        return np.array(checked, np.float64)

    def _epochs(self, inst: _Instance) -> tuple[Floats, Floats, Floats]:
        jobs = len(inst.nw)
        epochs = self._column("E", inst.E, jobs)
        done = self._column("cur", inst.cur, jobs, zero=True)
        for j in np.flatnonzero(done > epochs).tolist():
            raise self._fault(f"inst.cur[{j}]", f"must be <= E = {epochs[j]:g}, got {done[j]:g}")
        return done, epochs, self._column("d", inst.d, jobs)

    def _weights(self, record: _PlanningRecord, left_s: Floats) -> Floats:
        inst, jobs = record.inst, len(left_s)
        if record.priorities is not None:
            return self._column("priorities", record.priorities, jobs, prefix="", most=MAX_PRIORITY)
        if inst.ftf is None:
            raise self._fault("inst.ftf", "is missing, and there are no priorities")
        target_s = self._column("ftf", inst.ftf, jobs)
        start = at_least_zero(self.source, self.line, "inst.round", inst.round)
        most = above_zero(self.source, self.line, "inst.rhomax", inst.rhomax)
        exponent = at_least_zero(self.source, self.line, "inst.lam", inst.lam)
        share = min(1.0, inst.G / max(jobs, 1))
        return relaxed_weights(
            now_s=start * inst.T,
            left_s=left_s,
            share=share,
            target_s=target_s,
            round_s=inst.T,
            most=most,
            exponent=exponent,
        )

    def _column(
        self,
        name: str,
        values: list[float],
        jobs: int,
        *,
        zero: bool = False,
        prefix: str = "inst.",
        most: float = MAX_NUMBER,
    ) -> Floats:
        """(jobs,) finite numbers above zero, or also zero."""
        if len(values) != jobs:
            raise self._fault(
                f"{prefix}{name}", f"expected {jobs} values, one per entry of nw, got {len(values)}"
            )
        check = at_least_zero if zero else above_zero
        return np.array(
            [
                check(self.source, self.line, f"{prefix}{name}[{j}]", value, most)
                for j, value in enumerate(values)
            ],
            np.float64,
        )

    def _whole(self, name: str, value: int, least: int, most: int) -> int:
        result = whole(self.source, self.line, name, value, least)
        if result > most:
            raise self._fault(name, f"must be <= {most}, got {result}")
        return result

    def _fault(self, name: str, message: str) -> InputError:
        return self.source.fault(self.line, f"{name}: {message}")
