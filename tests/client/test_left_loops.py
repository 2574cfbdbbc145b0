"""Loops that a script leaves by itself: by ``break``, ``next``, ``islice``, ``zip``, or by its end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairlead
from fairlead.client.checkpoint import Checkpoints
from fairlead.client.messages import Loaded, RankEnded, StopRank
from fairlead.errors import ConfigError, FairleadError
from tests.client.training import Agent, agent

HEAD = """
import itertools, os, sys, time
from pathlib import Path
import fairlead

here = Path(sys.argv[1])
n = 0

def write(line):
    with (here / "log").open("a") as file:
        file.write(line + "\\n")

def load(path):
    global n
    n = int(path.read_text())
    write(f"load {n}")

def save(path):
    path.write_text(str(n))

def step(batch):
    global n
    n += 1
    write(f"{n} {batch}")

def batches(**more):
    return fairlead.Iterator(list(range(10)), load=load, save=save, **more)
"""
BREAKS = """
it = batches(total_steps=30)
while n < 30:
    for i, x in it.indexed():
        step(x)
        if n == int(os.environ.get("STOP_AT", -1)):
            it.checkpoint()
        if i == 6 or n == 30:
            break
"""
NEXT = """
it = batches(total_steps=30)
source = iter(it)
for _ in range(it.step, 30):
    step(next(source))
"""
ISLICE = """
it = batches(total_steps=30)
for _ in range(3):
    for x in itertools.islice(it, 10):
        step(x)
"""
ZIP = """
it = batches(total_steps=30)
for _ in range(6):
    for _, x in zip(range(5), it):
        step(x)
"""
EPOCHS = """
it = batches(epochs=3)
for epoch in it.epochs():
    for i, x in it.indexed():
        step(x)
        if i == 6:
            break
write(f"finished {it.finished}")
"""
EARLY = """
it = batches(total_steps=30)
for x in it:
    step(x)
    if n == 12:
        break
"""
EARLY_LEASE = """
with fairlead.Lease(load=load, save=save, total_steps=30) as lease:
    while lease.next():
        step("")
        if n == 12:
            break
write(f"finished {lease.finished}")
"""
IN_A_FUNCTION = """
def main():
    it = batches(total_steps=30)
    for x in it:
        step(x)
        if n == 12:
            return
main()
"""


class Run:
    """A process that trains under an agent, and what came of it."""

    def __init__(self, served: Agent, here: Path) -> None:
        self.served, self.here = served, here

    def start(self, script: str, **environ: str) -> int:
        """Run it to its end. Returns its exit code."""
        found = subprocess.run(
            [sys.executable, "-c", HEAD + script, str(self.here)],
            env={**os.environ, "FAIRLEAD_CHECKPOINT_DIR": str(self.here / "kept"), **environ},
            timeout=120.0,
            check=False,
        )
        return found.returncode

    @property
    def log(self) -> list[str]:
        return (self.here / "log").read_text().splitlines()

    @property
    def ends(self) -> list[RankEnded]:
        found = self.served.received(RankEnded)
        return [one for one in found if isinstance(one, RankEnded)]

    @property
    def loaded(self) -> list[int]:
        return [one.step for one in self.served.received(Loaded) if isinstance(one, Loaded)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with agent(tmp_path, monkeypatch) as served:
        yield Run(served, tmp_path)


@pytest.mark.parametrize("script", [BREAKS, NEXT, ISLICE, ZIP])
def test_all_steps_count_of_a_script_that_takes_its_last_batch_by_itself(
    run: Run, script: str
) -> None:
    assert run.start(script) == 0
    run.served.wait_for(RankEnded, within_s=20.0)
    assert [line.split()[0] for line in run.log] == [str(n) for n in range(1, 31)]
    assert [(end.step, end.completed) for end in run.ends] == [(30, True)]
    assert run.loaded == [0]


def test_passes_that_are_sliced_begin_with_the_loader_each(run: Run) -> None:
    assert run.start(ISLICE) == 0
    assert [line.split()[1] for line in run.log] == 3 * [str(x) for x in range(10)]


@pytest.mark.parametrize(("script", "length"), [(BREAKS, 7), (ZIP, 5)])
def test_a_loop_after_one_that_was_left_is_a_new_pass(run: Run, script: str, length: int) -> None:
    assert run.start(script) == 0
    assert [int(line.split()[1]) for line in run.log] == [i % length for i in range(30)]


def test_after_a_checkpoint_each_loop_goes_on_from_what_is_in_memory(run: Run) -> None:
    uninterrupted = [f"{i + 1} {i % 7}" for i in range(30)]
    killed = BREAKS.replace(
        "        if i == 6", "        if n == 18: os._exit(9)\n        if i == 6"
    )
    assert run.start(killed, STOP_AT="16") == 9
    assert run.start(BREAKS) == 0
    assert run.log == [*uninterrupted[:18], "load 16", *uninterrupted[16:]]  # loaded once


def test_a_pass_of_epochs_that_is_left_early_is_over_and_the_job_with_the_last(run: Run) -> None:
    assert run.start(EPOCHS) == 0
    assert run.log == [*(f"{i + 1} {i % 7}" for i in range(21)), "finished True"]
    assert [(end.step, end.saved_step, end.completed) for end in run.ends] == [(21, 21, True)]


SLICED = """
it = batches(epochs=3)
for epoch in it.epochs():
    write(f"pass {epoch} {it.epoch} {it.batch_index} {it.step}")
    for x in itertools.islice(it, 7 - it.batch_index):
        step(x)
        if n == 16:
            it.checkpoint()
