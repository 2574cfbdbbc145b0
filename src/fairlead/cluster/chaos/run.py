"""Trials, one after the other and some at the same time, and the checks at the end."""

import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.cluster.chaos.cluster import (
    LEASE_S,
    NODES,
    ChaosCluster,
)
from fairlead.cluster.chaos.disk import command_of, footprint
from fairlead.cluster.chaos.fault_kinds import FAULTS
from fairlead.cluster.chaos.faults import Fault
from fairlead.cluster.chaos.job_ledger import count_prepared, count_resized
from fairlead.cluster.chaos.search_load import SearchLoad
from fairlead.cluster.chaos.workload import JobLoad
from fairlead.cluster.server.kernel_compiler import compile_in_child
from fairlead.errors import CheckError, FairleadError
from fairlead.model.jit import modules_with_kernels

PER_CLUSTER = 20  # trials, before all is checked and a new cluster begins
HELPER_EXIT_S = 10.0  # for helpers of a process that has ended to notice it
ATTEMPTS = 500  # to find something to hurt
AT_ONCE = 2  # faults in force
SLOWER = 3.0  # leases that it may take beyond the following limits
RECOVERY_TIMEOUT_S = 90.0  # from the repair until the cluster is whole again, at the most
COMPLETION_TIMEOUT_S = 120.0  # for the jobs that are left to end
SEARCHES = 0.5  # of clusters: a search goes on in them
LOSES_TRIALS = {"damage-state"}  # a trial that begins between the backup and the kill
LOSES_REPORTS = {"fill-agent", "lose-agent-state", "damage-agent-state", "fill-state"}
LEAK_ALLOWANCE = (12, 8)  # files and threads by which a process may have grown
Say = Callable[[str], None]


@dataclass
class Trial:
    """One fault."""

    number: int
    kind: str
    what: str
    held_s: float  # from the fault to its repair
    healed_s: float  # from there until the cluster was whole


@dataclass
class TrialSummary:
    """The outcome of all trials."""

    trials: list[Trial] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # kind -> why
    jobs: int = 0
    starts: int = 0
    resumed: int = 0  # of these, by a process that was parked
    prepared: int = 0  # of these, beside the attempt before it
    resized: int = 0  # of these, with another number of devices
    refused: int = 0
    searches: int = 0
    violations: list[str] = field(default_factory=list)


def run_trials(
    trials: int,
    seed: int,
    kinds: Sequence[str],
    keep: Path | None,
    say: Say,
    lease_s: float = LEASE_S,
    *,
    resizing: bool = False,
) -> TrialSummary:
    """Inject faults into clusters so many times. kinds: of KINDS; keep: folder for what is left where
    something is wrong (None: it is removed); say: told of each trial; lease_s: of the clusters; resizing:
    all jobs are elastic, and the policy decides how many devices they have."""
    outcome = TrialSummary()
    compile_in_child(modules_with_kernels())  # a server that compiles them is not one that hangs
    number = 0
    while number < trials and not outcome.violations:
        count = min(PER_CLUSTER, trials - number)
        _run_cluster(
            first=number,
            count=count,
            seed=seed,
            kinds=kinds,
            keep=keep,
            say=say,
            out=outcome,
            lease_s=lease_s,
            resizing=resizing,
        )
        number += count
    return outcome


def _run_cluster(
    first: int,
    count: int,
    seed: int,
    kinds: Sequence[str],
    keep: Path | None,
    say: Say,
    out: TrialSummary,
    lease_s: float,
    resizing: bool,
) -> None:
    rng = random.Random(f"{seed} {first}")
    directory = Path(tempfile.mkdtemp(prefix="fairlead-chaos-"))
    cluster = ChaosCluster(directory, rng, lease_s, resizing=resizing)
    work = JobLoad(cluster, random.Random(rng.random()), resizing=resizing)
    try:
        cluster.start()
        session = _Session(
            work=work, rng=rng, first=first, count=count, kinds=kinds, say=say, outcome=out
        )
        session.run()
    except FairleadError as problem:
        out.violations.append(str(problem))
    finally:
        cluster.clean_up()
        if out.violations and keep is not None:
            shutil.copytree(
                directory,
                keep,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("*.sock", "ballast"),
            )
        for disk in cluster.folders.all_disks():
            disk.unmount()
        shutil.rmtree(directory, ignore_errors=True)


