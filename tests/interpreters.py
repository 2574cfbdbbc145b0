"""Other Pythons on this machine, for tests of what runs in environments that are not ours."""

import shutil
from pathlib import Path

import pytest


def interpreter(version: str) -> Path | None:
    """One of this version, as 3.9."""
    name = f"python{version}"
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
    on_path = shutil.which(name, path="/usr/local/bin:/usr/bin")
    return Path(on_path) if on_path else next(iter(found), None)


def wanted(version: str) -> Path:
    """The same; skips the test, with a word, where there is none."""
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    return found
