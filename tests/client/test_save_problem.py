"""Why a checkpoint could not be saved, whatever the library that saved it says."""

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.client.save_problem import PROBE_BYTES, save_problem
from fairlead.client.storage import place_of
from tests.client.training import Script

TORCH = "[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"


class LibraryError(Exception):
    """As of safetensors: neither an OSError nor a RuntimeError."""


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    made = tmp_path / "7" / ".step-000000000005.partial"
    made.mkdir(parents=True)
    return made


def refuse(patch: pytest.MonkeyPatch, number: int) -> None:
    """The storage takes nothing that is written to it."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    patch.setattr(os, "fsync", fail)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("kind", [RuntimeError, OSError, LibraryError])
def test_the_storage_is_asked_where_an_error_does_not_tell(
    partial: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    refuse(monkeypatch, number)
    found = save_problem(kind(TORCH), partial)
    directory, name = partial.parent, kind.__name__
    assert found.why == (
        f"checkpoint directory '{directory}': {os.strerror(number)} ({name}: {TORCH})"
    )
    assert found.of_storage
    assert found.place == place_of(OSError(number, ""), directory)
    assert not list(partial.iterdir())


def test_the_error_behind_an_error_tells(partial: Path) -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(partial / "rank-0"))
        except OSError:
            raise RuntimeError(TORCH)  # noqa: B904
    except RuntimeError as problem:
        found = save_problem(problem, partial)
    assert found.why.startswith(f"checkpoint directory '{partial.parent}': No space left on device")
    assert found.of_storage


def test_an_error_of_the_script_is_not_one_of_the_storage(partial: Path) -> None:
    for error in (RuntimeError("CUDA error"), KeyError("weights"), OSError(errno.ENOENT, "gone")):
        found = save_problem(error, partial)
        assert (found.why, found.place, found.of_storage) == (str(error), "", False)


def test_what_a_library_has_removed_counts(partial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room again, but not as much as the checkpoint before has."""
    before = partial.parent / "step-000000000004"
    before.mkdir()
    (before / "rank-0").write_bytes(os.urandom(4 * PROBE_BYTES))
    real = os.statvfs

    def little(path: Path) -> os.statvfs_result:
        room = 2 * PROBE_BYTES // real(path).f_frsize
        values = list(real(path))
        values[3] = values[4] = room
        return os.statvfs_result(values)

    assert save_problem(RuntimeError(TORCH), partial).why == TORCH
    monkeypatch.setattr(os, "statvfs", little)
    found = save_problem(RuntimeError(TORCH), partial)
    assert ": No space left on device (RuntimeError: " in found.why


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system with these options."""
    folder = tmp_path / "mounted"
    folder.mkdir()

    def mount(options: str) -> Path:
        words = ("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
        if (
            shutil.which("mount") is None
            or subprocess.run(words, check=False, capture_output=True).returncode
        ):
            pytest.skip("no file system can be mounted here")
        return folder

    yield mount
    subprocess.run(("umount", "-l", str(folder)), check=False, capture_output=True)


def torch_saves(path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"weights": torch.zeros(1 << 20)}, path)


def numpy_saves(path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with path.open("wb") as file:
        numpy.save(file, numpy.zeros(1 << 20))


def many_files(path: Path) -> None:
    path.mkdir()
    try:
        for number in range(100):
            (path / str(number)).touch()
    except OSError:
        raise RuntimeError("cannot open a file") from None


@pytest.mark.parametrize(
    ("options", "save"),
    [("size=1m", torch_saves), ("size=1m", numpy_saves), ("size=1m,nr_inodes=20", many_files)],
)
def test_a_full_disk_is_known_whatever_saves(
    mounted: Callable[[str], Path],
    options: str,
    save: Callable[[Path], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    directory = mounted(options) / "7"

    class Saving(Script):
        def save(self, path: Path) -> None:
            save(path)

    def stop(_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        Saving().run(directory, 6, {3: stop})
    assert left.value.code == 74
    said = f"checkpoint directory '{directory}': No space left on device ("
    assert said in capfd.readouterr().err


def test_the_place_of_an_error_is_the_highest_that_is_wrong(tmp_path: Path) -> None:
    root, wrong = tmp_path / "root", OSError(errno.ENOTDIR, "")
    own = root / "7"
    own.mkdir(parents=True)
    assert place_of(OSError(errno.EACCES, ""), own) == str(own)
    own.rmdir()
    assert place_of(OSError(errno.EACCES, ""), own) == str(root)
    own.touch()
    assert place_of(wrong, own) == str(own)
    assert place_of(wrong, own / "below") == str(own)
    own.unlink()
    own.symlink_to(tmp_path / "nowhere")
    assert place_of(OSError(errno.EEXIST, ""), own) == str(own)
    own.unlink()
    root.rmdir()
    root.touch()
    assert place_of(wrong, own) == str(root)


def test_the_place_of_a_full_disk_is_the_top_of_its_file_system(
    mounted: Callable[[str], Path],
) -> None:
    top, full = mounted("size=1m"), OSError(errno.ENOSPC, "")
    assert place_of(full, top / "c" / "7") == str(top)
    (top / "c" / "7").mkdir(parents=True)
    assert place_of(full, top / "c" / "7") == str(top)
    assert place_of(full, top.parent / "7") != str(top)
