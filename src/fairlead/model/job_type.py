"""The job type, on which a job's rate depends: its model, its batch size, and the devices that it uses."""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Any

from fairlead.errors import ConfigError
from fairlead.model.argument_checks import (
    TEXT,
    WHOLE_NUMBER,
    check_arguments,
    instance_of,
    list_of,
    or_none,
)

_BATCH_SIZE = re.compile(
    r"(?P<family>.*) \(batch size (?P<batch_size>0|[1-9][0-9]{0,17})\)", re.DOTALL
)
_ESTIMATED = re.compile(r"(?P<name>.*)\0(?P<variant>[0-9]+)", re.DOTALL)
_DECLARED = re.compile(r"(?P<name>.*) \[(?P<variant>[0-9a-f]{8})\]", re.DOTALL)
_ALLOWED = re.compile(
    r"(?P<name>.*) \[only (?P<accelerators>[^\[\],]+(?:, [^\[\],]+)*)\]", re.DOTALL
)
_FIELDS = ("family", "batch_size", "scale_factor", "accelerators", "source", "variant")


class RateSource(StrEnum):
    """Source of the rates of a job type."""

    MEASURED = "measured"  # the throughput table
    DECLARED = "declared"  # the owner of the job
    ESTIMATED = "estimated"  # an estimator, for single jobs


_TYPES = {
    "family": TEXT,
    "batch_size": or_none(WHOLE_NUMBER),
    "scale_factor": WHOLE_NUMBER,
    "accelerators": or_none(list_of(str, "a tuple of names of accelerator types")),
    "source": (instance_of(RateSource), "a RateSource"),
    "variant": TEXT,
}
_PARSED = {"name": TEXT, "scale_factor": WHOLE_NUMBER}


