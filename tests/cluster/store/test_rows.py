"""What a row leaves out is what its fields are by default: rows of years ago hang on those."""

import hashlib

import msgspec
import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import PrunerSpec, StudySpec
from fairlead.cluster.store.rows import AttemptRow, JobRow, SearchRow, TrialRow

SMALL = JobSpec(command=("true",), total_steps=1)


def digest(struct: type[msgspec.Struct]) -> str:
    """Of the defaults of its fields."""
    defaults = [
        (one.name, repr(one.default), one.default_factory)
        for one in msgspec.structs.fields(struct)
        if not one.required
    ]
    return hashlib.sha256(repr(sorted(map(str, defaults))).encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("struct", "known"),
    [
        (JobRow, "888d2acf"),
        (AttemptRow, "9b7bb049"),
        (JobSpec, "40fec0ed"),
        (SearchRow, "505f393c"),
        (TrialRow, "6c6784ac"),
        (StudySpec, "fe7fc080"),
        (PrunerSpec, "27dd9f25"),
    ],
    ids=["job", "attempt", "spec", "search", "trial", "study", "pruner"],
)
def test_a_default_is_not_changed_without_a_migration(
    struct: type[msgspec.Struct], known: str
) -> None:
    """A new field with a default needs none: bring the digest here up to date. A changed default does: see
    ``store.migrations``."""
    assert digest(struct) == known


def test_a_row_holds_only_what_is_not_as_at_first() -> None:
    row = JobRow(id=1, name="a", tenant="t", user="u", spec=SMALL, submitted_s=0.0, total_steps=1.0)
    written = msgspec.msgpack.encode(row)
    assert b"preemptions" not in written
    assert b"max_retries" not in written
    assert msgspec.msgpack.decode(written, type=JobRow) == row
