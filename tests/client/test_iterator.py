import math
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fairlead
from fairlead.client.messages import Progress, RankEnded
from fairlead.errors import ConfigError
from tests.client.training import EPOCH, Script, agent


def uninterrupted(steps: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        script = Script()
        script.run(Path(folder), steps)
        return script.digest


class CrashError(Exception):
    pass


def stop(_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def kill(_: object) -> None:
    raise CrashError


def test_a_job_by_hand_runs_to_its_end(folder: Path) -> None:
    script = Script()
    batches = script.run(folder, 20)
    assert script.done == list(range(20))
    assert (batches.step, batches.epoch, batches.completed) == (20, 20 // EPOCH, True)
    again = Script()
    assert again.run(folder, 20).completed
    assert again.done == []
    assert again.digest == script.digest


def test_without_a_number_of_steps_it_is_one_pass(folder: Path) -> None:
    script = Script()
    with pytest.raises(SystemExit) as left:
        script.run(folder, None, {3: stop})
    assert left.value.code == 0
    again = Script()
    assert again.run(folder, None).completed
    assert script.done + again.done == list(range(EPOCH))


@settings(max_examples=60)
@given(
    steps=st.integers(0, 40),
    starts=st.lists(st.tuples(st.integers(0, 15), st.booleans()), max_size=6),
    checkpoint_s=st.sampled_from([0.0, 1e9]),
)
def test_whatever_happens_each_step_is_done_once_from_checkpoint_to_checkpoint(
    steps: int, starts: list[tuple[int, bool]], checkpoint_s: float
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, saved = Path(name), 0
        for after, killed in starts:
            script, crashed = Script(), False
            at = {saved + after: kill if killed else stop}
            try:
                script.run(folder, steps, at, checkpoint_s=checkpoint_s)
            except SystemExit:
                assert not killed
            except CrashError:
                crashed = True
            last = saved + len(script.done)
            assert script.done == list(range(saved, last))
            if crashed:  # the step under way was not counted
                last -= 1
            saved = saved if crashed and checkpoint_s else last
        script = Script()
        assert script.run(folder, steps, checkpoint_s=checkpoint_s).completed
        assert script.done == list(range(saved, steps))
        assert script.digest == uninterrupted(steps)


def test_stop_may_return_instead(folder: Path) -> None:
    script = Script()
    batches = script.run(folder, 20, {4: stop}, on_stop="return")
    assert (batches.step, batches.preempted, batches.completed) == (5, True, False)
    assert list(batches) == []


def test_sigterm_is_as_before_afterwards(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    Script().run(folder, 3, {1: lambda _: seen.append(signal.getsignal(signal.SIGTERM))})
    assert seen[0] != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_no_more_steps_than_the_script_needs(folder: Path) -> None:
    script = Script()
    assert script.run(folder, 20, {6: lambda batches: batches.complete()}).completed
    assert script.done == list(range(7))

    broken_off = Script()
    batches = broken_off.iterator(folder.with_name("other"), 20)
    for _ in batches:
        if batches.step == 6:
            batches.complete()
            break
    assert batches.completed
    assert batches.step == 7


def test_a_changed_batch_size_lasts_and_the_data_go_on_where_they_were(folder: Path) -> None:
    def change(batches: "fairlead.Iterator[str]") -> None:
        batches.adapt(4, 30)

    seen: list[str] = []
    script = Script()
    script.train = seen.append  # type: ignore[assignment,method-assign]
    with pytest.raises(SystemExit):
        script.run(folder, 20, {2: change, 5: stop})
    assert seen == ["0/0/8", "0/1/8", "0/2/8", "0/6/4", "0/7/4", "0/8/4"]
    again = Script()
    again.train = seen.append  # type: ignore[assignment,method-assign]
    batches = again.run(folder, 20)
    assert (batches.step, batches.batch_size, batches.total_steps) == (30, 4, 30)
    assert seen[6:8] == ["0/9/4", "0/10/4"]
    assert len(seen) == 30


class Books:
    """A loader that keeps books of where it is, as torchdata's does."""

    def __init__(self) -> None:
        self.at = 0
        self.restored = 0

    def __iter__(self) -> "Books":
        return self

    def __next__(self) -> int:
        if self.at == EPOCH:
            self.at = 0
            raise StopIteration
        self.at += 1
        return self.at - 1

    def __len__(self) -> int:
        return EPOCH

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]
        self.restored += 1


@pytest.mark.parametrize("at", [3, EPOCH - 1, EPOCH, 2 * EPOCH - 1])
def test_a_loader_that_keeps_books_is_put_back(folder: Path, at: int) -> None:
    def train(loader: Books, until: int | None) -> list[int]:
        seen = []
        batches = fairlead.Iterator(
            loader, load=lambda _: None, save=Path.touch, total_steps=20, checkpoint_dir=folder
        )
        try:
            for batch in batches:
                seen.append(batch)
                if batches.step == until:
                    stop(None)
        except SystemExit:
            pass
        return seen

    first, second = Books(), Books()
    seen = train(first, at) + train(second, None)
    assert second.restored == 1
    assert seen == [step % EPOCH for step in range(20)]


class Shuffled:
    """Ordered by epoch, as PyTorch's distributed sampler has it: the epoch is set on the sampler."""

    def __init__(self) -> None:
        self.sampler = self
        self.epoch = -1
        self.batch_size = 16

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter([(self.epoch, i) for i in range(EPOCH)])


def test_the_sampler_is_told_the_epoch(folder: Path) -> None:
    batches = fairlead.Iterator(
        Shuffled(), load=lambda _: None, save=Path.touch, total_steps=10, checkpoint_dir=folder
    )
    assert batches.batch_size == 16
    assert list(batches) == [(step // EPOCH, step % EPOCH) for step in range(10)]


def test_a_full_disk_costs_a_checkpoint_and_not_the_job(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script()

    def fail(_: object) -> None:
        script.save_fails = OSError

    def mend(_: object) -> None:
        assert not list(folder.glob(".*"))
        assert [path.name[-1] for path in sorted(folder.glob("step-*"))] == ["2", "3"]
        script.save_fails = None

    script.run(folder, 12, {3: fail, 9: mend}, checkpoint_s=0.0)
    message = capfd.readouterr().err
    assert "warning: no checkpoint of step 4: No space left on device" in message
    assert "the one of step 3 stays" in message
    assert Script().run(folder, 12).step == 12


def test_of_checkpoints_that_were_removed_none_stays(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script()

    def remove(_: object) -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        script.save_fails = OSError

    with pytest.raises(SystemExit) as left:
        script.run(folder, 20, {8: remove, 11: stop}, checkpoint_s=0.0)
    message = capfd.readouterr().err
    assert "warning: no checkpoint of step 9: " in message
    assert "; there is none, next attempt in " in message
    assert left.value.code == 74
    assert re.search(
        r"step 12 could not be saved \(.+\), and the work since step 0 is lost\n", message
    )


def test_of_checkpoints_that_are_away_none_is_said_to_be_lost(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever has moved them may put them back, and the next start goes on from there."""

    def move(_: object) -> None:
        folder.rename(folder.with_suffix(".away"))

    with pytest.raises(SystemExit) as left:
        Script().run(folder, 20, {8: move, 11: stop}, checkpoint_s=0.0)
    message = capfd.readouterr().err
    assert "; the one of step 8 cannot be seen now, next attempt in " in message
    assert left.value.code == 74
    lost = "and the work since step 8 is lost; the one of step 8 cannot be seen now"
    assert re.search(rf"step 12 could not be saved \(.+\), {lost}", message)
    folder.with_suffix(".away").rename(folder)
    assert Script().run(folder, 20).step == 20


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_at_a_stop_a_full_disk_is_a_failure(
    folder: Path, capfd: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    with pytest.raises(SystemExit):
        Script().run(folder, 20, {1: stop})
    script = Script()
    script.save_fails = error
    with pytest.raises(SystemExit) as left:
        script.run(folder, 20, {8: stop})
    assert left.value.code == 74
    message = capfd.readouterr().err
    assert re.search(
        r"step 9 could not be saved \(.+\), and the work since step 2 is lost", message
    )
    assert [path.name for path in sorted(folder.iterdir())] == [
        "lock",
        "step-000000000002",
        "steps",
    ]


def test_after_the_last_step_a_full_disk_costs_no_work_unless_the_process_is_stopped(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script()

    def fail(_: object) -> None:
        script.save_fails = OSError

    batches = script.run(folder, 6, {3: fail}, checkpoint_s=0.0)
    assert batches.finished, "the code after the loop runs, and may write its results elsewhere"
    message = capfd.readouterr().err
    assert "warning: step 6 could not be saved (No space left on device)" in message
    assert (
        "and the work since step 3 is done again if this process is stopped before its end"
        in message
    )
    script.save_fails = None
    assert batches.checkpoint()
    again = Script()
    again.run(folder, 6)
    assert again.done == []


def test_an_agent_is_told_why_checkpoints_cannot_be_saved_for_as_long_as_they_cannot(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script()

    def problems() -> list[str]:
        return [m.save_problem for m in served.host.received if isinstance(m, Progress)]

    def fail(batches: "fairlead.Iterator[str]") -> None:
        script.save_fails = OSError
        batches.checkpoint()

    def mend(batches: "fairlead.Iterator[str]") -> None:
        served.wait_until(lambda: problems()[-1] == "No space left on device", "word of it")
        script.save_fails = None
        batches.checkpoint()

    with agent(tmp_path, monkeypatch, checkpoint_s=0.0) as served:
        script.run(folder, 12, {3: fail, 9: mend})
        served.wait_for(RankEnded)
        assert problems()[-1] == ""


def test_an_agent_knows_the_step_that_could_not_be_saved(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also where no save is begun, of which it would be told."""

    def move(_: object) -> None:
        folder.rename(folder.with_suffix(".away"))
        stop(None)

    def steps() -> list[int]:
        return [m.step for m in served.host.received if isinstance(m, Progress)]

    with agent(tmp_path, monkeypatch) as served:
        with pytest.raises(SystemExit) as left:
            Script().run(folder, 200, {150: move})
        assert left.value.code == 74
        served.wait_until(lambda: steps()[-1] == 151, "the last step", within_s=10.0)
    assert "fairlead: step 151 could not be saved" in capfd.readouterr().err


def test_a_save_that_leaves_nothing_is_told_so(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script()
    script.save = lambda path: path.with_suffix(".npz").touch()  # type: ignore[method-assign]
    with pytest.raises(SystemExit) as left:
        script.run(folder, 3, {1: stop})
    assert left.value.code == 74
    assert "left nothing at rank-0" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": -1}, "total_steps.*-1"),
        ({"steps": 1, "on_stop": "sleep"}, "on_stop.*'sleep'"),
        ({"steps": 1, "save_ranks": "some"}, "save_ranks.*'some'"),
    ],
)
def test_options_that_cannot_be(folder: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Script().iterator(folder, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("epochs", [2.5, math.nan, "3", True, 0])
def test_a_number_of_epochs_that_is_none_is_named(epochs: object) -> None:
    with pytest.raises(ConfigError, match=r"^epochs: expected a whole number >= 1, got "):
        fairlead.Iterator(range(3), load=print, save=Path.touch, epochs=epochs)  # type: ignore[arg-type]


def test_arguments_are_those_of_a_lease() -> None:
    with pytest.raises(ConfigError, match=r"^batch_size: expected a whole number >= 0, got nan"):
        fairlead.Iterator(range(3), load=print, save=Path.touch, batch_size=math.nan)  # type: ignore[arg-type]
    counted = fairlead.Iterator(range(3), load=print, save=Path.touch, epochs=np.int64(2))  # type: ignore[arg-type]
    assert (counted.total_steps, type(counted.total_steps)) == (6, int)


def test_a_loader_that_gives_nothing_is_no_endless_loop(folder: Path) -> None:
    batches = fairlead.Iterator(
        iter(range(3)), load=lambda _: None, save=Path.touch, total_steps=5, checkpoint_dir=folder
    )
    with pytest.raises(ConfigError, match="no batch in epoch 1"):
        list(batches)
    with pytest.raises(ConfigError, match="adapt: batch_size: expected a whole number >= 1, got 0"):
        batches.adapt(0, 5)