class JobType:
    """Jobs with the same rates: a row of a throughput table. Immutable, hashable and ordered.

    ``name`` is how files write all of it but the scale factor: ``LM (batch size 10)``, then ``[only k80,
    v100]`` where accelerators are restricted, then the digest of declared rates, as in ``net [0a1b2c3d]``.
    ``parse`` reads it. Beliefs about single jobs have a number after a zero byte, which no file has.
    """

    # Not a dataclass: msgspec would write its fields, where journals have the name and the scale factor.
    __slots__ = (
        "_hash",
        "_key",
        "accelerators",
        "batch_size",
        "family",
        "name",
        "scale_factor",
        "source",
        "variant",
    )
    family: str  # the model, without its batch size
    batch_size: int | None  # samples per step of the whole job; None = the name states none
    scale_factor: int  # devices that a job uses at once, all of one accelerator type
    accelerators: tuple[str, ...] | None  # types that it may use, ascending; None = all
    source: RateSource
    variant: str  # a digest of declared rates, or the number of a belief
    name: str
    _key: tuple[Any, ...]
    _hash: int  # of the key

    def __init__(
        self,
        family: str,
        batch_size: int | None = None,
        scale_factor: int = 1,
        *,
        accelerators: tuple[str, ...] | None = None,
        source: RateSource = RateSource.MEASURED,
        variant: str = "",
    ) -> None:
        check_arguments(
            "JobType",
            {
                "family": family,
                "batch_size": batch_size,
                "scale_factor": scale_factor,
                "accelerators": accelerators,
                "source": source,
                "variant": variant,
            },
            _TYPES,
        )
        for one, least, number in (
            ("batch_size", 0, batch_size),
            ("scale_factor", 1, scale_factor),
        ):
            if number is not None and number < least:
                raise ConfigError(f"JobType(): {one}: must be at least {least}, got {number}")
        allowed = None if accelerators is None else tuple(sorted(set(accelerators)))
        named = _name(family, batch_size, allowed, source, variant)
        size = -1 if batch_size is None else batch_size
        fields = {
            "family": family,
            "batch_size": batch_size,
            "scale_factor": scale_factor,
            "accelerators": allowed,
            "source": source,
            "variant": variant,
            "name": named,
            "_key": (family, size, scale_factor, allowed or (), source.value, variant),
        }
        fields["_hash"] = hash(fields["_key"])
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def parse(name: str, scale_factor: int = 1) -> "JobType":
        """The job type that files call so. Any text is the name of one: what is not written as ``name`` is
        belongs to the family."""
        try:
            return _parse(name, scale_factor)
        except TypeError:  # it cannot be looked up
            given = {"name": name, "scale_factor": scale_factor}
            check_arguments("JobType.parse", given, _PARSED)
            raise

    def with_batch_size(self, batch_size: int) -> "JobType":
        """Return the job type at another batch size; unchanged if its name states none, or if its rates were
        declared by an owner, as these hold at any batch size."""
        if self.batch_size is None or self.source is not RateSource.MEASURED:
            return self
        return self._replace(batch_size=batch_size)

    def with_scale_factor(self, scale_factor: int) -> "JobType":
        """Return the job type on another number of devices; unchanged if it is on that number."""
        return (
            self if scale_factor == self.scale_factor else self._replace(scale_factor=scale_factor)
        )

    def with_source(self, source: RateSource, variant: str) -> "JobType":
        """Return the job type with rates from another source."""
        return self._replace(source=source, variant=variant)

    @property
    def measured(self) -> "JobType":
        """The job type of the throughput table that it is one of, whatever is declared or believed of it."""
        if self.source is RateSource.MEASURED:
            return self
        return self._replace(source=RateSource.MEASURED, variant="")

    def allows(self, accelerator: str) -> bool:
        """Return whether it may use accelerators of a type."""
        return self.accelerators is None or accelerator in self.accelerators

    def _replace(self, **changed: Any) -> "JobType":
        return JobType(**{name: getattr(self, name) for name in _FIELDS} | changed)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a job type is immutable: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobType) and self._key == other._key

    def __lt__(self, other: "JobType") -> bool:
        return bool(self._key < other._key)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, tuple(getattr(self, name) for name in _FIELDS)

    def __str__(self) -> str:
        """For messages."""
        return f"{self.name!r} at scale factor {self.scale_factor}"

    def __repr__(self) -> str:
        return f"JobType.parse({self.name!r}, {self.scale_factor})"


def _restored(*values: Any) -> JobType:
    return JobType(**dict(zip(_FIELDS, values, strict=True)))


def _name(
    family: str,
    batch_size: int | None,
    accelerators: tuple[str, ...] | None,
    source: RateSource,
    variant: str,
) -> str:
    text = family if batch_size is None else f"{family} (batch size {batch_size})"
    if accelerators is not None:
        text += f" [only {', '.join(accelerators)}]"
    match source:
        case RateSource.MEASURED:
            return text
        case RateSource.DECLARED:
            return f"{text} [{variant}]"
        case RateSource.ESTIMATED:
            return f"{text}\0{variant}"


@lru_cache(maxsize=16384)
def _parse(name: str, scale_factor: int) -> JobType:
    given = {"name": name, "scale_factor": scale_factor}
    check_arguments("JobType.parse", given, _PARSED)
    source, variant, accelerators, batch_size = RateSource.MEASURED, "", None, None
    if (found := _ESTIMATED.fullmatch(name)) is not None:
        source, variant, name = RateSource.ESTIMATED, found["variant"], found["name"]
    elif (found := _DECLARED.fullmatch(name)) is not None:
        source, variant, name = RateSource.DECLARED, found["variant"], found["name"]
    if (found := _ALLOWED.fullmatch(name)) is not None:
        listed = found["accelerators"].split(", ")
        if listed == sorted(set(listed)):
            accelerators, name = tuple(listed), found["name"]
    if (found := _BATCH_SIZE.fullmatch(name)) is not None:
        batch_size, name = int(found["batch_size"]), found["family"]
    return JobType(
        name,
        batch_size,
        scale_factor,
        accelerators=accelerators,
        source=source,
        variant=variant,
    )