class _Session:
    """The trials of one cluster."""

    def __init__(
        self,
        work: JobLoad,
        rng: random.Random,
        first: int,
        count: int,
        kinds: Sequence[str],
        say: Say,
        outcome: TrialSummary,
    ) -> None:
        self.cluster = work.cluster
        self.work = work
        self.searches = self._make_searches(kinds, rng)
        self.outcome = outcome
        self.say = say
        self._rng = rng
        self._todo = queue.SimpleQueue[int]()
        for number in range(first, first + count):
            self._todo.put(number)
        self._kinds = self._possible(
            [name for name in kinds if self.searches is None or name not in LOSES_TRIALS]
        )
        self._deck: list[Fault] = []  # kinds in a random order, each once before any comes again
        self._faulted: set[str] = set()  # targets of faults in force
        self._lock = threading.Lock()
        self._filled = False
        self._reports_lost = False

    def _make_searches(self, kinds: Sequence[str], rng: random.Random) -> SearchLoad | None:
        """Return the searches of this cluster; None = it has none."""
        drawn = rng.random() < SEARCHES and not set(kinds) <= LOSES_TRIALS
        return SearchLoad(self.cluster, random.Random(rng.random())) if drawn else None

    def run(self) -> None:
        """Work, faults, checks."""
        cluster, work = self.cluster, self.work
        work.start()
        if self.searches is not None:
            self.searches.start()
        try:
            time.sleep(2.0)
            before = _footprints(cluster)
            threads = [threading.Thread(target=self._saboteur) for _ in range(AT_ONCE)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            work.end(cancel=bool(self.outcome.violations))
            if self.searches is not None:
                self.searches.end(cancel=bool(self.outcome.violations))
        if self.outcome.violations:
            return
        self._revive()
        limit_s = COMPLETION_TIMEOUT_S + SLOWER * cluster.lease_s
        if self.searches is not None:
            self.searches.await_end(limit_s)
        work.await_jobs(limit_s)
        self.outcome.violations.extend(work.check(self._filled))
        if self.searches is not None:
            self.outcome.violations.extend(
                self.searches.check(disk_was_full=self._filled, reports_lost=self._reports_lost)
            )
            self.outcome.searches += len(self.searches.ids)
        self.outcome.jobs += len(work.jobs)
        self.outcome.refused += work.refused
        ledgers = list(cluster.folders.ledger.glob("*/*.0"))
        self.outcome.starts += len(ledgers)
        self.outcome.resumed += sum(path.read_bytes()[:1] == b"R" for path in ledgers)
        self.outcome.prepared += sum(map(count_prepared, cluster.folders.ledger.iterdir()))
        self.outcome.resized += sum(map(count_resized, cluster.folders.ledger.iterdir()))
        self.outcome.violations.extend(_leaks(cluster, before))
        self.outcome.violations.extend(cluster.stop())
        self.outcome.violations.extend(_leftovers(cluster))

    def _revive(self) -> None:
        """Nodes that stayed dead are repaired: some jobs cannot run without."""
        dead, self.cluster.dead = self.cluster.dead, set()
        for node in sorted(dead):
            self.cluster.start_agent(node)
        if dead:
            self.cluster.await_nodes(self._heal_s)

    @property
    def _heal_s(self) -> float:
        return RECOVERY_TIMEOUT_S + SLOWER * self.cluster.lease_s

    def _possible(self, names: Sequence[str]) -> list[Fault]:
        disks = {
            "fill-state": self.cluster.folders.server,
            "fill-checkpoints": self.cluster.folders.checkpoints,
            "fill-agent": next(iter(self.cluster.folders.disks.values())),
        }
        for name in names:
            if name in disks and not disks[name].mounted:
                self.outcome.skipped[name] = "no file system can be mounted (not root)"
        return [FAULTS[name] for name in names if name not in self.outcome.skipped]

    def _saboteur(self) -> None:
        """Trials until there are none left."""
        while not self.outcome.violations:
            try:
                number = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._trial(number)
            except (FairleadError, OSError) as problem:
                self.outcome.violations.append(f"trial {number}: {problem}")

    def _trial(self, number: int) -> None:
        for _ in range(ATTEMPTS):
            kind, targets, rng = self._draw(number)
            try:
                injection = self._do(kind, targets, rng)
                if injection is not None:
                    trial = Trial(number, kind.name, *injection)
                    self.outcome.trials.append(trial)
                    self.say(
                        f"{number:4} {trial.what}; {trial.held_s:.1f} s later put right, "
                        f"whole again after {trial.healed_s:.1f} s"
                    )
                    return
            finally:
                with self._lock:
                    self._faulted -= set(targets)
                    self._faulted |= self.cluster.dead
            with self._lock:
                self._deck.append(kind)  # there was nothing to hurt: later again
            time.sleep(0.2)
        raise CheckError(f"trial {number}: nothing to hurt in {ATTEMPTS} attempts")

    def _do(
        self, kind: Fault, targets: tuple[str, ...], rng: random.Random
    ) -> tuple[str, float, float] | None:
        began = time.monotonic()
        try:
            injection = kind.inject(self.cluster, targets[0], rng)
        except FairleadError:  # a server that another fault has hit does not answer
            return None
        if injection is None:
            return None
        self._filled |= kind.name == "fill-checkpoints"
        self._reports_lost |= kind.name in LOSES_REPORTS
        time.sleep(kind.hold(self.cluster.lease_s, rng))
        injection.repair()
        repaired = time.monotonic()
        while left := self._broken(targets):
            if time.monotonic() > repaired + self._heal_s:
                raise CheckError(
                    f"{injection.what}: not whole again after {self._heal_s:.0f} s: {left}"
                )
            time.sleep(0.1)
        return injection.what, repaired - began, time.monotonic() - repaired

    def _broken(self, targets: Sequence[str]) -> str:
        """Return what the cluster misses if that concerns the targets or the server; "" = it does not."""
        left = self.cluster.missing()
        concerned = not left or any(name in left for name in targets) or "server" in left
        return left if concerned else ""

    def _draw(self, number: int) -> tuple[Fault, tuple[str, ...], random.Random]:
        """A kind and its target, none that is hurt already."""
        while True:
            with self._lock:
                if not self._deck:
                    self._deck = self._rng.sample(self._kinds, len(self._kinds))
                for kind in self._deck:
                    free = [t for t in kind.targets if t not in self._faulted]
                    others = self._faulted - self.cluster.dead
                    if not free or (kind.exclusive and others):
                        continue
                    targets = tuple(free) if kind.exclusive else (self._rng.choice(free),)
                    self._deck.remove(kind)
                    self._faulted |= set(targets)
                    return kind, targets, random.Random(f"{number} {self._rng.random()}")
            time.sleep(0.1)


def _footprints(cluster: ChaosCluster) -> dict[str, tuple[int, int]]:
    return {name: footprint(one.pid) for name, one in cluster.processes.named.items()}


def _leaks(cluster: ChaosCluster, before: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Files and threads that server and agents hold beyond what they began with."""
    until = time.monotonic() + 10.0
    found = list(_grown(cluster, before))
    while found and time.monotonic() < until:  # connections of the last requests go in their time
        time.sleep(0.5)
        found = list(_grown(cluster, before))
    yield from found


def _grown(cluster: ChaosCluster, before: dict[str, tuple[int, int]]) -> Iterator[str]:
    for name, now in _footprints(cluster).items():
        for what, was, has, slack in zip(
            ("files", "threads"), before[name], now, LEAK_ALLOWANCE, strict=True
        ):
            if has > was + slack:
                yield f"{name} has {has} {what} open, {was} in the beginning"


def _leftovers(cluster: ChaosCluster) -> Iterator[str]:
    """Yield a line for each thing that an ended cluster has left and must not, and for a broken journal."""
    until = time.monotonic() + HELPER_EXIT_S
    while cluster.processes.orphans() and time.monotonic() < until:
        time.sleep(0.1)
    for pid in cluster.processes.orphans():
        yield f"process {pid} is left: {command_of(pid)[:200]}"
    for node in NODES:
        records = list((cluster.folders.agent_states[node] / "starts").iterdir())
        yield from (f"{node}: the record {path.name} of an attempt is left" for path in records)
    for partial in cluster.folders.checkpoints.folder.glob("*/.*.partial"):
        yield f"{partial} is left"
    state = str(cluster.folders.server_state)
    replayed = subprocess.run(
        [sys.executable, "-m", "fairlead", "replay", state], capture_output=True, text=True
    )
    if replayed.returncode:
        yield f"the journal does not replay: {replayed.stderr.strip()[-500:]}"
