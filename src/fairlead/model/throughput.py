"""How fast each job family runs on each slot type, alone and beside another."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Locality, SlotType

Kind: TypeAlias = tuple[str, int]  # (family, scale factor)


@dataclass(frozen=True)
class Throughputs:
    """A table of rates. A kind is a (family, scale factor); a column is a slot type."""

    slots: tuple[SlotType, ...]
    kinds: tuple[Kind, ...]
    rate: Floats  # (kinds, slots) steps/s of the whole job; 0 = cannot run there
    pair: Floats | None = None  # (kinds, kinds, slots) steps/s of the first beside the second
    source: str = "oracle"  # oracle | user | measured | estimated
    origin: str = "memory"  # the file or catalogue it was read from, for messages

    def __post_init__(self) -> None:
        if self.rate.shape != (len(self.kinds), len(self.slots)):
            raise ThroughputError(
                f"{self.origin}: rates have shape {self.rate.shape}, "
                f"expected {(len(self.kinds), len(self.slots))}"
            )
        object.__setattr__(self, "_row", {kind: i for i, kind in enumerate(self.kinds)})
        object.__setattr__(self, "_families", frozenset(family for family, _ in self.kinds))

    @property
    def families(self) -> frozenset[str]:
        """Every family with at least one row."""
        return self._families  # type: ignore[attr-defined, no-any-return]

    def row(self, family: str, scale_factor: int) -> int | None:
        """The row of a kind, or None where the table has none."""
        return self._row.get((family, scale_factor))  # type: ignore[attr-defined, no-any-return]

    @cached_property
    def fastest(self) -> Floats:
        """(kinds,) steps/s alone on the fastest accelerator type, consolidated where the table has it;
        0 = runs nowhere."""
        side_by_side = [s.locality is Locality.CONSOLIDATED for s in self.slots]
        rate = self.rate[:, side_by_side] if any(side_by_side) else self.rate
        best: Floats = rate.max(axis=1, initial=0.0)
        return best

    def columns(self, slots: tuple[SlotType, ...]) -> "Throughputs":
        """The same table with these columns in this order; a slot type that it lacks raises."""
        have = {slot: i for i, slot in enumerate(self.slots)}
        for slot in slots:
            if slot not in have:
                known = ", ".join(sorted({s.accelerator for s in self.slots}))
                raise ThroughputError(
                    f"{self.origin}: no rates for accelerator type {slot.accelerator!r} "
                    f"({slot.locality.value}); it has {known}"
                )
        index = [have[slot] for slot in slots]
        pair = None if self.pair is None else np.ascontiguousarray(self.pair[:, :, index])
        rate = np.ascontiguousarray(self.rate[:, index])
        return Throughputs(slots, self.kinds, rate, pair, self.source, self.origin)
