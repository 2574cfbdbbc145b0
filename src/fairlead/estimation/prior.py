"""A Gaussian prior of rates from a throughput table, for job types that it has and those that it lacks.

    log rate[job type, slot] = grand mean + slopes (batch size, scale factor, scattered)
                         + type + model + model x type + job type + job type x type + job type x slot

Every term is Gaussian and independent of the others, so that the rates in the table and those asked for are
jointly Gaussian, and what is believed of the latter is one conditional (kriging). A type that the table
lacks for a job type follows through the ratio of types that its model shows, or else all models; a job type
that it lacks through other batch sizes and scale factors of its model. Where only the rate at another scale
factor on the same type is known besides the ratio at one, this is the formula by which Sia (SOSP'23) starts
jobs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.job_type import JobType, RateSource
from fairlead.model.throughputs import Throughputs
from fairlead.policies.solve.dense_linear_algebra import cholesky, solve_lower

_REFERENCE_BATCH_SIZE = 64  # batch size to which slopes refer; taken where a family names none


@dataclass(frozen=True, slots=True)
class Sigmas:
    """Standard deviations of the terms, of natural logarithms. Those from ``type_`` on were fitted to the
    built-in catalogue by maximum likelihood (``benchmarks/estimator.py --fit``)."""

    grand: float = 3.0
    slope: float = 0.3  # of each of the three slopes, around what is usual
    type_: float = 0.87
    model: float = 2.5
    model_type: float = 0.22
    job_type: float = 0.12
    job_type_accelerator: float = 0.07
    job_type_slot: float = 0.24
    model_batch: float = 0.31  # slopes that a model has of its own
    model_scale: float = 0.09
    model_scattered: float = 0.31
    table: float = 0.01  # of what stands in the table


SIGMA = Sigmas()
# What a job type that was made of the rates that a job brings deviates from its family, on all slots and on
# each: its owner says that it is another one, and two programs of one name need have nothing in common.
OWN_RATES_SIGMA, OWN_RATES_SLOT_SIGMA = 3.0, 2.0
USUAL_SLOPES = (
    -0.5,
    0.85,
    -0.38,
)  # of batch size, scale factor, scattered: where no table says other


@dataclass(frozen=True, slots=True)
class _Cells:
    """Places of a table. Arrays are (cells,); numbers stand for names."""

    job_type: Ints
    model: Ints
    type_: Ints
    slot: Ints
    slopes: Floats  # (cells, 3) log batch size, log scale factor, is it scattered over servers?


@dataclass(frozen=True, slots=True)
class JobTypePrior:
    """A job type, given the table: rates on the slot types in force as ``mean`` + what the model deviates
    (``coefficients`` times that) + what the job type itself deviates."""

    mean: Floats  # (slots,) of log rate
    coefficients: Floats  # (slots, slots) on the deviation of its model
    residual: Floats  # (slots, slots) covariance
    model: str
    model_coefficients: Floats  # (slots, slots) of the model's on the deviation common to all
    model_residual: Floats  # (slots, slots) covariance

    def covariance(self, root: Floats) -> Floats:
        """(slots, slots) of the job type's log rates. root: of the deviation common to all."""
        model = self.model_coefficients @ root @ self.model_coefficients.T + self.model_residual
        both: Floats = self.coefficients @ model @ self.coefficients.T + self.residual
        return both