"""


def test_a_pass_of_epochs_is_told_as_begun_once_the_one_before_was_left(run: Run) -> None:
    steps = [f"{i + 1} {i % 7}" for i in range(21)]
    told = ["pass 0 0 0 0", *steps[:7], "pass 1 1 0 7", *steps[7:14], "pass 2 2 0 14", *steps[14:]]
    killed = SLICED + "        if n == 18: os._exit(9)\n"
    assert run.start(killed) == 9
    assert run.log == told[:-3]
    assert run.start(SLICED) == 0
    assert run.log == [*told[:-3], "load 16", "pass 2 2 2 16", *steps[16:]]


@pytest.mark.parametrize("taken", [4, 10], ids=["left", "done"])
def test_a_pass_of_epochs_begins_with_its_own_numbers(taken: int) -> None:
    batches = fairlead.Iterator(range(10), load=lambda _: None, save=Path.touch, epochs=3)
    seen = []
    for epoch in batches.epochs():
        seen.append((epoch, batches.epoch, batches.batch_index, batches.step))
        for index, _ in batches.indexed():
            if index + 1 == taken < 10:
                break
    assert seen == [(epoch, epoch, 0, taken * epoch) for epoch in range(3)]


def test_a_loop_of_a_pass_before_is_over() -> None:
    batches = fairlead.Iterator(range(10), load=lambda _: None, save=Path.touch, epochs=3)
    passes = batches.epochs()
    next(passes)
    source = iter(batches)
    next(source)
    next(passes)
    with pytest.raises(ConfigError, match="another loop"):
        next(source)


@pytest.mark.parametrize("script", [EARLY, EARLY + "sys.exit(0)", IN_A_FUNCTION])
def test_a_script_that_ends_by_itself_is_done(run: Run, script: str) -> None:
    assert run.start(script) == 0
    assert [(end.step, end.saved_step, end.completed) for end in run.ends] == [(12, 0, True)]


@pytest.mark.parametrize("how", ["break", "sys.exit(0)"])
def test_a_block_that_is_left_by_itself_is_done(run: Run, how: str) -> None:
    assert run.start(EARLY_LEASE.replace("break", how)) == 0
    assert run.log[-1] == ("finished True" if how == "break" else "12 ")
    assert [(end.step, end.saved_step, end.completed) for end in run.ends] == [(12, 12, True)]


def test_an_exception_out_of_the_block_is_told_though_the_script_catches_it(run: Run) -> None:
    caught = EARLY_LEASE.replace("break", "raise KeyError").replace("with f", "try:\n  with f")
    caught = caught.replace("\n    while", "\n   while").replace(
        "\nwrite", "\nexcept KeyError: pass\nwrite"
    )
    assert run.start(caught) == 0
    assert [(end.step, end.completed, end.reason) for end in run.ends] == [(11, False, "KeyError")]


@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError('no')",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
    ],
)
def test_nothing_is_said_of_a_process_that_ends_otherwise(run: Run, end: str) -> None:
    run.start(EARLY + end)
    assert run.ends == []


def test_nothing_is_said_of_a_process_that_never_came_to_its_loop(run: Run) -> None:
    assert run.start("it = batches(total_steps=30)\nassert it.step == 0") == 0
    assert run.loaded == [0]
    assert run.ends == []


def test_a_batch_that_the_loader_did_not_give_is_no_step(run: Run) -> None:
    assert (
        run.start(
            """
def failing():
    yield from range(4)
    raise ValueError("no more")
it = fairlead.Iterator(lambda epoch, size: failing(), load=load, save=save, total_steps=30)
try:
    for x in it:
        step(x)
except ValueError:
    pass
