"""``python -m fairlead.cluster.chaos.job``: a job that trains nothing and writes down all that happens to it.

Its state is a digest of all its steps in order, so that a step that is left out or done twice shows. A line
of the ledger is one write, which a SIGKILL does not tear: a letter, a monotonic time, and more:

    B pid age_s     began                       V step            is being saved
    R pid           began, resumed by the process of the attempt before it
    G               was prepared beside the attempt before it, and may train from here on
    D what          a device is held by another C step            was found saved
    A attempt       that attempt is alive as well
    F step          has written its evaluation
    L step digest   goes on from this step      X step            was told to end
    S step digest interval_s   did this step    E step            says that it is done
"""

import fcntl
import hashlib
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import fairlead
from fairlead.client.lease import Lease
from fairlead.client.rank_zero import RankZero
from fairlead.client.report import report
from fairlead.cluster.agent.proc import process
from fairlead.cluster.chaos.entry import shift_clock

PADDING = b"\0" * 20_000  # bytes of a checkpoint beside the digest
CHECKPOINT_INTERVAL = 10  # steps, by a job without a lease
BROKEN = 127  # exit code on a node where nothing can be started
POLL_S = 0.05  # for somebody to have looked whether a process is alive
SLOW = 2.0  # a step on a k80 takes so many times as long


def digest_of(before: str, step: int) -> str:
    """Return the digest of a job after one more step."""
    return hashlib.blake2b(f"{before} {step}".encode(), digest_size=8).hexdigest()


