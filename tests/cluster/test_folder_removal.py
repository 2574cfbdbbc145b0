"""Folders of jobs are removed whatever their jobs do meanwhile."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from fairlead.cluster import folder_removal
from fairlead.cluster.folder_removal import remove_folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root removes what other users have")
def test_nobody_makes_anything_in_a_folder_that_root_removes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever went on doing so kept the one thread that removes folders for as long."""
    user = pwd.getpwnam("nobody").pw_uid
    theirs = folder / "job"
    for path in (theirs, theirs / "inner"):
        path.mkdir()
        os.chown(path, user, -1)
    tried: list[int] = []

    def level(top: int) -> bool:
        assert len(tried) < 20, "it comes to no end"
        for path in (theirs, theirs / "inner"):
            if path.exists():
                command = ["touch", str(path / f"more-{len(tried)}")]
                done = subprocess.run(command, user=user, capture_output=True, check=False)
                tried.append(done.returncode)
        return remove_level(top)

    remove_level = folder_removal._remove_level
    monkeypatch.setattr(folder_removal, "_remove_level", level)
    assert subprocess.run(["touch", str(theirs / "before")], user=user, check=True).returncode == 0
    remove_folder(folder, "job")
    assert len(tried) >= 2
    assert all(tried)
    assert not theirs.exists()


@pytest.mark.parametrize("what", ["link", "dangling link", "file"])
def test_what_a_job_has_put_in_the_place_of_its_folder_goes_and_nothing_behind_it(
    folder: Path, what: str
) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "file").write_text("x")
    theirs = folder / "job"
    if what == "file":
        theirs.write_text("x")
    else:
        theirs.symlink_to(other if what == "link" else folder / "nothing")
    remove_folder(folder, "job")
    assert not theirs.is_symlink()
    assert not theirs.exists()
    assert (other / "file").read_text() == "x"