class Prior:
    """See the module. ``root`` is the covariance (slots, slots) of what all job types deviate in common."""

    def __init__(
        self, table: Throughputs | None, slots: tuple[SlotType, ...], sigmas: Sigmas = SIGMA
    ) -> None:
        """table: what is known, None = nothing; slots: those asked for."""
        self.slots = slots
        self.sigmas = sigmas
        self._numbers: dict[object, int] = {}
        job_types: list[tuple[JobType, SlotType]] = []
        log_rate: Floats = np.zeros(0)
        if table is not None:
            rows, columns = np.nonzero(table.rate > 0)
            known = [one.source is RateSource.MEASURED for one in table.job_types]
            at = [(r, c) for r, c in zip(rows.tolist(), columns.tolist(), strict=True) if known[r]]
            job_types = [(table.job_types[r], table.slots[c]) for r, c in at]
            log_rate = np.log([table.rate[r, c] for r, c in at])
        self._seen = self._cells(job_types)
        self._solve(log_rate)
        self.root = self._conditional(self._root_cells(), _ROOT)[1]

    def _solve(self, log_rate: Floats) -> None:
        self._factor: Floats = np.zeros((0, 0))
        self._whitened: Floats = np.zeros(0)
        if not len(log_rate):
            return
        residual = self.sigmas.table**2 * np.eye(len(log_rate))
        self._factor = np.ascontiguousarray(
            self._covariance(self._seen, self._seen, _ALL) + residual
        )
        cholesky(self._factor)
        self._whitened = self._white((log_rate - _mean_slope(self._seen))[:, None])[:, 0]

    def _white(self, of: Floats) -> Floats:
        if not len(self._factor):
            return of
        out: Floats = np.array(of, np.float64, order="C")
        solve_lower(self._factor, out)
        return out

    def residuals(self) -> tuple[Floats, Floats]:
        """Return the table's whitened residuals, of log rates, and the Cholesky factor of their covariance.
        The likelihood of the standard deviations follows from these."""
        return self._whitened, self._factor

    def job_type(self, job_type: JobType) -> JobTypePrior:
        """Return the prior of a job type, in the table or not."""
        mine = self._cells([(job_type.measured, slot) for slot in self.slots])
        its = self._cells([(JobType(job_type.family), slot) for slot in self.slots])
        n = len(self.slots)
        stacked = _stack(self._root_cells(), its, mine)
        level = np.repeat([_ROOT, _MODEL, _ALL], n)
        mean, joint = self._conditional(stacked, level)
        root, center, low = slice(0, n), slice(n, 2 * n), slice(2 * n, 3 * n)
        model_coefficients, model_residual = _regress(joint, center, root)
        coefficients, residual = _regress(joint, low, center)
        if job_type.source is RateSource.DECLARED:
            residual = residual + OWN_RATES_SIGMA**2 + OWN_RATES_SLOT_SIGMA**2 * np.eye(n)
        return JobTypePrior(
            mean[low], coefficients, residual, job_type.family, model_coefficients, model_residual
        )

    def _conditional(self, cells: _Cells, level: "int | Ints") -> tuple[Floats, Floats]:
        """Mean and covariance of these, given the table; level: how many of the terms they have."""
        among = self._covariance(cells, cells, level)
        offset = np.where(np.equal(level, _ALL), _mean_slope(cells), 0.0)
        if not len(self._factor):
            return offset, among
        over = self._white(self._covariance(self._seen, cells, level))
        # einsum adds up in one order; a product by the linear algebra library in one per number of threads
        mean = offset + np.einsum("ka,k->a", over, self._whitened)
        return mean, among - np.einsum("ka,kb->ab", over, over)

    def _covariance(self, a: _Cells, b: _Cells, level: "int | Ints") -> Floats:
        """(a, b) of the sums of terms that cells have; those of less than all terms are latent."""
        s = self.sigmas
        first = np.broadcast_to(level if a is b else _ALL, a.job_type.shape)
        common = np.minimum(first[:, None], np.broadcast_to(level, b.job_type.shape))
        type_, slot = _same(a.type_, b.type_), _same(a.slot, b.slot)
        model = _same(a.model, b.model) & (common >= _MODEL)
        job_type = _same(a.job_type, b.job_type) & (common >= _ALL)
        out = s.grand**2 + s.type_**2 * type_
        out = out + model * (s.model**2 + s.model_type**2 * type_)
        out += job_type * (
            s.job_type**2 + s.job_type_accelerator**2 * type_ + s.job_type_slot**2 * slot
        )
        residual = (s.model_batch, s.model_scale, s.model_scattered)
        for i, of_model in enumerate(residual):
            product = a.slopes[:, i, None] * b.slopes[None, :, i]
            shared = s.slope**2 + of_model**2 * _same(a.model, b.model)
            out += (common >= _ALL) * product * shared
        result: Floats = out
        return result

    def _cells(self, places: Iterable[tuple[JobType, SlotType]]) -> _Cells:
        rows, slopes = [], []
        for job_type, slot in places:
            scale = job_type.scale_factor
            scattered = slot.locality is Locality.SCATTERED
            names = (("job_type", job_type), ("model", job_type.family))
            where = (("type", slot.accelerator), ("slot", slot.accelerator, scattered))
            rows.append([self._number(name) for name in (*names, *where)])
            batch = job_type.batch_size or _REFERENCE_BATCH_SIZE
            slopes.append(
                [
                    np.log(batch / _REFERENCE_BATCH_SIZE),
                    np.log(scale),
                    float(scattered and scale > 1),
                ]
            )
        number, model, type_, slot_ = np.array(rows, np.int64).reshape(-1, 4).T
        return _Cells(number, model, type_, slot_, np.array(slopes, np.float64).reshape(-1, 3))

    def _root_cells(self) -> _Cells:
        return self._cells([(JobType(""), slot) for slot in self.slots])

    def _number(self, name: object) -> int:
        return self._numbers.setdefault(name, len(self._numbers))


_ROOT, _MODEL, _ALL = 0, 1, 2  # which terms: those of all job types, the model's, the job type's


def _mean_slope(cells: _Cells) -> Floats:
    """(cells,) what the slopes usually add to the log rate."""
    out: Floats = np.einsum("cs,s->c", cells.slopes, USUAL_SLOPES)
    return out


def _same(a: Ints, b: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.equal(a[:, None], b[None, :])


def _stack(*parts: _Cells) -> _Cells:
    names = [field.name for field in fields(_Cells)]
    return _Cells(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _regress(joint: Floats, on: slice, given: slice) -> tuple[Floats, Floats]:
    """Coefficients and remaining covariance of some variables given others."""
    inner = joint[given, given]
    ridge = 1e-9 * (1 + np.trace(inner)) * np.eye(len(inner))
    coefficients: Floats = np.linalg.solve(inner + ridge, joint[given, on]).T
    left = joint[on, on] - coefficients @ joint[given, on]
    return coefficients, (left + left.T) / 2