class JobLedger:
    """Ledger of one rank of one attempt."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / (
            f"{os.environ['FAIRLEAD_JOB']}.{os.environ['FAIRLEAD_ATTEMPT']}.{os.environ.get('RANK', '0')}"
        )
        self._file = -1

    def open(self) -> "JobLedger":
        """Begin it. Its lock is taken by ``living``."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self

    def living(self) -> list[int]:
        """Attempts of the job of which another process is alive, and not frozen: one that is may wake up
        beside its successor, and does nothing then. This process is known by its lock until it ends."""
        job, mine, _ = self.path.name.split(".")
        found = set() if _locks(self._file, fcntl.LOCK_EX) else {int(mine)}
        for path in self.path.parent.glob(f"{job}.*"):
            attempt = int(path.name.split(".")[1])
            if attempt != int(mine) and _is_written(path):
                found.add(attempt)
        return sorted(found)

    def unlock(self) -> None:
        """Whoever looks from now on does not take this process for a living one: it is parked."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def write(self, letter: str, *values: object) -> None:
        """A line."""
        line = " ".join(map(str, (letter, f"{time.monotonic():.6f}", *values)))
        os.write(self._file, line.encode() + b"\n")


def _locks(descriptor: int, kind: int) -> bool:
    """Take the lock of a ledger, if no process has it that writes there; one that looks has it briefly."""
    until = time.monotonic() + POLL_S
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
        time.sleep(0.005)


def _is_written(path: Path) -> bool:
    """Return whether the process that writes this ledger is alive and not frozen."""
    with path.open("rb") as file:
        if _locks(file.fileno(), fcntl.LOCK_SH):
            return False
        words = file.readline().split()
    found = process(int(words[2])) if len(words) >= 3 else None
    return found is not None and found.state not in "TtZX"


class JobWork:
    """The training of a job: its steps, their digest, and its checkpoints."""

    def __init__(self, folder: Path, step_s: float) -> None:
        self.ledger = JobLedger(folder).open()
        self.step_s = step_s
        self.step = 0
        self.digest = ""
        self._folder = folder
        self._saved: Path | None = None
        self._kept_step = 0  # of the newest checkpoint
        self._is_leaving = False  # its devices are given back, for it will be parked
        self._device_locks: list[int] = []

    def look_around(self) -> None:
        """Be alive for all others, and note who else is."""
        for attempt in self.ledger.living():
            self.ledger.write("A", attempt)

    def hold_devices(self) -> None:
        """Lock the devices: a second proof beside the agent's own locks."""
        node = Path(os.environ["FAIRLEAD_SOCKET"]).parent.name
        for device in os.environ["FAIRLEAD_DEVICES"].split(","):
            path = self._folder.parent / f"{node}-{device}.lock"
            self._device_locks.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            try:
                fcntl.flock(self._device_locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.ledger.write("D", f"{node}-{device}")

    def park(self) -> None:
        """Give the devices back."""
        for lock in self._device_locks:
            os.close(lock)
        self._device_locks = []
        self._is_leaving = True
        if self.step == self._kept_step or os.environ.get("RANK", "0") != "0":
            self.ledger.unlock()

    def resume(self) -> None:
        """Go on, as another attempt."""
        self.check()
        self.ledger.write("X", self.step)
        self.ledger = JobLedger(self._folder).open()
        self._is_leaving = False
        self.ledger.write("R", os.getpid())
        self.look_around()
        self.hold_devices()
        self.ledger.write("L", self.step, self.digest)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint."""
        step, self.digest = path.read_bytes().split(b"\n", 1)[0].decode().split(" ")
        self.step = self._kept_step = int(step)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        self.ledger.write("V", self.step)
        with path.open("wb") as file:
            file.write(f"{self.step} {self.digest}\n".encode() + PADDING)
        self._saved = path.parent.parent / f"step-{self.step:012}"
        self._kept_step = self.step
        if self._is_leaving:
            self.ledger.unlock()

    def check(self) -> None:
        """Look whether the last checkpoint has got its name."""
        if self._saved is not None and self._saved.is_dir():
            self.ledger.write("C", int(self._saved.name.removeprefix("step-")))
        self._saved = None

    def train(self, interval_s: float) -> None:
        """One step."""
        time.sleep(self.step_s)
        self.step += 1
        self.digest = digest_of(self.digest, self.step)
        self.ledger.write("S", self.step, self.digest, f"{interval_s:.3f}")


def age_s() -> float:
    """Seconds since this process was made: on a busy machine it is a while until it runs."""
    me = process(os.getpid())
    assert me is not None
    born_s = me.start_time / os.sysconf("SC_CLK_TCK")
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - born_s, 0.0)


def interval_s(lease: Lease) -> float:
    """Seconds between checkpoints, as the scheduler wants it now; 0 on ranks that do not save."""
    role = lease._role
    return role._link.checkpoint_s if isinstance(role, RankZero) else 0.0


def node_of_job() -> str:
    """The name of the node, by the agent's state directory; "" for a job without a lease."""
    return Path(os.environ.get("FAIRLEAD_SOCKET", "")).parent.name.removeprefix("agent-")


def has_standby() -> bool:
    """Return whether another attempt of the job may train until the lease of this one is entered."""
    return bool(os.environ.get("CHAOS_STANDBY"))


def main() -> None:
    """See the module."""
    control = Path(os.environ["CHAOS_CONTROL"])
    if (node := node_of_job()) and (control / f"broken-{node}").exists():
        sys.exit(BROKEN)
    shift_clock(control)
    folder = Path(os.environ["CHAOS_LEDGER"])
    if trial := os.environ.get("FAIRLEAD_TRIAL"):
        folder = folder.with_name(f"{folder.name}-{trial}")
    slow = SLOW if os.environ["FAIRLEAD_ACCELERATOR"] == "k80" else 1.0
    work = JobWork(folder, float(os.environ["CHAOS_STEP_S"]) * slow)
    work.ledger.write("B", os.getpid(), f"{age_s():.2f}")
    if not has_standby():
        work.look_around()
    if "FAIRLEAD_SOCKET" not in os.environ:
        _run_unmanaged(work, Path(os.environ["FAIRLEAD_CHECKPOINT_DIR"]) / "own")
        return
    work.hold_devices()
    try:
        _train(work)
    except SystemExit as end:
        if not end.code:
            work.ledger.write("X", work.step)
        raise


def loss_of(x: float, step: int) -> float:
    """Return what a trial with this parameter reports at a step."""
    return x + 1.0 / step


def _train(work: JobWork) -> None:
    parameters = fairlead.parameters()  # of a trial of a search
    with Lease(load=work.load, save=work.save, on_park=work.park, on_resume=work.resume) as lease:
        if has_standby():
            work.ledger.write("G")
            work.look_around()
        work.step = lease.step
        work.ledger.write("L", work.step, work.digest)
        while lease.next():
            work.check()
            work.train(interval_s(lease))
            if parameters:
                report(work.step, loss=loss_of(float(parameters["x"]), work.step))
    if lease.completed:
        work.ledger.write("E", work.step)
        _evaluate(work)


def _evaluate(work: JobWork) -> None:
    """Do the work that comes after the loop: it may be stopped anywhere, and is then done again."""
    seconds = float(os.environ.get("CHAOS_EVALUATION_S", "0"))
    if not seconds or os.environ.get("RANK", "0") != "0":
        return
    time.sleep(seconds)
    final = evaluation_path(work.ledger.path.parent)
    partial = final.with_suffix(f".{os.getpid()}")
    partial.write_text(f"{work.step} {work.digest}")
    partial.replace(final)
    work.ledger.write("F", work.step)


def evaluation_path(folder: Path) -> Path:
    """Return the file in which the job with this ledger writes the result of its evaluation."""
    return folder.with_suffix(".evaluation")


def _run_unmanaged(work: JobWork, folder: Path) -> None:
    """Without a lease: goes on from a file of its own, and is stopped by SIGTERM wherever it is."""
    if folder.is_file():
        work.load(folder)
    work.ledger.write("L", work.step, work.digest)
    while work.step < int(os.environ["FAIRLEAD_TOTAL_STEPS"]):
        work.train(0.0)
        if work.step % CHECKPOINT_INTERVAL == 0:
            with suppress(OSError):  # the disk is full
                partial = folder.with_suffix(".partial")
                partial.write_text(f"{work.step} {work.digest}\n")
                partial.replace(folder)
    work.ledger.write("E", work.step)


if __name__ == "__main__":
    main()
