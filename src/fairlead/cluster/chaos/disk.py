"""Small file systems that can be filled up, and what is left over of processes."""

import contextlib
import os
import subprocess
from pathlib import Path

BLOCK = 1 << 16


class SmallDisk:
    """A folder with a file system of its own where we may make one (root), else a plain folder."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self.megabytes = megabytes
        self.mounted = False

    def mount(self) -> None:
        """Make the folder."""
        self.folder.mkdir(parents=True)
        call = ["mount", "-t", "tmpfs", "-o", f"size={self.megabytes}m,mode=700"]
        with contextlib.suppress(OSError):
            done = subprocess.run([*call, "fairlead-chaos", str(self.folder)], capture_output=True)
            self.mounted = done.returncode == 0

    def fill(self) -> None:
        """Fill the disk until nothing more can be written."""
        if not self.mounted:
            raise ValueError(f"{self.folder}: is not a file system of its own")
        with (self._ballast).open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\1" * BLOCK)

    def empty(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def unmount(self) -> None:
        """Unmount the disk; all that is on it is lost."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True)
            self.mounted = False


def footprint(pid: int) -> tuple[int, int]:
    """(open files and sockets, threads) of a process."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def children(pid: int) -> list[int]:
    """Processes that it, whichever of its threads, has started."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
            found.extend(int(child) for child in text.split())
    return found


def mentions(pid: int, text: str) -> bool:
    """Return whether a living process has the text in its command line or environment."""
    try:
        folder = Path(f"/proc/{pid}")
        shown = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
    except OSError:
        return False
    return text.encode() in shown


def who_mentions(text: str) -> list[int]:
    """All such processes but this one."""
    me = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != me and mentions(pid, text)]


def command_of(pid: int) -> str:
    """Its command line."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""
