"""Shockwave's window programs, written out literally with a binary variable per job and round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from fairlead.model.arrays import Floats, Ints


@dataclass
class Program:
    """Minimise over named blocks of columns; rows one at a time."""

    blocks: dict[str, tuple[int, int]] = field(default_factory=dict)
    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def block(
        self, name: str, cost: Floats, upper: float = np.inf, whole: bool = False
    ) -> list[int]:
        first = len(self.cost)
        self.cost += cost.ravel().tolist()
        self.upper += [upper] * cost.size
        self.whole += [int(whole)] * cost.size
        self.blocks[name] = (first, len(self.cost))
        return list(range(first, len(self.cost)))

    def row(self, entries: Mapping[int, float], low: float = -np.inf, high: float = np.inf) -> None:
        self.rows.append(dict(entries))
        self.low.append(low)
        self.high.append(high)

    def minimise(self, gap: float, seconds: float) -> tuple[float, dict[str, Floats]]:
        """The best objective found, and the values of the blocks."""
        index = [c for row in self.rows for c in row]
        value = [v for row in self.rows for v in row.values()]
        start = np.cumsum([0] + [len(row) for row in self.rows])
        matrix = sp.csr_matrix((value, index, start), shape=(len(self.rows), len(self.cost)))
        result: Any = milp(
            np.array(self.cost),
            integrality=np.array(self.whole),
            bounds=Bounds(0.0, np.array(self.upper)),
            constraints=LinearConstraint(matrix, self.low, self.high),
            options={"mip_rel_gap": gap, "time_limit": seconds},
        )
        assert result.x is not None, result.message
        got = {name: result.x[a:b] for name, (a, b) in self.blocks.items()}
        return float(result.fun), got


def window_milp(
    inst: Mapping[str, Any], weight: Floats, gap: float = 1e-7, seconds: float = 20.0
) -> tuple[float, Ints]:
    """(objective found, counts) of the relaxed problem of one instance. The welfare is concave and weights
    are positive, so that the binaries which keep its points adjacent are not needed."""
    jobs, rounds, points = len(inst["nw"]), inst["F"], len(inst["bases"])
    p = Program()
    runs = p.block("runs", np.zeros(jobs * rounds), 1.0, whole=True)
    epochs = p.block("epochs", np.zeros(jobs))
    part = p.block("part", -weight[:, None] * np.array(inst["logs"])[None, :] / (jobs * rounds))
    [most] = p.block("most", np.array([inst["k"]]))
    for t in range(rounds):
        p.row({runs[j * rounds + t]: inst["nw"][j] for j in range(jobs)}, high=inst["G"])
    for j in range(jobs):
        mine = dict.fromkeys(runs[j * rounds : (j + 1) * rounds], -inst["T"])
        p.row({epochs[j]: inst["d"][j], **mine}, high=0.0)
        points_of_j = part[j * points : (j + 1) * points]
        p.row(dict.fromkeys(points_of_j, 1.0), 1.0, 1.0)
        done = inst["cur"][j] / inst["E"][j]
        progress = dict(zip(points_of_j, inst["bases"], strict=True))
        p.row({**progress, epochs[j]: -1.0 / inst["E"][j]}, done, done)
        p.row({most: 1.0, epochs[j]: inst["d"][j]}, low=inst["R"][j])
    found, got = p.minimise(gap, seconds)
    return -found, (got["runs"].reshape(jobs, rounds) > 0.5).sum(axis=1)


def ranking_milp(
    counts: Ints, scale: Ints, devices: int, rounds: int, weight: Floats, gap: float = 1e-5
) -> float:
    """The least sum of weighted mean rounds, up to the gap."""
    active = np.flatnonzero(counts > 0)
    p = Program()
    cost = (weight / np.maximum(counts, 1))[active, None] * np.arange(rounds)
    runs = p.block("runs", cost, 1.0, whole=True)
    for i, j in enumerate(active.tolist()):
        p.row(dict.fromkeys(runs[i * rounds : (i + 1) * rounds], 1.0), counts[j], counts[j])
    for t in range(rounds):
        p.row(
            {runs[i * rounds + t]: float(scale[j]) for i, j in enumerate(active.tolist())},
            high=devices,
        )
    return p.minimise(gap, 20.0)[0] if len(active) else 0.0
