"""First come, first served with pairs, as Gavel's release runs it."""

from dataclasses import dataclass

from fairlead.policies.space_sharing_fifo import SpaceSharingFifo


@dataclass(frozen=True, kw_only=True, slots=True)
class GavelSpaceSharingFifo(SpaceSharingFifo):
    """``SpaceSharingFifo`` that forgets the head of the line, and packs those after it, where devices are
    left that are too few for it."""

    def first_to_pack(self, head: int, idle: float) -> int:
        """Return the row of the first job that is packed; arguments as in ``SpaceSharingFifo``."""
        return head + 1 if idle > 0 else head