"""
        )
        == 0
    )
    assert [(end.step, end.completed) for end in run.ends] == [(4, True)]


def test_a_process_that_ends_by_itself_is_done_though_it_was_told_to_stop(run: Run) -> None:
    waits = EARLY + "\nwrite('left')\nwhile not (here / 'go').exists():\n    time.sleep(0.01)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + waits, str(run.here)],
        env={**os.environ, "FAIRLEAD_CHECKPOINT_DIR": str(run.here / "kept")},
    )
    run.served.wait_for(Loaded)
    run.served.wait_until(lambda: (run.here / "log").exists() and "left" in run.log, "end of loop")
    run.served.host.send(StopRank("preempted"))
    (run.here / "go").touch()
    assert process.wait(120.0) == 0
    run.served.wait_for(RankEnded, within_s=20.0)
    assert [(e.step, e.completed, e.reason) for e in run.ends] == [(12, True, "")]


SECOND = """
for part in range(2):
    for x in batches(epochs=1):
        step(x)
    write(f"part {part}")
"""


def test_a_second_loop_of_a_process_is_refused(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.start(SECOND) == 1
    assert run.log[-2:] == ["10 9", "part 0"]
    assert "ConfigError: this process has had a training loop already" in capfd.readouterr().err


def run_by_hand(
    here: Path, script: str, *directories: str, total_steps: str = "10"
) -> tuple[int, str]:
    """Loops of one process, each with the checkpoint directory that is named. Returns the exit code, and what
    was written to stderr."""
    loops = (
        "for folder in sys.argv[2:]:\n"
        f"    for x in batches(total_steps={total_steps}, checkpoint_dir=here / folder):\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", HEAD + loops + script, str(here), *directories],
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
    )
    return found.returncode, found.stderr


@pytest.mark.parametrize("second", ["kept", "./kept"])
@pytest.mark.parametrize("total_steps", ["10", "n + 10"])
def test_by_hand_a_second_loop_is_refused_where_one_has_saved_all_its_steps(
    tmp_path: Path, second: str, total_steps: str
) -> None:
    code, said = run_by_hand(tmp_path, "        step(x)", "kept", second, total_steps=total_steps)
    assert code == 1
    assert (
        "ConfigError: checkpoint_dir: a loop before this one in this process has done all" in said
    )
    assert len((tmp_path / "log").read_text().splitlines()) == 10


def test_by_hand_loops_with_directories_of_their_own_are_done_one_after_the_other(
    tmp_path: Path,
) -> None:
    assert run_by_hand(tmp_path, "        step(x)", "one", "two") == (0, "")
    assert len((tmp_path / "log").read_text().splitlines()) == 20


def test_by_hand_a_loop_that_goes_on_where_one_was_left_says_so(tmp_path: Path) -> None:
    leaves = "        step(x)\n        if n % 4 == 0: break"
    code, said = run_by_hand(tmp_path, leaves, "kept", "kept")
    assert code == 0
    assert "warning: the loop before this one in this process was left, and has the same" in said


def test_by_hand_a_loop_that_is_left_goes_on_in_the_next_start(folder: Path) -> None:
    def batches() -> "fairlead.Iterator[int]":
        return fairlead.Iterator(
            range(10), load=lambda _: None, save=Path.touch, total_steps=30, checkpoint_dir=folder
        )

    first = batches()
    for _ in first:
        if first.step == 4:
            first.checkpoint()
        if first.step == 8:
            break
    newest = Checkpoints(folder).newest()
    assert newest is not None
    assert newest.manifest.step == 5
    again = batches()  # takes the checkpoints over from the loop that was left
    assert next(iter(again)) == 5
    assert again.step == 5


def test_a_loop_that_another_has_followed_is_over(folder: Path) -> None:
    batches = fairlead.Iterator(range(10), load=lambda _: None, save=Path.touch, total_steps=30)
    first = iter(batches)
    next(first)
    assert next(iter(batches)) == 0
    with pytest.raises(ConfigError, match="another loop"):
        next(first)


def test_a_lease_is_entered_once(folder: Path) -> None:
    lease = fairlead.Lease(load=lambda _: None, save=Path.touch, total_steps=30)
    with lease:
        assert lease.next()
    with pytest.raises(ConfigError, match="once"), lease:
        pass


def test_a_lease_that_could_not_be_entered_may_be_tried_again(folder: Path) -> None:
    found = folder / "step-000000000004"
    found.mkdir(parents=True)
    lease = fairlead.Lease(
        load=lambda _: None, save=Path.touch, total_steps=30, checkpoint_dir=folder
    )
    with pytest.raises((FairleadError, SystemExit)), lease:
        pass
    found.rmdir()
    with lease:
        assert lease.next()


def test_the_steps_of_a_job_are_known_before_its_loop(folder: Path) -> None:
    for at in (0, 5):
        batches = fairlead.Iterator(
            range(10), load=lambda _: None, save=Path.touch, total_steps=30, checkpoint_dir=folder
        )
        assert batches.step == at
        for _ in batches:
            if batches.step == 4:
                batches.checkpoint()
            if batches.step == 6:
                break
