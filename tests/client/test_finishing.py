"""The code behind the training loop: the job is not complete before it has ended."""

import shutil
import time
from pathlib import Path

import pytest

from fairlead import Lease
from fairlead.client.checkpoint import Checkpoints
from fairlead.client.messages import (
    Loaded,
    Progress,
    RankEnded,
    StopRank,
)
from fairlead.client.open_loop import OPEN_LOOP
from fairlead.errors import ConfigError
from tests.client.training import Script, agent


def lease(script: Script, folder: Path, steps: int | None = 3, **more: object) -> Lease:
    return Lease(
        load=script.load,
        save=script.save,
        total_steps=steps,
        checkpoint_dir=folder,
        **more,  # type: ignore[arg-type]
    )


def train(held: Lease, complete_at: int = -1) -> int:
    """Steps done by this process."""
    done = 0
    with held:
        while held.next():
            done += 1
            if held.step == complete_at:
                held.complete()
    return done


def save_again_and_again(held: Lease) -> None:
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        held.checkpoint()
        time.sleep(0.01)


def test_finished_is_known_after_the_loop_and_in_a_process_that_is_started_again(
    folder: Path,
) -> None:
    first = lease(Script(), folder)
    assert not first.finished
    assert train(first) == 3
    assert first.finished
    second = lease(Script(), folder)
    assert train(second) == 0
    assert second.finished


def test_the_iterator_gives_no_batch_to_a_script_that_only_has_to_finish(folder: Path) -> None:
    assert Script().run(folder, 20).finished
    again = Script()
    batches = again.run(folder, 20)
    assert (batches.finished, again.done, batches.step) == (True, [], 20)


def test_one_pass_over_the_data_is_over_in_the_next_start_too(folder: Path) -> None:
    assert Script().run(folder, None).finished
    again = Script()
    assert again.run(folder, None).finished
    assert again.done == []


def test_complete_holds_for_the_next_start(folder: Path) -> None:
    assert train(lease(Script(), folder, 100), complete_at=4) == 5
    again = lease(Script(), folder, 100)
    assert (train(again), again.step, again.finished) == (0, 5, True)


def test_complete_on_the_step_of_a_checkpoint_holds_for_the_next_start(folder: Path) -> None:
    held = lease(Script(), folder, 100, checkpoint_s=0.0)  # so every step is saved as it is done
    with held:
        while held.next():
            time.sleep(0.01)
            if held.step == 2:
                break
        held.complete()
    again = lease(Script(), folder, 100)
    assert (train(again), again.step) == (0, held.step)


def test_more_steps_than_were_needed_at_first_are_done(folder: Path) -> None:
    train(lease(Script(), folder, 100), complete_at=4)
    assert train(lease(Script(), folder, 200)) == 195


def test_work_after_the_loop_is_kept(folder: Path) -> None:
    script = Script()
    held = lease(script, folder)
    train(held)
    script.digest = "one part is evaluated"
    assert held.checkpoint()
    again = Script()
    train(lease(again, folder))
    assert again.digest == "one part is evaluated"


def test_a_checkpoint_of_the_same_step_replaces_it_whole_or_not_at_all(folder: Path) -> None:
    script = Script()
    held = lease(script, folder)
    train(held)
    whole = folder / "step-000000000003"
    whole.rename(folder / ".step-000000000003.replaced")  # a crash just before the other rename
    again = lease(Script(), folder)
    assert (train(again), again.step) == (0, 3)
    shutil.copytree(whole, folder / ".step-000000000003.replaced")  # and one just behind it
    train(lease(Script(), folder))
    assert not list(folder.glob(".step*"))


def test_in_the_loop_it_saves_at_the_next_step(folder: Path) -> None:
    held = lease(Script(), folder, 100)
    with held:
        while held.next():
            if held.step == 7:
                assert held.checkpoint()
            if held.step == 9:
                break
    store = Checkpoints(folder)
    found = store.newest()
    assert found is not None
    assert found.manifest.step == 8


def test_the_agent_is_told_that_the_steps_are_done_and_may_stop_what_follows(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script()
    with agent(tmp_path, monkeypatch) as served:
        held = lease(script, folder)
        train(held)
        served.wait_for(RankEnded)
        assert served.host.known  # it has not hung up
        script.digest = "half of the evaluation"
        assert held.checkpoint()
        served.host.send(StopRank("preempted"))
        with pytest.raises(SystemExit) as left:
            save_again_and_again(held)
        assert left.value.code == 0
        served.wait_for(RankEnded, 2)
        ends = [one for one in served.received(RankEnded) if isinstance(one, RankEnded)]
        assert [(one.step, one.saved_step, one.completed) for one in ends] == [
            (3, 3, True),
            (3, 3, False),
        ]
        assert (held.finished, held.preempted, held.reason) == (False, True, "preempted")
        again = Script()
        monkeypatch.setattr(OPEN_LOOP, "_begun", None)  # as in another process
        second = lease(again, folder)
        assert (train(second), again.digest) == (0, "half of the evaluation")
        assert second.finished
        served.wait_for(Loaded, 2)


def test_what_a_script_does_between_two_saves_after_its_loop_is_no_save(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step follows with which the agent would be told that a save is over."""
    script = Script()
    with agent(tmp_path, monkeypatch) as served:
        held = lease(script, folder)
        train(held)
        served.wait_for(RankEnded)
        for _ in range(2):
            before = len(served.received(Progress))
            assert held.checkpoint()
            served.wait_for(Progress, before + 2)
            told = [one for one in served.host.received if isinstance(one, Progress)]
            assert [(one.step, one.saving) for one in told[before:]] == [(3, True), (3, False)]


def test_a_loop_that_returns_is_told_by_the_value(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch) as served:
        held = lease(Script(), folder, on_stop="return")
        train(held)
        served.host.send(StopRank("paused"))
        end = time.monotonic() + 60.0
        while held.checkpoint():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert (held.preempted, held.finished, held.reason) == (True, False, "paused")
        assert not held.checkpoint()


def test_an_agent_that_was_away_after_the_loop_hears_again_that_the_steps_are_done(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch) as served:
        held = lease(Script(), folder)
        train(held)
        served.wait_for(RankEnded)
        served.host.drop()
        end = time.monotonic() + 60.0
        while len(served.received(RankEnded)) < 2:
            assert held.checkpoint()
            assert time.monotonic() < end
            time.sleep(0.05)
        assert all(
            one.completed for one in served.received(RankEnded) if isinstance(one, RankEnded)
        )


def test_ranks_that_each_have_a_part_cannot_save_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = lease(Script(), folder, save_ranks="all")
    train(held)
    assert held.checkpoint()  # one rank is all ranks
    held._environment = type(held._environment)(world_size=2)
    with pytest.raises(ConfigError, match="save_ranks='all'"):
        held.checkpoint()
