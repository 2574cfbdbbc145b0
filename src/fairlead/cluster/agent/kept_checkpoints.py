"""A check of whether the checkpoints that a job is known to have kept are where it would look for them."""

import os
import re
from pathlib import Path

from fairlead.client.checkpoint import MANIFEST, Manifest
from fairlead.client.codec import DecodeError, decode_record
from fairlead.cluster.agent.untrusted_files import read_regular
from fairlead.cluster.protocol.messages import Assignment

# One that was about to be replaced when its process was killed counts: the next one puts it back.
_CHECKPOINT = re.compile(r"step-([0-9]{12})|\.step-([0-9]{12})\.replaced")
_LARGEST_MANIFEST = 16 << 20  # bytes: it names every file of the checkpoint


def missing(path: Path, assignment: Assignment) -> str:
    """Return which kept checkpoints of a job are gone, and what its owner can do; "" = they are there.
    Damaged ones count as there: which of them can be loaded the job finds out itself. Of an unmanaged job
    only the directory is looked for. Raises OSError."""
    kept, accept = (
        assignment.kept_steps,
        f"`fairlead resume {assignment.job} --accept-loss`",
    )
    if not path.exists():
        return f"is gone, with {kept} steps (put it back, or {accept})"
    if assignment.unmanaged:
        return ""
    found = {
        int(match[1] or match[2]): name
        for name in os.listdir(path)
        if (match := _CHECKPOINT.fullmatch(name))
    }
    ways = f"(mount its storage, or put them back, or {accept})"
    if not found:
        return f"has no checkpoints any more, with {kept} steps gone {ways}"
    newest = max(found)
    if newest >= kept or _is_later(path / found[newest], assignment):
        return ""
    return f"its newest checkpoint is of step {newest}, {kept} steps were kept {ways}"


def _is_later(checkpoint: Path, assignment: Assignment) -> bool:
    """Return whether a later attempt has saved it than the one that told of the steps kept, so that these are
    not away: the later one went on from fewer, and the server did not hear of it (its node was lost, or the
    state is of a backup)."""
    try:
        content = read_regular(checkpoint / MANIFEST, _LARGEST_MANIFEST)
        manifest = decode_record(content, Manifest)
    except (OSError, DecodeError):
        return False
    return manifest.job == assignment.job and 0 < assignment.kept_by < manifest.attempt
