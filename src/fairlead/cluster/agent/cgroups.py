"""Limits of what an attempt may use: a group of its own (cgroup v2) for the processes of each.

The group is made before the first rank is forked, and each rank goes into it before it is anything of its
job. Nothing leaves it again, whatever a job does to hide.
"""

import contextlib
import errno
import os
import time
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError

_GB = 10**9
_PERIOD_US = 100_000  # of cpu.max
_PROCESSES = 4096  # and threads, that a device entitles to
_LEAF = "fairlead-agent"  # group of the agent's own processes: a group with members has no limited children
_REMOVE_S = 1.0  # for the last processes of a group to be gone
_POLL_S = 0.01


class DeviceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an attempt for each device that it holds on the node. 0 = no limit."""

    memory_gb: float = 0.0
    cpus: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.memory_gb or self.cpus)

    @property
    def controllers(self) -> dict[str, str]:
        """Return the controllers of the kernel that are needed, each with the option that needs it."""
        needed = {}
        if self.memory_gb:
            needed["memory"] = "--memory-per-device"
        if self.cpus:
            needed["cpu"] = "--cpus-per-device"
        return needed | ({"pids": next(iter(needed.values()))} if needed else {})


class AttemptGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The group of an attempt."""

    path: str
    limits: DeviceLimits  # for each device
    devices: int

    def make(self) -> None:
        """Make it, with its limits. Raises OSError."""
        folder, limits = Path(self.path), self.limits
        folder.mkdir(exist_ok=True)
        _write(folder / "pids.max", str(_PROCESSES * self.devices))
        if limits.memory_gb:
            _write(folder / "memory.max", str(round(limits.memory_gb * self.devices * _GB)))
            _write(folder / "memory.oom.group", "1")  # a job that has lost some processes is none
            with contextlib.suppress(OSError):  # a kernel that does not count swap
                _write(folder / "memory.swap.max", "0")
        if limits.cpus:
            _write(
                folder / "cpu.max", f"{round(limits.cpus * self.devices * _PERIOD_US)} {_PERIOD_US}"
            )

    def enter(self) -> None:
        """Put this process there. Raises OSError."""
        _write(Path(self.path) / "cgroup.procs", "0")

    @property
    def is_populated(self) -> bool:
        """Return whether a process is in it that has not ended."""
        return "populated 1" in _read(Path(self.path) / "cgroup.events")

    def kill(self) -> None:
        """SIGKILL to all that is in it; kernels before 5.14 cannot."""
        with contextlib.suppress(OSError):
            _write(Path(self.path) / "cgroup.kill", "1")

    @property
    def exceeded(self) -> str:
        """Return what limit the kernel has ended its processes for, in half a sentence; "" = for none."""
        events = dict(
            line.split() for line in _read(Path(self.path) / "memory.events").splitlines()
        )
        if int(events.get("oom_kill", "0")) == 0:
            return ""
        whole = f"{self.limits.memory_gb * self.devices:g} GB"
        devices = f"{self.devices} devices" if self.devices > 1 else "1 device"
        return f"used more than the {whole} that this node gives to {devices}"

    def remove(self) -> None:
        """Remove it, once nothing is in it. Blocks for a moment; what does not go stays."""
        _remove(Path(self.path))


class NodeGroups:
    """The groups of a node's attempts: ``open`` before the first."""

    def __init__(self, limits: DeviceLimits, node: str, base: Path | None = None) -> None:
        """base: the group below which they are; None = this process' own."""
        self._limits = limits
        self._node = node
        self._base = base

    def open(self) -> None:
        """Find the group, and have the kernel limit those below it. Raises ConfigError where it does not."""
        if not self._limits:
            return
        needed = self._limits.controllers
        option = next(iter(needed.values()))
        if self._base is None:
            self._base = _own_group(option)
        base = self._base
        available = _read(base / "cgroup.controllers").split()
        for controller, wanted_by in needed.items():
            if controller not in available:
                told = f"only {', '.join(available)}" if available else "none"
                raise ConfigError(
                    f"{wanted_by}: needs cgroup v2 with the {controller} controller, and {base} has {told} "
                    "(with systemd: Delegate=yes in the agent's unit)"
                )
        try:
            self._enable(base, set(needed))
        except OSError as problem:
            raise ConfigError(
                f"{option}: {base} cannot be divided: {problem.strerror}; the agent needs a group of its own "
                "that it may write to (with systemd: Delegate=yes in its unit)"
            ) from None

    def _enable(self, base: Path, needed: set[str]) -> None:
        """Raises OSError."""
        if (base / "cgroup.type").exists():  # all but the topmost
            (base / _LEAF).mkdir(exist_ok=True)
            _write(base / _LEAF / "cgroup.procs", "0")
        if needed - set(_read(base / "cgroup.subtree_control").split()):
            _write(base / "cgroup.subtree_control", " ".join(f"+{one}" for one in sorted(needed)))

    def of(self, job: int, attempt: int, devices: int) -> AttemptGroup | None:
        """Return the group of an attempt; None = it has no limits."""
        if not self._limits or not devices or self._base is None:
            return None
        path = self._base / f"{self._node}-{job}-{attempt}"
        return AttemptGroup(path=str(path), limits=self._limits, devices=devices)

    def remove_left(self) -> None:
        """End and remove what an earlier agent of this node has left."""
        if not self._limits or self._base is None:
            return
        for folder in self._base.glob(f"{self._node}-*-*"):
            with contextlib.suppress(OSError):
                _write(folder / "cgroup.kill", "1")
            _remove(folder)


def _own_group(option: str) -> Path:
    """The group of this process. Raises ConfigError."""
    mounted = [
        line.split()[4]
        for line in _read(Path("/proc/self/mountinfo")).splitlines()
        if line.partition(" - ")[2].split()[:1] == ["cgroup2"]
    ]
    inside = [
        line.removeprefix("0::")
        for line in _read(Path("/proc/self/cgroup")).splitlines()
        if line.startswith("0::")
    ]
    if not mounted or not inside:
        raise ConfigError(f"{option}: needs cgroup v2, which is not mounted on this node")
    own = Path(mounted[0]) / inside[0].lstrip("/")
    return own.parent if own.name == _LEAF else own


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVE_S
    while folder.exists() and time.monotonic() < deadline:
        try:
            folder.rmdir()
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                return
            time.sleep(_POLL_S)


def _read(path: Path) -> str:
    """The content; "" = it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Raises OSError. One call of write(2): the kernel acts on each."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
