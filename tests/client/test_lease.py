import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fairlead
from fairlead import Lease
from fairlead.client import agent_link as link
from fairlead.client import rank_zero as sides
from fairlead.client.checkpoint import Checkpoints
from fairlead.client.messages import (
    Adapt,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    Save,
    StopRank,
)
from fairlead.client.open_loop import OPEN_LOOP
from fairlead.errors import ConfigError
from tests.client.training import Script, agent


def lease(script: Script, folder: Path, steps: int | None = None) -> Lease:
    return Lease(load=script.load, save=script.save, total_steps=steps, checkpoint_dir=folder)


def train(
    held: Lease, until: float = 20.0, step_s: float = 0.002, after: object = lambda _: None
) -> int:
    """The exit code of a loop that is left by ``SystemExit``, 0 otherwise."""
    end = time.monotonic() + until
    try:
        with held:
            while held.next():
                time.sleep(step_s)
                after(held)  # type: ignore[operator]
                assert time.monotonic() < end, "nothing ended the loop"
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_a_whole_job_under_an_agent(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, lease_s=0.4) as served:
        monkeypatch.setenv("FAIRLEAD_TOTAL_STEPS", "400")
        monkeypatch.setenv("FAIRLEAD_CHECKPOINT_DIR", str(tmp_path / "elsewhere"))
        held = lease(Script(), folder, steps=10)
        assert train(held) == 0
        served.wait_for(RankEnded)
        received = served.host.received
    assert isinstance(received[0], Hello)
    assert received[0].pid == os.getpid()
    assert received[1] == Loaded(1, 0, 0.0, 0)
    assert [message.renew for message in received if isinstance(message, Progress)].count(True) >= 2
    steps = [message.step for message in received if isinstance(message, Progress)]
    assert steps == sorted(steps)
    end = received[-1]
    assert isinstance(end, RankEnded)
    assert (end.step, end.saved_step, end.completed) == (400, 400, True)
    assert not folder.exists()
    assert Checkpoints(tmp_path / "elsewhere").newest() is not None


