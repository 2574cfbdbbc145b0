"""Searches on a real server and agents, with the server killed in between."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.cluster.cluster import FAIRLEAD, Running, running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, PrunerSpec, SearchView, StudySpec

# A loss that falls to the distance of x from 0.3; each start leaves a line in a ledger.
SCRIPT = """
import os, time
import fairlead
x, steps = float(os.environ["FAIRLEAD_PARAM_X"]), int(os.environ["STEPS"])
assert fairlead.parameters(x=None)["x"] == x
with open(os.environ["LEDGER"], "a") as ledger:
    ledger.write(f"{os.environ['FAIRLEAD_TRIAL']} {os.environ['FAIRLEAD_JOB']} {x!r}\\n")
for step in range(1, steps + 1):
    fairlead.report(step=step, loss=abs(x - 0.3) + 1.0 / step)
    time.sleep(float(os.environ["PAUSE"]))
"""


def study(folder: Path, *, steps: int = 5, pause_s: float = 0.02, **more: object) -> StudySpec:
    job = JobSpec(
        command=(sys.executable, "-c", SCRIPT),
        total_steps=10_000,
        unmanaged=True,
        cwd="/",
        env={"LEDGER": str(folder / "ledger"), "STEPS": str(steps), "PAUSE": str(pause_s)},
        grace_s=0.5,
    )
    given: dict[str, object] = {
        "metric": "loss",
        "parameters": {"x": ParameterRange(low=0.0, high=1.0)},
        "job": job,
        "trials": 8,
        "parallel": 2,
        "sampler": "random",
        "name": "x",
    }
    return StudySpec(**(given | more))  # type: ignore[arg-type]


def ledger(folder: Path) -> list[list[str]]:
    """Trial, job and parameter of each start, in order."""
    path = folder / "ledger"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(client: Client, number: int) -> SearchView:
    until(lambda: client.search_status(number).state != "running", what="the end of the search")
    return client.search_status(number)


def ready(client: Client) -> None:
    until(lambda: any(node.state == "up" for node in client.nodes()), what="the node")


def test_a_server_that_is_killed_loses_no_trial_and_doubles_none(tmp_path: Path) -> None:
    with running(tmp_path, agents={"node-a": "v100=2"}) as cluster, cluster.client() as client:
        ready(client)
        number = client.search(study(tmp_path, steps=40), key="once")
        assert client.search(study(tmp_path, steps=40), key="once") == number

        def begun(trials: int) -> bool:
            return len(ledger(tmp_path)) >= trials

        for trials in (1, 3, 6):
            until(partial(begun, trials), what=f"{trials} trials")
            cluster.kill()
            cluster.start()
        view = ended(client, number)
        assert (view.state, view.reason) == ("completed", "all 8 trials have ended")
        assert [trial.number for trial in view.trials] == list(range(8))
        assert view.counts == {"completed": 8}
        jobs = client.jobs(limit=100)
        assert [job.trial for job in jobs] == list(range(8)), "there are no other jobs"
        assert [job.id for job in jobs] == [trial.job for trial in view.trials]
        assert {job.search for job in jobs} == {number}
        starts = ledger(tmp_path)
        assert sorted({int(trial) for trial, _, _ in starts}) == list(range(8))
        assert len({job for _, job, _ in starts}) == 8
        values = [trial.value for trial in view.trials]
        expected = [abs(trial.parameters["x"] - 0.3) + 1 / 40 for trial in view.trials]  # type: ignore[operator]
        assert values == pytest.approx(expected)
        assert view.best is not None
        assert view.best.value == min(value for value in values if value is not None)
        curves = client.search_curves(number)
        assert all(curves[n].steps == list(range(1, 41)) for n in range(8))


def test_bad_trials_are_stopped_and_shown_as_such(tmp_path: Path) -> None:
    asha = PrunerSpec(type="asha", min_step=2, reduction=2)
    with running(tmp_path, agents={"node-a": "v100=4"}) as cluster, cluster.client() as client:
        ready(client)
        wanted = study(tmp_path, steps=400, pruner=asha, parallel=4, trials=8, pause_s=0.01)
        number = client.search(wanted)

        def is_pruned() -> bool:
            return "pruned" in client.search_status(number).counts

        until(is_pruned, what="a trial that is pruned")
        cluster.kill()
        cluster.start()
        view = ended(client, number)
        assert set(view.counts) == {"pruned", "completed"}
        for trial in view.trials:
            until(lambda job=trial.job: client.job(job).ended_s is not None, what="its end")  # type: ignore[misc]
            job = client.job(trial.job)
            if trial.state == "pruned":
                assert "one in 2 goes on" in trial.reason
                assert job.state == "cancelled"
                assert job.reason.startswith(f"pruned by search {number}: {trial.reason}")
            else:
                assert job.state == "completed"
        assert view.best is not None
        pruned = [t for t in view.trials if t.state == "pruned"]
        worst = max(pruned, key=lambda t: abs(t.parameters["x"] - 0.3))  # type: ignore[operator]
        x, best_x = worst.parameters["x"], view.best.parameters["x"]
        assert abs(best_x - 0.3) < abs(x - 0.3)  # type: ignore[operator]


def test_trials_that_will_not_reach_the_target_are_stopped(tmp_path: Path) -> None:
    """A loss of 0.1 above that of the best one, x = 0.3, is out of reach for most."""
    steps, target = 400, 0.1
    curve = PrunerSpec(type="curve", max_step=steps, start=1.7, min_points=5)
    with running(tmp_path, agents={"node-a": "v100=4"}) as cluster, cluster.client() as client:
        ready(client)
        grid = {"x": ParameterRange(low=0.3, high=1.0, points=4)}
        wanted = study(
            tmp_path, steps=steps, pruner=curve, target=target, sampler="grid", parameters=grid,
            parallel=4, trials=4, pause_s=0.02,
        )  # fmt: skip
        number = client.search(wanted)

        def is_pruned() -> bool:
            return client.search_status(number).counts.get("pruned", 0) >= 2

        until(is_pruned, what="two trials that are pruned")
        cluster.kill()
        cluster.start()
        view = ended(client, number)
        assert view.reason == f"trial 0 has reached {target:g}: {1 / steps:.6g}"
        assert view.best is not None
        assert view.best.number == 0
        assert view.counts["completed"] == 1
        for trial in view.trials[1:]:
            until(lambda job=trial.job: client.job(job).ended_s is not None, what="its end")  # type: ignore[misc]
            if trial.state == "pruned":
                assert (
                    f"the probability that it reaches {target:g} by step {steps} is" in trial.reason
                )
                assert client.job(trial.job).reason.startswith(f"pruned by search {number}: loss")


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("cmaes", marks=pytest.mark.long)])
def test_samplers_of_optuna_go_on_where_a_killed_server_was(tmp_path: Path, sampler: str) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("cmaes")
    with running(tmp_path, agents={"node-a": "v100=4"}) as cluster, cluster.client() as client:
        ready(client)
        space = {"x": ParameterRange(low=0.0, high=1.0), "y": ParameterRange(low=0.0, high=1.0)}
        wanted = study(tmp_path, sampler=sampler, parameters=space, trials=40, parallel=4, steps=2)
        number = client.search(wanted)

        def begun() -> bool:
            return len(client.search_status(number).trials) >= 20

        until(begun, what="20 trials")
        cluster.kill()
        cluster.start()
        view = ended(client, number)
        assert view.counts == {"completed": 40}
        assert len({trial.job for trial in view.trials}) == 40
        far = [abs(trial.parameters["x"] - 0.3) for trial in view.trials]  # type: ignore[operator]
        assert sum(far[25:]) / 15 < 0.25, "by chance it would be 0.29"


def test_a_search_ends_with_the_first_trial_that_reaches_its_target(tmp_path: Path) -> None:
    with running(tmp_path, agents={"node-a": "v100=2"}) as cluster, cluster.client() as client:
        ready(client)
        wanted = study(tmp_path, trials=1_000, steps=20, target=0.25)
        view = ended(client, client.search(wanted))
        assert view.state == "completed"
        assert view.best is not None
        assert view.reason.startswith(f"trial {view.best.number} has reached 0.25")
        assert len(view.trials) < 1_000

        def settled() -> bool:
            return all(job.ended_s is not None for job in client.jobs(limit=1_000))

        until(settled, what="the other trials to be stopped")
        assert client.search_status(view.id).counts.keys() <= {"completed", "stopped"}


def test_the_best_trials_get_more(tmp_path: Path) -> None:
    with running(tmp_path, agents={"node-a": "v100=1"}) as cluster, cluster.client() as client:
        ready(client)
        wanted = study(
            tmp_path, steps=100_000, trials=4, parallel=4, favour=1, favour_factor=5.0, weight=2.0
        )
        job = msgspec.structs.replace(wanted.job, keeps_progress=True)  # so that they take turns
        wanted = msgspec.structs.replace(wanted, job=job)
        number = client.search(wanted)

        def weights() -> dict[int, float]:
            return {job.trial: job.weight for job in client.jobs() if job.trial is not None}

        def all_reported() -> bool:
            trials = client.search_status(number).trials
            return len(trials) == 4 and all(trial.step is not None for trial in trials)

        until(all_reported, what="values of all trials")
        trials = client.search_status(number).trials
        best = min(trials, key=lambda t: abs(t.parameters["x"] - 0.3)).number  # type: ignore[operator]
        share = pytest.approx(2.0 / 8.0, rel=0.02)

        def as_wanted() -> bool:
            found = weights()
            others = [found[n] for n in range(4) if n != best]
            return found[best] == pytest.approx(10.0 / 8.0, rel=0.02) and others == [share] * 3

        until(as_wanted, what="the weights")
        before = {job.trial: job.run_s for job in client.jobs()}

        def gains() -> list[float]:
            found = {job.trial: job.run_s - before[job.trial] for job in client.jobs()}
            return [found[best], *(found[n] for n in range(4) if n != best)]

        until(lambda: sum(gains()) > 24, what="24 rounds")
        assert gains()[0] > 1.5 * max(gains()[1:]), "5 of 8 rounds, the others one each"
        client.stop_search(number)
        view = ended(client, number)
        assert (view.state, view.reason) == ("stopped", "stopped by admin")
        until(lambda: not client.jobs("open"), what="the trials to end")
        assert client.search_status(number).counts == {"stopped": 4}


def test_commands_from_a_study_to_its_best_trial(tmp_path: Path) -> None:
    with running(tmp_path, agents={"node-a": "v100=2"}) as cluster:
        run = partial(_command, cluster, tmp_path)
        with cluster.client() as client:
            ready(client)
        (tmp_path / "train.py").write_text(SCRIPT)
        (tmp_path / "study.toml").write_text(
            f"""
