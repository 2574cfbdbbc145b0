"""Fit the interference model on measured pairs, and say how far off it is.

Run: python benchmarks/interference.py simulation_throughputs.json
(the file is in the release of Gavel, OSDI'20: github.com/stanford-futuredata/gavel)

Two fits, both on pairs of jobs that use one device each, in consolidated slot types:
- pressures, contentions and the protection exponent: least squares on the logarithm of the rate beside
  the other over the rate alone, with a soft L1 loss since some measurements are far off their neighbours;
- memory: a linear program that minimises by how much pairs are on the wrong side of the device's memory.

Errors are |predicted / measured - 1| of rates over rates alone. "Left out" is five-fold cross-validation
over unordered pairs. "Family left out" treats each family in turn as one that nobody measured in pairs: its
pressure is then guessed from its step time, as for the families of the catalogue that Gavel does not have.
"""

from dataclasses import dataclass

import numpy as np
from command_line import parser_of, rate_table, run
from scipy.optimize import least_squares, linprog

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Locality
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.interference import (
    PROTECTION,
    builtin_interference,
    fits,
    progress,
)
from fairlead.simulator.traces.throughput_tables import builtin_throughputs

FOLDS = 5
SOFT = 0.1  # relative error above which a measurement counts linearly
MARGIN_GB = 0.5  # distance from the device's memory that the fit of memory wants
LEAST_GB = 1.0  # of any job: its context and code


@dataclass(frozen=True)
class Measured:
    """The table's rates of pairs on one device each."""

    families: tuple[str, ...]
    accelerators: tuple[str, ...]
    alone: Floats  # (families, types) steps/s
    normal: Floats  # (families, families, types) rate beside over rate alone; 0 = does not fit


@dataclass(frozen=True)
class Fit:
    """The parameters."""

    pressure: Floats  # (families,) geometric mean 1
    contention: Floats  # (types,)
    protection: float

    def progress(self) -> Floats:
        """(families, families, types)"""
        each = [progress(self.pressure, c, self.protection) for c in self.contention]
        return np.asarray(np.stack(each, axis=2))


def measured(table: Throughputs) -> Measured:
    kinds = [i for i, one in enumerate(table.job_types) if one.scale_factor == 1]
    slots = [t for t, s in enumerate(table.slots) if s.locality is Locality.CONSOLIDATED]
    if table.colocated_rate is None:
        raise SystemExit("the file has no pairs")
    alone = table.rate[np.ix_(kinds, slots)]
    beside = table.colocated_rate[np.ix_(kinds, kinds, slots)]
    normal = np.divide(beside, alone[:, None], out=np.zeros_like(beside), where=alone[:, None] > 0)
    return Measured(
        tuple(table.job_types[i].name for i in kinds),
        tuple(table.slots[t].accelerator for t in slots),
        alone,
        normal,
    )


def fit(normal: Floats, use: Bools) -> Fit:
    """The pressures and contentions from those cells that ``use`` names."""
    a, b, t = np.nonzero(use)
    families, types = normal.shape[0], normal.shape[2]
    logarithm = np.log(normal[a, b, t])

    def residuals(x: Floats) -> Floats:
        p, c, protection = x[:families], x[families:-1], x[-1]
        return np.asarray(-np.log1p(np.exp(c[t] + p[b] - protection * p[a])) - logarithm)

    x = least_squares(residuals, np.zeros(families + types + 1), loss="soft_l1", f_scale=SOFT).x
    p, c, protection = x[:families], x[families:-1], float(x[-1])
    middle = p.mean()  # pressures are known up to a factor, which contention takes up
    return Fit(np.exp(p - middle), np.exp(c + middle * (1 - protection)), protection)


def memory(data: Measured, device_gb: Floats, use: Bools) -> Floats:
    """(families,) GB from those cells that ``use`` names."""
    families = len(data.families)
    rows, right = [], []
    for t, room in enumerate(device_gb):
        runs = np.flatnonzero(data.alone[:, t] > 0)
        for i, a in enumerate(runs):
            for b in runs[i:][use[a, runs[i:], t]]:
                row = np.zeros(families)
                row[a] += 1
                row[b] += 1
                sign = 1 if data.normal[a, b, t] > 0 else -1
                rows.append(sign * row)
                right.append(sign * room - MARGIN_GB)
    matrix = np.hstack([np.array(rows), -np.eye(len(rows))])
    cost = np.r_[np.full(families, 1e-4), np.ones(len(rows))]
    bounds = [(LEAST_GB, None)] * families + [(0, None)] * len(rows)
    found = linprog(cost, A_ub=matrix, b_ub=right, bounds=bounds, method="highs")
    assert found.status == 0
    assert found.x is not None
    return np.asarray(found.x[:families])


def step_line(pressure: Floats, step_s: Floats) -> tuple[float, float]:
    """(slope, intercept) of log pressure over log step time on the slowest accelerator type."""
    slope, intercept = np.polyfit(np.log(step_s), np.log(pressure), 1)
    return float(slope), float(intercept)


def line(title: str, error: Floats) -> None:
    print(f"{title:42} {np.median(error):7.1%} {np.quantile(error, 0.9):7.1%} {error.size:7,}")


