"""Simulated users' estimates of the rates of their jobs: off by chance, and some exaggerate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args
from zlib import crc32

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.argument_checks import NUMBER, WHOLE_NUMBER, check_fields
from fairlead.model.arrays import Floats
from fairlead.model.job import Arrival, Job
from fairlead.model.limits import check_seed
from fairlead.model.option_text import parse_options
from fairlead.model.throughputs import Throughputs

Exaggeration = Literal["all", "fastest", "slowest"]


@dataclass(frozen=True, slots=True)
class UserEstimates:
    """Estimates that users give of rates, drawn around those of the table from the seed, job by job and
    user by user."""

    lognormal: float = 0.7  # sigma of an estimate's factor, median 1
    common: float = 0.0  # part of that variance that the estimates on all slot types of a job share
    exaggerating: float = 0.0  # part of the users who exaggerate
    factor: float = 2.0  # by how much
    # about the rates on which types: all alike, or those where a job is fastest or slowest
    types: Exaggeration = "all"
    users: int = 20  # who share the jobs of which the trace does not say whose they are
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, _TYPES)
        for name, (low, high) in _RANGE.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    f"user estimates: {name} must be a number from {low:g} to {high:g}, "
                    f"got {getattr(self, name)}"
                )
        if self.users < 1:
            raise ConfigError(f"user estimates: users must be >= 1, got {self.users}")
        check_seed(self.seed)

    @staticmethod
    def of(text: str, seed: int) -> "UserEstimates":
        """From "lognormal=0.7,exaggerating=0.3"; ConfigError names what is wrong."""
        known = {field.name for field in fields(UserEstimates)} - {"seed"}
        names = ", ".join(sorted(known))
        given = parse_options(
            filter(None, text.split(",")), "--user-estimates", expected=f"KEY=VALUE of {names}"
        )
        for key in given.keys() - known:
            raise ConfigError(f"--user-estimates: expected KEY=VALUE of {names}, got {key!r}")
        types = given.pop("types", "all")
        if types not in get_args(Exaggeration):
            raise ConfigError(
                f"--user-estimates: types must be {' or '.join(get_args(Exaggeration))}, got {types!r}"
            )
        users = given.pop("users", "20")
        if not users.isdecimal() or int(users) < 1:
            raise ConfigError(f"--user-estimates: users must be a whole number >= 1, got {users!r}")
        numbers = {key: _number(key, value) for key, value in given.items()}
        return UserEstimates(**numbers, types=types, users=int(users), seed=seed)  # type: ignore[arg-type]

    def signed(self, arrival: Arrival) -> Arrival:
        """Return the arrival with a user, if the trace names none."""
        if arrival.job.tenant:
            return arrival
        user = np.random.default_rng((self.seed, 21, arrival.job.id)).integers(self.users)
        return replace(arrival, job=replace(arrival.job, tenant=f"user-{user}"))

    def exaggerates(self, user: str) -> bool:
        """Return whether this user exaggerates. Of the users generated here, exactly the requested fraction
        does."""
        name, _, number = user.partition("-")
        if name == "user" and number.isdecimal() and int(number) < self.users:
            order = np.random.default_rng((self.seed, 22)).permutation(self.users)
            return bool(order[int(number)] < round(self.exaggerating * self.users))
        return bool(
            np.random.default_rng((self.seed, 23, crc32(user.encode()))).random()
            < self.exaggerating
        )

    def about(self, table: Throughputs) -> Callable[[Sequence[Job]], Floats]:
        """Return users' estimates as a function of jobs: (jobs, slots) steps/s, 0 where the table has 0."""

        def estimates(jobs: Sequence[Job]) -> Floats:
            return np.array([self._of(job, table) for job in jobs]).reshape(-1, len(table.slots))

        return estimates

    def _of(self, job: Job, table: Throughputs) -> Floats:
        """(slots,) estimates for one job, steps/s."""
        row = table.row(job.job_type)
        true = np.zeros(len(table.slots)) if row is None else table.rate[row]
        normals = np.random.default_rng((self.seed, 24, job.id)).normal(size=len(true) + 1)
        off = np.sqrt(self.common) * normals[-1] + np.sqrt(1 - self.common) * normals[:-1]
        estimates: Floats = true * np.exp(self.lognormal * off)
        if self.exaggerates(job.tenant):
            estimates[self._exaggerated(true)] *= self.factor
        return estimates

    def _exaggerated(self, true: Floats) -> Floats | slice:
        runs = true[true > 0]
        if self.types == "all" or not len(runs):
            return slice(None)
        at = runs.max() if self.types == "fastest" else runs.min()
        return np.asarray(true == at)


def _is_exaggeration(value: object) -> bool:
    return isinstance(value, str) and value in get_args(Exaggeration)


_TYPES = {
    "lognormal": NUMBER,
    "common": NUMBER,
    "exaggerating": NUMBER,
    "factor": NUMBER,
    "types": (_is_exaggeration, "'all', 'fastest' or 'slowest'"),
    "users": WHOLE_NUMBER,
    "seed": WHOLE_NUMBER,
}
_RANGE = {
    "lognormal": (0.0, 3.0),
    "common": (0.0, 1.0),
    "exaggerating": (0.0, 1.0),
    "factor": (1e-3, 1e3),
}


def _number(key: str, text: str) -> float:
    low, high = _RANGE[key]
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ConfigError(
            f"--user-estimates: {key} must be a number from {low:g} to {high:g}, got {text!r}"
        )
    return value