metric = "loss"
trials = 6
parallel = 2
sampler = "grid"
[parameters.x]
type = "float"
low = 0.1
high = 0.6
points = 6
[job]
command = "{sys.executable} train.py --x {{x}}"
total_steps = 1000
unmanaged = true
env = {{ LEDGER = "{tmp_path}/ledger", STEPS = "3", PAUSE = "0" }}
"""
        )
        view = json.loads(run("search", "study.toml", "--wait", "--json").stdout)
        assert view["state"] == "completed"
        assert view["best"]["parameters"] == {"x": pytest.approx(0.3)}
        report = run("search-status", str(view["id"])).stdout
        assert f"Best: trial {view['best']['number']}" in report
        assert "study" in run("searches").stdout
        text = (tmp_path / "study.toml").read_text()
        (tmp_path / "long.toml").write_text(text.replace('PAUSE = "0"', 'PAUSE = "1000"'))
        again = json.loads(run("search", "long.toml", "--json").stdout)
        assert run("cancel", f"search:{again['id']}").stdout == f"search {again['id']} stopped\n"
        (tmp_path / "wrong.toml").write_text(text.replace("trials = 6", "trials = 0"))
        wrong = run("search", "wrong.toml", code=2)
        assert wrong.stderr == "fairlead: wrong.toml:3: trials: must be from 1 to 10000, got 0\n"
        (tmp_path / "family.toml").write_text(text + 'family = "unheard of"\n')
        wrong = run("search", "family.toml", code=2)
        assert wrong.stderr.startswith("fairlead: family.toml:16: job: family: ")
        wrong = run("cancel", "search:99", code=2)
        assert wrong.stderr == "fairlead: search 99: there is none\n"


def _command(
    cluster: Running, folder: Path, *words: str, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    env = {"FAIRLEAD_SERVER": cluster.url, "FAIRLEAD_TOKEN": cluster.admin_token}
    done = subprocess.run(
        [*FAIRLEAD, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=env
        | {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"},
    )
    assert done.returncode == code, done.stderr
    return done
