"""What a journal is good for after a crash: the scheduler as it was, and what is left to be done."""

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.small import TABLE, job
from typer.testing import CliRunner

from fairlead.cli.application import app
from fairlead.errors import CheckError, RunError
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsPaused,
    RoundEnded,
)
from fairlead.model.job import RestartCosts
from fairlead.model.plan import Planner, PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.journal import (
    decode,
    encode,
    recover,
    replay_records,
)
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import (
    Setup,
    build,
    restore,
    traits_of,
)
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth

CLUSTER = Cluster.of({"fast": 3, "slow": 4}, 2)
COSTS = RestartCosts(20.0)


def setup(policy: str, overlap: bool = False) -> Setup:
    made = registry.make(policy, seed=0, profile="default")
    traits = None if isinstance(made, Planner) else traits_of(made)
    return Setup(
        version="0",
        cluster=CLUSTER,
        throughputs=TABLE,
        policy=policy,
        settings=DEFAULT,
        seed=0,
        restart_costs=COSTS,
        overlap_solves=overlap,
        traits=traits,
    )


class Run:
    """A run that is journalled in segments, a new one with another policy after every so many events."""

    def __init__(self, policies: list[str], every: int, solve_s: float = 0.0) -> None:
        self.segments: list[list[bytes]] = []
        self.policies, self.overlap = policies, solve_s > 0
        jobs = [job(n, 300.0 * n, 4_000.0 * (1 + n % 4), (1, 2, 4)[n % 3]) for n in range(16)]
        self.scheduler = self._begin(None)
        self.backend = SimBackend(
            jobs, CLUSTER, TABLE, self._solve, GroundTruth(COSTS, mtbf_s=30_000.0), solve_s=solve_s
        )
        count, holds = 0, [True, False]
        while (event := self.backend.next()) is not None:
            count += 1
            ids = np.concatenate(
                [self.scheduler.data.ledger.jobs.id, self.scheduler.data.paused_jobs.jobs.id]
            )
            here = np.intersect1d(ids, [2, 5])
            if holds and count >= 40 - 10 * len(holds) and not isinstance(event, RoundEnded):
                self._handle(JobsPaused(event.time_s, here, holds.pop(0)))
            if count >= every * len(self.segments) and not self.scheduler.data.planning.solving:
                self.scheduler = self._begin(self.scheduler)
            self._handle(event)

    def _solve(self, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
        return self.scheduler.data.planning.planner.solve(snapshot, state)

    def _begin(self, old: Scheduler | None) -> Scheduler:
        new = setup(self.policies[len(self.segments) % len(self.policies)], self.overlap)
        made = registry.make(new.policy, seed=0, profile="default")
        self.segments.append([encode(new)])
        if old is None:
            return build(new, made)
        state = take_checkpoint(old.data)
        self.segments[-1].append(encode(state))
        return restore(new, state, made)

    def _handle(self, event: Event) -> None:
        self.segments[-1].append(encode(event))
        for command in self.scheduler.handle(event):
            self.segments[-1].append(encode(command))
            self.backend.perform(command)


@pytest.fixture(scope="module")
def segments() -> list[list[bytes]]:
    return Run(["las_aware", "fifo_perf", "shockwave"], 11).segments


def test_every_segment_replays_on_its_own(segments: list[list[bytes]]) -> None:
    assert len(segments) > 3
    for number, segment in enumerate(segments):
        assert replay_records(segment, f"segment {number}") == len(segment)
        for length in range(1, len(segment), 7):  # wherever it was cut off
            assert replay_records(segment[:length], "cut") == length


def test_a_segment_with_a_command_that_differs_is_named(segments: list[list[bytes]]) -> None:
    changed = list(segments[1])
    at = next(i for i, r in enumerate(changed) if isinstance(decode(r), StartRound))
    command = decode(changed[at])
    assert isinstance(command, StartRound)
    command.devices[0] += 1
    changed[at] = encode(command)
    with pytest.raises(CheckError, match=rf"segment 1: record {at}: StartRound \d+ .*: devices is"):
        replay_records(changed, "segment 1")
    del changed[at]
    with pytest.raises(CheckError, match=rf"segment 1: record {at}: the core also commands Start"):
        replay_records(changed, "segment 1")
    with pytest.raises(RunError, match="x: the first record, which says what was run"):
        replay_records(changed[1:], "x")


def test_a_scheduler_is_recovered_wherever_the_journal_was_cut(
    segments: list[list[bytes]],
) -> None:
    """It goes on with the same commands, those first that the journal lacks."""
    for segment in segments:
        first = decode(segment[0])
        state = decode(segment[1]) if segment[1][:1] == b"T" else None
        begin = 1 if state is None else 2
        for cut in range(begin, len(segment), 5):
            found = recover(first, state, segment[begin:cut])  # type: ignore[arg-type]
            assert found.number == cut
            commands: list[Command] = found.commands
            for record in segment[cut:]:
                thing = decode(record)
                if commands and encode(commands[0]) == record:
                    commands = commands[1:]
                    continue
                assert not commands
                commands = found.scheduler.handle(thing)  # type: ignore[arg-type]
            assert not commands


def test_a_solve_without_an_answer_is_told_and_not_made() -> None:
    (segment,) = Run(["las_aware"], 10**9, solve_s=500.0).segments
    kinds = [type(decode(record)).__name__ for record in segment]
    asked = [i for i, (a, b) in enumerate(pairwise(kinds)) if a == "SolveDigest" and b != "Solved"]
    assert asked
    first = decode(segment[0])
    for at in asked:
        found = recover(first, None, segment[1 : at + 1])  # type: ignore[arg-type]
        assert isinstance(found.solve, Solve)
        assert encode(found.solve) == segment[at]
        missing = recover(first, None, segment[1:at])  # type: ignore[arg-type]
        assert missing.solve is None
        assert encode(missing.commands[0]) == segment[at]
        assert found.scheduler.data.planning.solving


def test_the_store_of_a_server_is_replayed(segments: list[list[bytes]], tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as store:
        store.execute("CREATE TABLE journal(seq INTEGER PRIMARY KEY, segment INTEGER, record BLOB)")
        rows = [(number, record) for number, segment in enumerate(segments) for record in segment]
        store.executemany("INSERT INTO journal(segment, record) VALUES (?, ?)", rows)
        store.commit()
    before = path.read_bytes()
    result = CliRunner().invoke(app, ["replay", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert f"{len(rows)} records in {len(segments)} segments" in result.output
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path)) as store:
        store.execute("DROP TABLE journal")
    result = CliRunner().invoke(app, ["replay", str(tmp_path)])
    assert isinstance(result.exception, RunError)
