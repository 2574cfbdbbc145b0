"""Loops of loops: each ``for`` over the iterator is one pass."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

import fairlead
from fairlead.client.checkpoint import Checkpoints
from fairlead.client.messages import StopRank
from fairlead.errors import ConfigError
from tests.client.training import agent

Batches: TypeAlias = "fairlead.Iterator[int]"
LENGTH = 4


def make(folder: Path, epochs: int | None = 3, **more: object) -> "fairlead.Iterator[int]":
    return fairlead.Iterator(
        range(LENGTH),
        load=lambda _: None,
        save=Path.touch,
        epochs=epochs,
        checkpoint_dir=folder,
        on_stop="return",
        **more,  # type: ignore[arg-type]
    )


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_each_for_is_one_pass(folder: Path) -> None:
    batches = make(folder)
    assert len(batches) == LENGTH
    seen = []
    for epoch in range(3):
        for batch in batches:
            assert batches.epoch == epoch
            assert batches.batch_index == batch
            seen.append(batch)
        assert batches.epoch == epoch
    assert seen == 3 * list(range(LENGTH))
    assert (batches.step, batches.total_steps, batches.finished) == (12, 12, True)


@pytest.mark.parametrize("at", range(12))
def test_code_of_an_epoch_runs_once_wherever_it_is_stopped(folder: Path, at: int) -> None:
    seen, ends = [], []
    for start in range(2):
        batches = make(folder)
        for epoch in range(batches.epoch, 3):
            for batch in batches:
                seen.append((epoch, batch))
                if start == 0 and batches.step == at:
                    stop()
            if batches.preempted:
                break
            ends.append(epoch)
    assert seen == [(epoch, batch) for epoch in range(3) for batch in range(LENGTH)]
    # at the very last step the loop is over: what follows it is done again in the next start
    assert ends == ([0, 1, 2, 2] if at == 11 else [0, 1, 2])


def test_stopped_behind_a_pass_it_goes_on_there(folder: Path) -> None:
    ends = []
    for start in range(2):
        batches = make(folder)
        for epoch in batches.epochs():
            seen = list(batches)
            if batches.preempted:
                assert (start, epoch, seen) == (0, 2, [])
                break
            ends.append((epoch, len(seen)))
            if start == 0 and epoch == 1:
                stop()
    assert ends == [(0, 4), (1, 4), (2, 4)]


def interrupted(
    folder: Path, at: int, passes: Callable[[Batches], Iterable[int]]
) -> list[tuple[int, int]]:
    """What a script reports after its passes, the last batch of each; it is stopped in a step, and started
    again."""
    reports: list[tuple[int, int]] = []
    for start in range(2):
        batches = make(folder)
        for epoch in passes(batches):
            last: int | None = None
            for batch in batches:
                last = batch
                if start == 0 and batches.step == at:
                    stop()
            if batches.preempted:
                break
            assert last is not None, f"pass {epoch} is empty in start {start}"
            reports.append((epoch, last))
    return reports


@pytest.mark.parametrize("at", range(12))
def test_code_after_a_pass_never_finds_it_empty(folder: Path, at: int) -> None:
    reports = interrupted(folder, at, lambda batches: batches.epochs())
    assert reports == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("at", range(11))
def test_nor_does_it_with_a_range(folder: Path, at: int) -> None:
    reports = interrupted(folder, at, lambda batches: range(batches.epoch, 3))
    assert reports == [(0, 3), (1, 3), (2, 3)]


def test_a_stop_with_the_last_batch_of_a_pass_waits_for_the_code_after_it(folder: Path) -> None:
    saved = []
    batches = make(folder)
    for epoch in batches.epochs():
        for _ in batches:
            if batches.step == LENGTH - 1:
                stop()
        saved.append((epoch, Checkpoints(folder).newest()))
    assert saved[0] == (0, None)
    assert (batches.preempted, batches.step) == (True, LENGTH)
    newest = Checkpoints(folder).newest()
    assert newest is not None
    assert (newest.manifest.loader_epoch, newest.manifest.position) == (1, 0)


def test_an_agents_word_during_the_last_batch_costs_no_step_of_the_next_pass(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    with agent(tmp_path, monkeypatch) as served:
        batches = make(folder)
        for epoch in batches.epochs():
            for _ in batches:
                if batches.step == LENGTH - 1:
                    served.host.send(StopRank("preempted"))
                    time.sleep(0.1)  # a step so long that the agent is asked at its end
            ended.append(epoch)
        assert ended == [0, 1]
        assert (batches.preempted, batches.step) == (True, LENGTH)


def test_after_the_last_pass_a_start_has_no_pass_to_do(folder: Path) -> None:
    for start in range(2):
        batches = make(folder)
        passes = [len(list(batches)) for _ in batches.epochs()]
        assert passes == ([4, 4, 4] if start == 0 else [])
        assert (batches.finished, batches.step, batches.epoch) == (True, 12, 3)
    again = make(folder)
    assert [len(list(again)) for _ in range(3)] == [0, 0, 0]
    assert again.finished


def test_a_loop_for_all_steps_is_not_asked_twice(folder: Path) -> None:
    batches = fairlead.Iterator(
        range(LENGTH), load=lambda _: None, save=Path.touch, total_steps=12, checkpoint_dir=folder
    )
    assert len(batches) == 12
    assert len(list(batches)) == 12
    with pytest.raises(ConfigError, match="made with epochs="):
        list(batches)


def test_more_loops_than_epochs_are_refused(folder: Path) -> None:
    batches = make(folder)
    for _ in range(3):
        list(batches)
    with pytest.raises(ConfigError, match="all 3 epochs are done"):
        list(batches)


def test_a_pass_that_is_left_early_is_over(folder: Path) -> None:
    batches = make(folder, 2)
    for batch in batches:
        if batch == 1:
            break
    assert list(batches) == [0, 1, 2, 3]
    assert batches.completed


def test_no_more_steps_than_the_script_needs(folder: Path) -> None:
    batches = make(folder)
    done = []
    for epoch in batches.epochs():
        for batch in batches:
            done.append((epoch, batch))
            if (epoch, batch) == (1, 2):
                batches.complete()
    assert done[-1] == (1, 2)
    assert batches.completed
    again = make(folder)
    assert [list(again) for _ in again.epochs()] == [[]]
    assert again.finished


def test_the_length_need_not_be_known(folder: Path) -> None:
    batches = fairlead.Iterator(
        lambda epoch, _: iter(range(epoch + 1)),
        load=lambda _: None,
        save=Path.touch,
        epochs=3,
        checkpoint_dir=folder,
    )
    with pytest.raises(TypeError):
        len(batches)
    assert [list(batches) for _ in batches.epochs()] == [[0], [0, 1], [0, 1, 2]]
    assert batches.completed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs: expected a whole number >= 1, got 0"),
        ({"epochs": 2, "total_steps": 5}, "not both"),
    ],
)
def test_options_that_cannot_be(folder: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(folder, **options)  # type: ignore[arg-type]


def test_epochs_have_to_be_asked_for(folder: Path) -> None:
    batches = fairlead.Iterator(range(3), load=lambda _: None, save=Path.touch, total_steps=5)
    with pytest.raises(ConfigError, match="made with epochs="):
        next(batches.epochs())
