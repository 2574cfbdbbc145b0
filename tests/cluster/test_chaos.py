"""Nothing is lost, whatever is killed, frozen, cut off or filled up: `fairlead chaos`, short and long."""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest

from fairlead.cli.main import main
from fairlead.cluster.chaos import run
from fairlead.cluster.chaos.fault_kinds import FAULTS
from fairlead.cluster.chaos.folders import ClusterFolders
from fairlead.cluster.chaos.job import (
    JobLedger,
    age_s,
    digest_of,
    evaluation_path,
)
from fairlead.cluster.chaos.job_ledger import (
    Expected,
    check_job,
    read_attempts,
)
from fairlead.cluster.chaos.node_faults import damage
from fairlead.cluster.chaos.run import TrialSummary, run_trials
from fairlead.cluster.chaos.workload import JobLoad
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.errors import UnreachableError


def _run(trials: int, seed: int) -> TrialSummary:
    message: list[str] = []
    outcome = run_trials(trials, seed, list(FAULTS), None, message.append)
    assert not outcome.violations, "\n".join([*outcome.violations, *message])
    return outcome


def test_six_faults_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SEARCHES", 1.0)
    outcome = _run(6, seed=5)
    assert len({trial.kind for trial in outcome.trials}) == 6
    assert outcome.starts >= outcome.jobs >= 5
    assert outcome.searches >= 1


@pytest.mark.long  # one to two minutes on two idle cores
def test_twenty_faults_lose_nothing() -> None:
    outcome = _run(20, seed=5)
    assert len(outcome.trials) == 20
    assert len({trial.kind for trial in outcome.trials}) == 20  # each kind once before any again
    assert outcome.jobs >= 5
    assert outcome.starts > outcome.jobs  # some were interrupted
    for kind, why in outcome.skipped.items():
        print(f"{kind}: skipped: {why}")


@pytest.mark.long
def test_two_hundred_faults_lose_nothing() -> None:
    assert len(_run(200, seed=6).trials) == 200