def relative(predicted: Floats, data: Measured, use: Bools) -> Floats:
    return np.asarray(np.abs(predicted[use] / data.normal[use] - 1))


def folds(use: Bools) -> Ints:
    """The fold of each cell: that of its unordered pair."""
    fold = np.random.default_rng(0).integers(0, FOLDS, use.shape)
    lower = np.tril_indices(len(use))
    fold[lower] = fold.transpose(1, 0, 2)[lower]
    return fold


def left_out(data: Measured, use: Bools) -> Floats:
    fold, out = folds(use), np.zeros_like(data.normal)
    for k in range(FOLDS):
        out[fold == k] = fit(data.normal, use & (fold != k)).progress()[fold == k]
    return relative(out, data, use)


def family_left_out(data: Measured, use: Bools, step_s: Floats) -> Floats:
    errors = []
    for f in range(len(data.families)):
        with_f = np.zeros_like(use)
        with_f[f] = with_f[:, f] = True
        found = fit(data.normal, use & ~with_f)
        others = np.arange(len(data.families)) != f
        slope, intercept = step_line(found.pressure[others], step_s[others])
        guess = found.pressure.copy()
        guess[f] = np.exp(intercept + slope * np.log(step_s[f]))
        errors.append(
            relative(Fit(guess, found.contention, found.protection).progress(), data, use & with_f)
        )
    return np.concatenate(errors)


def says_fits(need_gb: Floats, device_gb: Floats) -> Bools:
    """(families, families, types)"""
    return np.asarray(np.stack([fits(need_gb, room) for room in device_gb], axis=2))


def memory_left_out(data: Measured, device_gb: Floats) -> Bools:
    fold = folds(data.normal > 0)
    out = np.zeros(fold.shape, np.bool_)
    for k in range(FOLDS):
        out[fold == k] = says_fits(memory(data, device_gb, fold != k), device_gb)[fold == k]
    return out


def memory_line(title: str, data: Measured, says: Bools) -> None:
    both = (data.alone > 0)[:, None] & (data.alone > 0)
    does = data.normal > 0
    right = (says == does)[both]
    missed, refused = (says & ~does & both).sum(), (~says & does & both).sum()
    print(f"{title:42} {right.mean():7.1%} {missed:7} {refused:7} {right.size:7,}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "table", metavar="FILE", type=rate_table, help="simulation_throughputs.json"
    )
    data = measured(parser.parse_args().table)
    shipped = builtin_interference()
    device_gb = np.array([shipped.accelerators[name][0] for name in data.accelerators])
    use = data.normal > 0
    found = fit(data.normal, use)
    need_gb = memory(data, device_gb, np.ones_like(use))
    with np.errstate(divide="ignore"):
        step_s = 1 / np.where(data.alone > 0, data.alone, np.inf).min(axis=1)

    print(f"protection {found.protection:.3f}")
    for name, contention in zip(data.accelerators, found.contention, strict=True):
        print(f"{name},contention,{contention:.3f}")
    for row in zip(data.families, need_gb, found.pressure, strict=True):
        print("{},{:.1f},{:.2f}".format(*row))
    slope, intercept = step_line(found.pressure, step_s)
    print(f"guess for others: pressure = {np.exp(intercept):.2f} * (step time in s) ** {slope:.2f}")
    for family, guess in guesses(builtin_throughputs(), data, slope, intercept):
        print(f"{family},?,{guess:.2f}")

    print(f"\n{'error of rate beside over rate alone':42} {'median':>7} {'p90':>7} {'rates':>7}")
    line("no model: the median of all", np.abs(np.median(data.normal[use]) / data.normal[use] - 1))
    line("fitted", relative(found.progress(), data, use))
    for t, name in enumerate(data.accelerators):
        only = use & (np.arange(use.shape[2]) == t)
        line(f"  of which {name}", relative(found.progress(), data, only))
    line("left out", left_out(data, use))
    line("family left out", family_left_out(data, use, step_s))
    constants = np.array([shipped.accelerators[name][1] for name in data.accelerators])
    pressure = np.array([shipped.families[name][1] for name in data.families])
    line("as shipped", relative(Fit(pressure, constants, PROTECTION).progress(), data, use))
    none = (~use & (data.alone > 0)[:, None] & (data.alone > 0)).sum()
    print(
        f"\n{f'fits or not ({none} do not)':42} {'right':>7} {'missed':>7} {'refused':>7} {'pairs':>7}"
    )
    memory_line("no model: all fit", data, np.ones_like(use))
    memory_line("fitted", data, says_fits(need_gb, device_gb))
    memory_line("left out", data, memory_left_out(data, device_gb))
    need_gb = np.array([shipped.families[name][0] for name in data.families])
    memory_line("as shipped", data, says_fits(need_gb, device_gb))


def guesses(
    table: Throughputs, data: Measured, slope: float, intercept: float
) -> list[tuple[str, float]]:
    """Pressures of the families of the catalogue that the file does not have."""
    out = []
    for one, rates in zip(table.job_types, table.rate, strict=True):
        if one.scale_factor == 1 and one.name not in data.families:
            slowest = rates[rates > 0].min()
            out.append((one.name, float(np.exp(intercept - slope * np.log(slowest)))))
    return out


if __name__ == "__main__":
    run(main)
