"""The step time model that agrees best with what was measured."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize
from threadpoolctl import ThreadpoolController

from fairlead.estimation.goodput.step_time_model import StepTimeModel
from fairlead.model.arrays import Bools, Floats
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Floats1

LEAST = 1e-8  # of a parameter
MAX_OVERLAP = 10.0
UNSEEN_ACROSS_NODES = 1.1  # times as long as within a node, at least, until it was measured
_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
# Errors below it count by their squares: the root has a kink where all vanish, in which a search would end.
_SMOOTH = 0.01
# Weights of what the model is believed to be without evidence.
_OVERLAP_PRIOR, _GROWTH_PRIOR = 1e-3, 1e-2


class ReplicaSetting(NamedTuple):
    """How a job ran when a step was measured."""

    nodes: int
    replicas: int
    local_batch: int  # samples at once on a replica


class MeasuredStep(NamedTuple):
    """Seconds of a step without accumulation, and the part of them that synchronises the replicas."""

    step_s: float
    sync_s: float


class _Measured(NamedTuple):
    across: Bools1  # (settings,) on several nodes
    inside: Bools1  # (settings,) several replicas on one node
    more: Floats1  # (settings,) replicas beyond two
    local_batch: Floats1
    log_step: Floats1
    log_compute: Floats1


def fit_step_time(measured: Mapping[ReplicaSetting, MeasuredStep]) -> StepTimeModel:
    """Return the model whose logarithms of times differ least, in the mean square, from those of at least one
    measured step; small overlaps and little growth with the replicas are preferred (Pollux, section 4.1).

    What nothing measured says is assumed to cost nothing, so that a scheduler tries it: synchronising
    within a node until a job ran on two devices; across nodes, a tenth more than within one.
    """
    nodes, replicas, local_batch = np.array(list(measured), np.float64).T.copy()
    step_s, sync_s = np.array(list(measured.values()), np.float64).T.copy()
    compute_s = np.maximum(step_s - sync_s, LEAST)
    across, inside = nodes > 1, (nodes == 1) & (replicas > 1)
    start = np.array(_START)
    low, high = np.full(7, LEAST), np.full(7, np.inf)
    low[6], high[6] = 1.0, MAX_OVERLAP
    if len(np.unique(local_batch)) == 1:  # what of a step does not depend on the batch is not known
        start[0] = low[0] = high[0] = compute_s.mean() / 2
    for first, seen in ((2, across), (4, inside)):
        start[first + 1 : first + 2] *= float((seen & (replicas > 2)).any())
        unseen = [first] * (not seen.any()) + [first + 1] * (not (seen & (replicas > 2)).any())
        start[unseen] = high[unseen] = LEAST
    rows = _Measured(
        across, inside, np.maximum(replicas - 2, 0), local_batch, np.log(step_s), np.log(compute_s)
    )

    def misfit(x: Any) -> Any:
        return _misfit(rows, x)

    with _one_thread():
        found = minimize(
            misfit,
            start,
            jac=True,
            bounds=Bounds(low, high),
            method="L-BFGS-B",
        ).x
    if not across.any():
        found[2:4] = np.maximum(found[2:4], found[4:6] * UNSEEN_ACROSS_NODES)
    return StepTimeModel(**dict(zip(StepTimeModel.__slots__, map(float, found), strict=True)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep the linear algebra of the fit on one thread: handing seven numbers to another takes longer by
    far."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@kernel("Tuple((f8, f8[::1]))(_Measured, f8[::1])")
def _misfit(rows: _Measured, x: Floats) -> tuple[float, Floats]:
    """What the fit minimises at parameters (7,), and its gradient (7,)."""
    settings, g = len(rows.more), x[6]
    compute_error, step_error = np.empty(settings), np.empty(settings)
    for k in range(settings):
        compute = x[0] + x[1] * rows.local_batch[k]
        sync = _sync_s(rows.across[k], rows.inside[k], rows.more[k], x)
        log_step = np.log(compute)
        if sync > 0.0:
            log_step = np.log(compute**g + sync**g) / g
        compute_error[k] = np.log(compute) - rows.log_compute[k]
        step_error[k] = log_step - rows.log_step[k]
    compute_rms = np.sqrt((compute_error**2).mean() + _SMOOTH**2)
    step_rms = np.sqrt((step_error**2).mean() + _SMOOTH**2)
    slope = np.zeros(7)
    for k in range(settings):
        compute = x[0] + x[1] * rows.local_batch[k]
        sync = _sync_s(rows.across[k], rows.inside[k], rows.more[k], x)
        of_compute = compute_error[k] / (settings * compute_rms) / compute
        of_step = step_error[k] / (settings * step_rms)
        if sync > 0.0:
            a, b = compute**g, sync**g
            of_compute += of_step * a / (compute * (a + b))
            of_sync = of_step * b / (sync * (a + b))
            first = 2 if rows.across[k] else 4
            slope[first] += of_sync
            slope[first + 1] += of_sync * rows.more[k]
            mean_log = (a * np.log(compute) + b * np.log(sync)) / (a + b)
            slope[6] += of_step * (mean_log - np.log(a + b) / g) / g
        else:
            of_compute += of_step / compute
        slope[0] += of_compute
        slope[1] += of_compute * rows.local_batch[k]
    misfit = compute_rms + step_rms + _OVERLAP_PRIOR * (g - 1) ** 2
    slope[6] += 2 * _OVERLAP_PRIOR * (g - 1)
    for first in (2, 4):
        growth = x[first + 1] / x[first]
        misfit += _GROWTH_PRIOR * growth**2
        slope[first + 1] += 2 * _GROWTH_PRIOR * growth / x[first]
        slope[first] -= 2 * _GROWTH_PRIOR * growth**2 / x[first]
    return misfit, slope


@kernel("f8(b1, b1, f8, f8[::1])", inline="always")
def _sync_s(across: Bools, inside: Bools, more: float, x: Floats) -> float:
    """Seconds of synchronising."""
    if across:
        return float(x[2] + x[3] * more)
    if inside:
        return float(x[4] + x[5] * more)
    return 0.0
