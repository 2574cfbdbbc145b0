"""Does the verifier of searches see what it is there for?"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cluster.chaos.folders import ClusterFolders
from fairlead.cluster.chaos.job import digest_of, loss_of
from fairlead.cluster.chaos.search_load import STEPS, TRIALS, SearchChecks, make_study
from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.study import SearchView, TrialState, TrialView, best_of
from fairlead.cluster.searching.samplers import PastTrial, SamplerTask, suggest

PRUNED = 4  # the trial that is stopped early
PRUNED_STEPS = 20
JOB = {
    **{"name": "job", "tenant": "t", "user": "u", "family": "", "scale_factor": 1},
    **{"weight": 1.0, "total_steps": STEPS, "saved_step": 0, "lost_steps": 0.0, "search": 0},
    **{"submitted_s": 0.0, "started_s": 0.0, "ended_s": 9.0, "node": "", "accelerator": ""},
    **{"devices": [], "attempt": 1, "starts": 1, "preemptions": 0, "failures": 0, "run_s": 9.0},
    **{"overhead_s": 0.0, "rates": {}, "measured_rate": None, "slo_s": None, "reason": ""},
}


class Ended:
    """A search that has ended well, with the ledgers of its trials."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "ledger"
        self.study = make_study(ClusterFolders(folder, []), "search-0", 3)
        self.trials: list[TrialView] = []
        past: list[PastTrial] = []
        for number in range(TRIALS):
            parameters = suggest(SamplerTask(self.study, past)).parameters
            past.append(PastTrial(parameters, "completed", 0.0))
            steps = PRUNED_STEPS if number == PRUNED else STEPS
            self.trials.append(
                TrialView(
                    number=number,
                    job=10 + number,
                    parameters=parameters,
                    state="pruned" if number == PRUNED else "completed",
                    value=loss_of(float(parameters["x"]), steps),
                    step=steps,
                )
            )
            self.write(number, 10 + number, steps)

    def write(self, number: int, job: int, steps: int) -> None:
        """The ledger of an attempt that has done these steps."""
        lines, digest = ["B 1 77 0.1", "L 2 0 "], ""
        for step in range(1, steps + 1):
            digest = digest_of(digest, step)
            lines.append(f"S {step + 2} {step} {digest} 0.04")
        lines += [f"E {steps + 3} {steps}"] * (steps == STEPS)
        folder = self.ledger / f"search-0-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{job}.1.0").write_text("\n".join(lines) + "\n")

    def change(self, at: int, **changes: Any) -> None:
        self.trials[at] = msgspec.structs.replace(self.trials[at], **changes)

    def faults(self, *, jobs: int = TRIALS, best: int | None = None) -> str:
        """What is found. jobs: how many the server has; best: the trial that it shows; None = the best."""
        counts: dict[TrialState, int] = {"completed": TRIALS - 1, "pruned": 1}
        view = SearchView(
            id=0,
            name="search-0",
            user="u",
            tenant="t",
            state="completed",
            reason="",
            started_s=0.0,
            ended_s=9.0,
            study=self.study,
            counts=counts,
            trials=self.trials,
            best=best_of(self.study, self.trials) if best is None else self.trials[best],
        )
        rows = {10 + n: self._job(n) for n in range(jobs)}
        checks = SearchChecks(view, rows, lambda _: [], self.ledger)
        return "; ".join(checks.run(disk_was_full=False, reports_lost=False))

    def _job(self, number: int) -> JobView:
        trial = self.trials[min(number, TRIALS - 1)]
        pruned = number == PRUNED
        own = {
            **{"id": 10 + number, "trial": number, "parameters": trial.parameters},
            **{"state": "cancelled" if pruned else "completed"},
            **{"steps": PRUNED_STEPS if pruned else STEPS},
        }
        return msgspec.convert(JOB | own, JobView)


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    return Ended(tmp_path)


def test_a_good_search_is_good(ended: Ended) -> None:
    assert ended.faults() == ""


def test_a_trial_that_ran_twice_is_seen(ended: Ended) -> None:
    ended.write(2, 30, STEPS)
    assert "trial 2 (job 12): ran as the jobs [12, 30]" in ended.faults()


def test_a_job_more_than_there_are_trials_is_seen(ended: Ended) -> None:
    assert "its trials are others" in ended.faults(jobs=TRIALS + 1)


def test_a_trial_that_is_there_twice_is_seen(ended: Ended) -> None:
    ended.change(3, number=2)
    assert "has the trials [0, 1, 2, 2, 4" in ended.faults()


def test_a_wrong_value_and_an_old_one_are_seen(ended: Ended) -> None:
    x = float(ended.trials[1].parameters["x"])
    ended.change(1, value=x)
    assert f"trial 1 (job 11): has the value {x} at step {STEPS}" in ended.faults()
    ended.change(1, value=loss_of(x, 100), step=100)
    assert f"has the value of step 100 of {STEPS}" in ended.faults()


def test_a_wrong_best_trial_is_seen(ended: Ended) -> None:
    best = best_of(ended.study, ended.trials)
    assert best is not None
    other = (best.number + 1) % TRIALS
    assert "as its best trial" in ended.faults(best=other)


def test_parameters_that_nobody_has_suggested_are_seen(ended: Ended) -> None:
    ended.change(1, parameters={"x": 0.5}, value=loss_of(0.5, STEPS))
    assert "has {'x': 0.5}, its sampler suggests" in ended.faults()


def test_a_step_that_a_trial_left_out_is_seen(ended: Ended) -> None:
    path = ended.ledger / f"search-0-{PRUNED}" / f"{10 + PRUNED}.1.0"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("S 9 ")) + "\n")
    assert f"trial {PRUNED} (job {10 + PRUNED}): attempt 1, rank 0: did step" in ended.faults()
