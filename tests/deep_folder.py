"""Folders deeper than any path may be long."""

import os
from pathlib import Path


def make_deep(folder: Path, levels: int = 3_000) -> None:
    """Make the folder, and so many in one another below it, each with a link."""
    folder.mkdir(parents=True)
    level = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=level)
        os.symlink("/", "link", dir_fd=level)
        below = os.open("d", os.O_RDONLY, dir_fd=level)
        os.close(level)
        level = below
    os.close(level)
