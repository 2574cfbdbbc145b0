"""Copies of a trace that differ in detail: they tell results of the method from those of one trace."""

from dataclasses import replace

import numpy as np

from fairlead.model.job import Arrival, JobId
from fairlead.simulator.traces.trace import Trace

JITTER = 0.5  # part by which the time between two arrivals may change


def perturbed(trace: Trace, seed: int) -> Trace:
    """Return a trace with as many jobs, drawn with replacement from those of the trace, at about the times of
    its arrivals.

    Each time between two arrivals is multiplied by a uniform factor from 0.5 to 1.5, so that bursts and
    pauses stay where they are. The job of each arrival is drawn anew; ids count from 0. Jobs keep all else:
    scale factor, steps, deadline, adaptation. Skipped rows and line numbers are left out.
    """
    rng = np.random.default_rng(seed)
    n = len(trace.arrivals)
    times = np.array([arrival.time_s for arrival in trace.arrivals], np.float64)
    gaps = np.diff(times, prepend=0.0) * rng.uniform(1 - JITTER, 1 + JITTER, n)
    rows = rng.integers(n, size=n).tolist() if n else []
    arrivals = [
        Arrival(time_s, replace(trace.arrivals[row].job, id=JobId(number)))
        for number, (time_s, row) in enumerate(zip(np.cumsum(gaps).tolist(), rows, strict=True))
    ]
    return Trace(
        f"{trace.name} (perturbed, seed {seed})",
        trace.format,
        arrivals,
        devices=tuple(trace.devices[row] for row in rows) if trace.devices else (),
    )