def test_stop_saves_and_exits_with_0_and_the_next_start_goes_on(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script()
    with agent(tmp_path, monkeypatch) as served:
        first = lease(script, folder)

        def after(held: Lease) -> None:
            if held.step == 20:
                served.host.send(StopRank("preempted"))

        assert train(first, after=after) == 0
        assert (first.preempted, first.reason, first.completed) == (True, "preempted", False)
        served.wait_for(RankEnded)
        end = served.host.received[-1]
        assert isinstance(end, RankEnded)
        assert (end.step, end.saved_step, end.completed) == (first.step, first.step, False)
        before = served.received(Progress)[-1]
        assert isinstance(before, Progress)
        assert (before.saving, before.step) == (True, first.step), "from here on it does not train"
        monkeypatch.setattr(OPEN_LOOP, "_begun", None)  # as in another process
        second = lease(script, folder)
        assert train(second, after=lambda held: held.complete()) == 0
        assert second.step == first.step + 1
        served.wait_for(RankEnded, 2)
        assert served.received(Loaded)[-1].step == first.step  # type: ignore[union-attr]


def test_the_agent_decides_when_to_save(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch) as served:
        held = lease(Script(), folder)

        def after(held: Lease) -> None:
            if held.step == 5:
                served.host.send(Save())
            if any(one.saved_step > 5 for one in served.received(Progress)):  # type: ignore[union-attr]
                held.complete()

        train(held, after=after)
        told = served.received(Progress)
        first = next(i for i, one in enumerate(told) if one.saving)  # type: ignore[union-attr]
        assert not told[first + 1].saving, "it trains again"  # type: ignore[union-attr]
    assert held.completed


def test_a_short_interval_saves_often(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, checkpoint_s=0.05) as served:
        train(lease(Script(), folder, steps=150))
        served.wait_for(RankEnded)
        saved = {one.saved_step for one in served.received(Progress)}  # type: ignore[union-attr]
    assert len(saved) > 3


def test_a_lease_that_nobody_extends_is_left(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, lease_s=0.3) as served:
        held = lease(Script(), folder)

        def after(_: Lease) -> None:
            served.host.granting = False

        assert train(held, after=after) == 0
        assert held.reason == "lease expired"
        served.wait_for(RankEnded)
        assert served.received(RankEnded)[0].saved_step == held.step  # type: ignore[union-attr]


def test_a_step_longer_than_the_lease_is_no_reason_to_stop(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, lease_s=0.1):
        held = lease(Script(), folder, steps=3)
        assert train(held, step_s=0.25) == 0
        assert held.completed


def test_an_agent_that_comes_back_is_told_all(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch) as served:
        held = lease(Script(), folder)

        def after(held: Lease) -> None:
            if held.step == 5:
                held.adapt(64, 10_000)
            if held.step == 20:
                served.host.drop()
            if len(served.received(Hello)) == 2 and isinstance(served.host.received[-1], Progress):
                held.complete()

        train(held, after=after)
        served.wait_for(RankEnded)
        assert held.completed
        kinds = [type(message) for message in served.host.received]
        again = kinds.index(Hello, 1)
        assert kinds[again : again + 3] == [Hello, Loaded, Adapt]
        adapt = served.received(Adapt)[-1]
        assert (adapt.batch, adapt.total_steps) == (64, 10_000)  # type: ignore[union-attr]


def test_without_its_agent_a_rank_stops_when_the_lease_is_over(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, lease_s=0.4) as served:
        held = lease(Script(), folder)
        began = time.monotonic()

        def after(held: Lease) -> None:
            if held.step == 5:
                served.close()

        assert train(held, after=after) == 0
        assert held.reason == "lease expired"
        assert time.monotonic() - began > 0.3
    found = Checkpoints(folder).newest()
    assert found is not None
    assert found.manifest.step == held.step


def test_a_rank_whose_lease_is_over_says_so_also_where_it_cannot_save(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its agent, which may have the lease extended meanwhile, takes its exit for a failure."""
    with agent(tmp_path, monkeypatch) as served:
        script = Script()

        def after(held: Lease) -> None:
            if held.step == 5:
                script.save_fails = OSError
                served.host.send(StopRank("lease expired"))

        assert train(lease(script, folder), after=after) == 74
        served.wait_for(RankEnded)
        end = served.host.received[-1]
        assert isinstance(end, RankEnded)
        assert (end.saved_step, end.completed, end.reason) == (0, False, "lease expired")
        last = served.received(Progress)[-1]
        assert (last.step, last.save_problem) == (end.step, "No space left on device")  # type: ignore[union-attr]


@pytest.mark.parametrize("variable", ["FAIRLEAD_TOKEN", "FAIRLEAD_ATTEMPT", "FAIRLEAD_JOB"])
def test_a_stranger_and_an_old_start_are_refused(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    variable: str,
) -> None:
    with agent(tmp_path, monkeypatch):
        monkeypatch.setenv(variable, "4")
        assert train(lease(Script(), folder)) == 75
    assert "may not run" in capfd.readouterr().err
    assert not folder.exists()


def test_refused_later_it_exits_without_saving(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch) as served:

        def after(held: Lease) -> None:
            if held.step == 5:
                served.host.attempt = 2  # a new start of the job
                served.host.drop()

        assert train(lease(Script(), folder), after=after) == 75
        assert not served.received(RankEnded)
    assert not list(folder.glob("step-*"))


def test_an_agent_that_talks_rubbish_is_left_and_called_again(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with agent(tmp_path, monkeypatch) as served:

        def after(held: Lease) -> None:
            if held.step == 5:
                served.host.send(Hello(1, 1, "not what an agent says", 1))
            if len(served.received(Hello)) == 2:
                held.complete()

        assert train(lease(Script(), folder), after=after) == 0
    assert "not understood" in capfd.readouterr().err


def test_without_an_agent_at_its_socket_it_does_not_run(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setenv("FAIRLEAD_SOCKET", str(tmp_path / "nobody"))
    assert train(lease(Script(), folder)) == 75


def test_two_processes_of_a_job_never_run_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sides, "LOCK_S", 0.2)
    holds = (
        "import sys, time; from fairlead.client.checkpoint import Checkpoints;"
        "Checkpoints(sys.argv[1]).lock(); print(1, flush=True); time.sleep(60)"
    )
    run = [sys.executable, "-c", holds, str(folder)]
    with subprocess.Popen(run, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert train(lease(Script(), folder, steps=3)) == 75
        other.kill()
    assert "another process uses" in capfd.readouterr().err
    assert train(lease(Script(), folder, steps=3)) == 0


def test_a_stop_without_a_place_to_save_says_what_is_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = Script()
    held = Lease(load=script.load, save=script.save)

    def after(held: Lease) -> None:
        if held.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    assert train(held, after=after) == 74
    assert (
        "step 6 has no checkpoint_dir, and the work since step 0 is lost" in capfd.readouterr().err
    )


def test_a_rolled_back_change_of_the_batch_size_is_told(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler knows of a change that was made after the checkpoint: it did not happen."""
    script = Script()
    with agent(tmp_path, monkeypatch) as served:
        monkeypatch.setenv("FAIRLEAD_BATCH", "64")
        monkeypatch.setenv("FAIRLEAD_TOTAL_STEPS", "15")
        held = Lease(load=script.load, save=script.save, total_steps=20, batch_size=32)
        assert train(held) == 0
        assert held.step == 20
        assert served.received(Adapt) == [Adapt(1, 32, 20, 0)]


def test_a_lease_is_for_a_with_block() -> None:
    with pytest.raises(ConfigError, match="with block"):
        Lease(load=lambda _: None, save=lambda _: None).next()


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("total_steps", [2.5, math.nan, math.inf, "3", True, -1], "a whole number >= 0"),
        ("batch_size", [-1, math.nan, "x", None, 1.0], "a whole number >= 0"),
        ("checkpoint_s", [-1, math.nan, "x", None, True, 10**400], "seconds >= 0"),
        ("checkpoint_dir", [3, b"here"], "a path"),
        ("load", [None, "x"], "a function of a path"),
        ("save", [None, 3], "a function of a path"),
    ],
)
def test_an_argument_without_sense_is_named(name: str, values: list[object], expected: str) -> None:
    for value in values:
        given = {"load": print, "save": print, name: value}
        with pytest.raises(ConfigError) as refused:
            Lease(**given)  # type: ignore[arg-type]
        assert str(refused.value) == f"{name}: expected {expected}, got {value!r}"