def test_the_command_lists_kinds_and_knows_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chaos", "--kinds"])
    assert ended.value.code == 0
    assert set(FAULTS) == {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    with pytest.raises(SystemExit) as ended:
        main(["chaos", "--only", "cut,earthquake"])
    assert ended.value.code == 2
    assert "--only: no kind 'earthquake'; there are kill-server" in capsys.readouterr().err


# --- does the verifier see what it is there for? ------------------------------------------------------


TOTAL = 6
VIEW = {
    **{"id": 7, "name": "job", "tenant": "t", "user": "u", "family": "", "scale_factor": 1},
    **{"weight": 1.0, "state": "completed", "total_steps": TOTAL, "saved_step": 0},
    **{"submitted_s": 0.0, "started_s": 0.0, "ended_s": 9.0, "node": "", "accelerator": ""},
    **{"devices": [], "attempt": 2, "starts": 2, "preemptions": 0, "failures": 0, "run_s": 9.0},
    **{"overhead_s": 0.0, "rates": {}, "measured_rate": None, "slo_s": None, "reason": ""},
}


class _Told:
    """A ledger of one job, written by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.now = 0.0

    def start(self, attempt: int, begin: int, last: int, *more: str, job: int = 7) -> None:
        """A start that did the steps behind ``begin`` up to ``last``."""
        lines = ["B 1 77", f"L 1 {begin} {_state(begin)}"]
        for step in range(begin + 1, last + 1):
            self.now += 1.0
            lines.append(f"S {self.now} {step} {_state(step)} 0.04")
        (self.folder / f"{job}.{attempt}.0").write_text("\n".join([*lines, *more]) + "\n")


def _state(step: int) -> str:
    digest = ""
    for number in range(1, step + 1):
        digest = digest_of(digest, number)
    return digest


def _wrong(folder: Path, steps: float = TOTAL, lost: float = 0.0, unmanaged: bool = False) -> str:
    view = msgspec.convert(VIEW | {"steps": steps, "lost_steps": lost}, JobView)
    attempts: list[AttemptView] = []
    expected = Expected("job", TOTAL, 0.02, unmanaged=unmanaged)
    return "; ".join(check_job(expected, folder, view, attempts, False))


@pytest.fixture
def told(tmp_path: Path) -> _Told:
    return _Told(tmp_path / "job")


def test_a_good_ledger_is_good(told: _Told) -> None:
    told.start(1, 0, 3, "C 9 2")
    told.start(2, 2, TOTAL, "E 9 6")
    assert _wrong(told.folder, lost=1.0) == ""


def test_a_step_left_out_is_seen(told: _Told) -> None:
    told.start(1, 0, 3, "X 9 3")
    told.start(2, 4, TOTAL, "E 9 6")
    (told.folder / "7.2.0").write_text(
        (told.folder / "7.2.0").read_text().replace(f"L 1 4 {_state(4)}", f"L 1 4 {_state(3)}")
    )
    assert "a state that is not of that step" in _wrong(told.folder)


def test_work_lost_beyond_the_interval_is_seen(told: _Told) -> None:
    told.start(1, 0, 5)
    told.start(2, 0, TOTAL, "E 9 6")
    assert "did 5 steps again, 3 may be" in _wrong(told.folder)


def test_an_old_checkpoint_is_seen(told: _Told) -> None:
    told.start(1, 0, 3, "C 9 2")
    told.start(2, 1, TOTAL, "E 9 6")
    assert "went on from step 1, 2 had been saved" in _wrong(told.folder)


def test_two_starts_at_once_are_seen(told: _Told) -> None:
    told.start(2, 2, TOTAL, "E 9 6")
    told.start(1, 0, 2, "C 9 2")
    assert "attempts 1 and 2 trained at the same time" in _wrong(told.folder)


def test_a_device_held_twice_is_seen(told: _Told) -> None:
    told.start(1, 0, TOTAL, "E 9 6", "D 1 node-a-0")
    assert "node-a-0 was held by another" in _wrong(told.folder)


def test_a_job_submitted_twice_is_seen(told: _Told) -> None:
    told.start(1, 0, TOTAL, "E 9 6")
    told.start(1, 0, TOTAL, "E 9 6", job=8)
    assert "ran as 2 jobs" in _wrong(told.folder)


def test_counts_of_the_server_that_differ_are_seen(told: _Told) -> None:
    told.start(1, 0, TOTAL, "E 9 6")
    assert "counts 5 steps of 6" in _wrong(told.folder, steps=5.0)
    assert "counts 2 lost steps, the job itself 0" in _wrong(told.folder, lost=2.0)


def test_unmanaged_starts_at_once_are_seen(told: _Told) -> None:
    told.start(1, 0, 4)
    told.now = 2.0  # the next one begins before that one's last step
    told.start(2, 2, TOTAL, "E 9 6")
    assert "attempts 1 and 2 trained at the same time" in _wrong(told.folder, unmanaged=True)


def test_a_start_beside_one_that_is_alive_is_seen(told: _Told) -> None:
    told.start(1, 0, 2)
    told.start(2, 2, TOTAL, "E 9 6", "A 3 1")
    wrong = _wrong(told.folder, unmanaged=True)
    assert wrong == "attempt 2, rank 0: began while attempt 1 was alive"


def test_a_job_sees_other_starts_of_its_own_that_are_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_JOB", "7")

    def begin(attempt: int, pid: int) -> JobLedger:
        monkeypatch.setenv("FAIRLEAD_ATTEMPT", str(attempt))
        ledger = JobLedger(tmp_path).open()
        ledger.write("B", pid)
        return ledger

    with subprocess.Popen(["sleep", "600"]) as other:
        first = begin(1, other.pid)
        assert first.living() == []
        assert begin(2, os.getpid()).living() == [1]
        assert begin(2, os.getpid()).living() == [1, 2], "a start that runs twice"
        other.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
        assert begin(3, os.getpid()).living() == [2], "the first one is frozen"
        other.kill()


def test_a_start_begins_when_its_process_is_made(tmp_path: Path) -> None:
    (tmp_path / "7.1.0").write_text("B 12.5 77 2.25\nL 13 0 \n")
    assert [log.first_at for log in read_attempts(tmp_path)] == [10.25]
    assert 0.0 < age_s() < time.monotonic()


def _evaluation(folder: Path, found: str | None) -> str:
    expected = Expected("job", TOTAL, 0.02, evaluation_s=0.5)
    if found is not None:
        evaluation_path(folder).write_text(found)
    view = msgspec.convert(VIEW | {"steps": float(TOTAL), "lost_steps": 0.0}, JobView)
    return "; ".join(check_job(expected, folder, view, [], False))


def test_an_evaluation_that_was_done_twice_is_good(told: _Told) -> None:
    told.start(1, 0, TOTAL, "E 9 6", "F 9 6")  # killed before it could say so
    told.start(2, TOTAL, TOTAL, "E 9 6", "F 9 6")
    assert _evaluation(told.folder, f"{TOTAL} {_state(TOTAL)}") == ""


def test_an_evaluation_that_did_not_end_is_seen(told: _Told) -> None:
    told.start(1, 0, TOTAL, "E 9 6")
    wrong = _evaluation(told.folder, None)
    assert "its evaluation is ''" in wrong
    assert "its last attempt did not evaluate" in wrong


def test_an_evaluation_before_the_last_step_is_seen(told: _Told) -> None:
    told.start(1, 0, 4, "E 9 4", "F 9 4")
    told.start(2, 4, TOTAL, "E 9 6", "F 9 6")
    wrong = _evaluation(told.folder, f"4 {_state(4)}")
    assert "attempt 1 evaluated before the last step" in wrong
    assert f"its evaluation is '4 {_state(4)}'" in wrong


@pytest.mark.parametrize("seed", range(8))
def test_damage_changes_a_file_that_is_there(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    assert damage(path, random.Random(seed)) in ("cut", "zeroed", "garbage", "flipped")
    assert path.read_bytes() != bytes(range(200))
    assert damage(tmp_path / "none", random.Random(seed)) == ""


def test_the_work_ends_where_the_server_never_answers_again(tmp_path: Path) -> None:
    class Gone:
        """A cluster whose server has ended for good."""

        submitting = threading.Lock()
        folders = ClusterFolders(tmp_path, [])

        def client(self) -> Client:
            raise UnreachableError("nobody there")

    work = JobLoad(Gone(), random.Random(0))  # type: ignore[arg-type]
    work.start()
    while not work.refused:
        time.sleep(0.01)
    work.end(cancel=True)
    assert len(work.jobs) == 1
