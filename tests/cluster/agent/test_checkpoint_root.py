"""The directory of all checkpoints is made once: where it is missing later its storage is away."""

from pathlib import Path

import msgspec
import pytest
from tests.cluster.agent.cluster import job
from tests.cluster.agent.test_launch import environments

from fairlead.cluster.agent.checkpoint_root import MARK, enter
from fairlead.cluster.agent.launch import DirectoryError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mnt" / "checkpoints"


def test_the_first_start_makes_it_and_no_later_one(root: Path) -> None:
    assert enter(root, known=False) == ""
    assert (root / MARK).exists()
    assert enter(root, known=True) == ""
    (root / MARK).unlink()
    assert f"has no file '{MARK}' any more" in enter(root, known=True)
    assert not list(root.iterdir())
    root.rmdir()
    assert "is not there any more (mount its storage" in enter(root, known=True)
    assert not root.exists()


def test_one_that_an_earlier_version_made_gets_its_mark(root: Path) -> None:
    (root / "7-1a2b3c4d").mkdir(parents=True)
    assert enter(root, known=True) == ""
    assert (root / MARK).exists()


def test_a_job_that_never_saved_does_not_start_below_a_mount_point(
    tmp_path: Path, root: Path
) -> None:
    assignment = msgspec.structs.replace(
        job(1), checkpoint_dir=str(root / "1"), checkpoint_root=str(root), root_is_known=True
    )
    root.parent.mkdir()
    for _ in ("the directory is gone", "it is an empty mount point"):
        with pytest.raises(
            DirectoryError, match=f"directory '{root}': (is not there|has no file)"
        ) as why:
            environments(tmp_path, assignment)
        assert (why.value.trouble, why.value.path) == ("out_of_order", str(root))
        assert not list(root.glob("*"))
        root.mkdir(exist_ok=True)
    (root / MARK).touch()
    assert environments(tmp_path, assignment)
    assert (root / "1").is_dir()


def test_in_a_new_cluster_it_is_made(tmp_path: Path, root: Path) -> None:
    given = {"checkpoint_dir": str(root / "1"), "checkpoint_root": str(root)}
    assert environments(tmp_path, msgspec.structs.replace(job(1), **given))
    assert (root / "1").is_dir()
