"""The longest lives of leases that are in force, in the state of a cluster."""

from contextlib import closing
from pathlib import Path

import msgspec

from fairlead.cluster.store.database import DATABASE_ERRORS, reader

LEASE_LENGTHS = "lease_lengths"  # key in the table meta


class LeaseLength(msgspec.Struct, frozen=True):
    """Leases that may be in force."""

    lease_s: float
    until_s: (
        float | None
    )  # the cluster's time when the last one is over; None = they are still granted


def decode_lengths(text: str | None) -> list[LeaseLength]:
    """Return what is written in the table meta; None if nothing is."""
    return [] if text is None else msgspec.json.decode(text, type=list[LeaseLength])


def lengths_of(database: Path) -> list[LeaseLength]:
    """Return the lease lengths of a state that another one takes the place of, as if they were still
    granted: its time is not that of the other one. None where it cannot be read."""
    try:
        with closing(reader(database)) as connection:
            query = "SELECT value FROM meta WHERE key = ?"
            found = connection.execute(query, (LEASE_LENGTHS,)).fetchone()
        lengths = decode_lengths(None if found is None else str(found[0]))
    except (*DATABASE_ERRORS, OSError, msgspec.DecodeError):
        return []
    return [LeaseLength(one.lease_s, None) for one in lengths]
