"""The cluster's directory of checkpoints (``serve --checkpoints``), which has a folder for each job.

The first attempt makes it, once. Where it was used before and is missing its storage is not mounted: what is
saved below the mount point would be out of sight as soon as it is mounted again."""

import os
from contextlib import suppress
from pathlib import Path

MARK = ".fairlead-checkpoints"  # a file in it: an empty mount point has none
_REMEDY = f" (mount its storage, or put it back; to begin anew, make it with an empty file {MARK!r} in it)"


def enter(root: Path, *, known: bool) -> str:
    """Make sure that it is there. known: jobs have used it before, so it is not to be made. Returns why it is
    not used, "" = it is. Raises OSError where it cannot be."""
    if not known:
        root.mkdir(parents=True, exist_ok=True)
    elif not root.exists():
        return f"is not there any more{_REMEDY}"
    elif not (root / MARK).exists() and not any(_is_of_job(name) for name in os.listdir(root)):
        return f"has no file {MARK!r} any more{_REMEDY}"
    if not (root / MARK).exists():
        with suppress(OSError):  # the folder of the job is tried next, and tells what is wrong
            (root / MARK).touch()
    return ""


def _is_of_job(name: str) -> bool:
    """Return whether a name is that of a folder of a job: its id is the beginning."""
    return name[:1].isdigit()
