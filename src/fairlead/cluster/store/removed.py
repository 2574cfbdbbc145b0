"""The counts of jobs that have left the store, by the state in which they ended."""

import msgspec

REMOVED = "removed_jobs"  # key in the table meta


def read_removed(text: str | None) -> dict[str, int]:
    """State -> jobs. text: the value in the table meta, None = none has left."""
    return {} if text is None else msgspec.json.decode(text, type=dict[str, int])


def write_removed(counts: dict[str, int]) -> str:
    """The value in the table meta."""
    return msgspec.json.encode(counts).decode()