def test_numbers_of_numpy_are_numbers() -> None:
    made = Lease(
        load=print,
        save=Path.touch,
        total_steps=np.int64(5),  # type: ignore[arg-type]
        batch_size=np.array(4),  # type: ignore[arg-type]
        checkpoint_s=np.float32(2),  # type: ignore[arg-type]
    )
    assert (type(made.total_steps), made.total_steps) == (int, 5)
    assert (type(made.batch_size), made.batch_size) == (int, 4)
    with pytest.raises(ConfigError, match=r"^adapt: total_steps: expected a whole number >= 0"):
        made.adapt(8, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^adapt: batch_size: expected a whole number >= 1"):
        made.adapt("8", 2)  # type: ignore[arg-type]


def test_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; from fairlead import Iterator, Lease; "
        "print(sorted({m.partition('.')[0] for m in sys.modules}"
        " - {'fairlead', '__main__'} - sys.stdlib_module_names))"
    )
    # -S: no site-packages, nor what their .pth files import
    bare = [sys.executable, "-S", "-c", code]
    source = str(Path(fairlead.__file__).parents[1])
    done = subprocess.run(
        bare, capture_output=True, text=True, env={"PYTHONPATH": source}, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("own", [10, 20, None])
def test_that_a_job_has_other_steps_than_its_script_is_said(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    own: int | None,
) -> None:
    with agent(tmp_path, monkeypatch):
        monkeypatch.setenv("FAIRLEAD_TOTAL_STEPS", "20")
        held = lease(Script(), folder, steps=own)
        assert train(held) == 0
        assert held.step == 20
    told = "the job was submitted with 20 steps, its script has 10" in capfd.readouterr().err
    assert told is (own == 10)
