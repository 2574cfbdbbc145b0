"""A job without the iterator that says how far it is: its steps, not its time, are its progress."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus, Rank
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import AttemptRow, JobRow

LIMIT_S = 180.0
TOTAL, BELIEVED = 100_000, 1.0

# 100 steps/s from the newest checkpoint, which is made of every 200th; nothing is saved at SIGTERM.
SCRIPT = """
import os, pathlib, time
kept = pathlib.Path("kept")
first = int(kept.read_text()) if kept.exists() else 0
began = time.monotonic()
while True:
    step = first + int(100 * (time.monotonic() - began))
    saved = step - step % 200
    part = pathlib.Path("kept.part")
    part.write_text(str(saved))
    part.rename(kept)  # whenever it is stopped, one of them is whole
    with open(os.environ["FAIRLEAD_PROGRESS_FILE"], "w") as file:
        file.write(f"{step} {saved}\\n")
    time.sleep(0.05)
"""


def _start(row: Mapping[str, Any], **held: Any) -> Attempt:
    given = {"command": ("x",), "total_steps": TOTAL, "unmanaged": True}
    spec = msgspec.convert(given | row.get("spec", {}), JobSpec)
    more = {name: value for name, value in row.items() if name != "spec"}
    job = JobRow(
        id=0, name="", tenant="", user="", spec=spec, submitted_s=0.0, total_steps=TOTAL, **more
    )
    attempt = AttemptRow(job=0, attempt=1, node="a", accelerator="v100", devices=(0,), began_s=0.0)
    start = Attempt(
        job, attempt, {"a": (Rank(rank=0, devices=(0,)),)}, BELIEVED, 100.0, last_report_s=50.0
    )
    start.statuses["a"] = msgspec.structs.replace(
        AttemptStatus(job=0, attempt=1, state="running"), **held
    )
    return start


def test_its_steps_count_and_not_its_time() -> None:
    start = _start({}, step=900, loaded_step=500, ran_s=50.0, step_age_s=10.0)
    assert start.progress() == 900
    assert start.measured() == 10.0, "steps told of in the time until it told"
    assert start.expected(50.0) == 940, "as much as it is believed to do without a word, not more"


def test_until_its_first_word_one_that_told_before_has_done_nothing() -> None:
    silent = _start({"tells_steps": True}, ran_s=50.0)
    assert silent.progress() == silent.expected(60.0) == 100
    assert silent.measured() is None
    assert _start({}, ran_s=50.0).progress() == 150


def test_what_it_keeps_is_what_it_says() -> None:
    told = {"step": 900, "loaded_step": 500, "ran_s": 40.0, "step_age_s": 0.0}
    assert _start({}, **told).resumable_steps() == 0
    assert _start({"spec": {"keeps_progress": True}}, **told).resumable_steps() == 900
    for keeps in (False, True):
        saves = {"tells_saved": True, "spec": {"keeps_progress": keeps}}
        assert _start(saves, saved_step=800, **told).resumable_steps() == 800


def test_a_job_that_reports_has_real_steps_and_keeps_what_it_saved(tmp_path: Path) -> None:
    with running(tmp_path, agents={"a": "v100=1"}) as cluster, cluster.client() as client:
        until(lambda: [n.state for n in client.nodes()] == ["up"], LIMIT_S)
        work = tmp_path / "work"
        work.mkdir()
        spec = JobSpec(
            command=("python", "-c", SCRIPT), total_steps=TOTAL, unmanaged=True, cwd=str(work)
        )
        (job,) = client.submit([spec])
        until(lambda: (client.job(job).measured_rate or 0.0) > 20.0, LIMIT_S, "a rate")
        until(lambda: client.job(job).steps > 500, LIMIT_S, "five seconds of work")
        assert client.job(job).measured_rate < 150.0  # type: ignore[operator]
        assert not client.job(job).starts_over
        client.pause(job)
        until(lambda: client.attempts(job)[0].why == "paused", LIMIT_S)
        paused, kept = client.job(job), int((work / "kept").read_text())
        assert paused.steps == paused.saved_step
        assert kept - 200 <= paused.saved_step <= kept
        assert paused.saved_step % 200 == 0
        client.resume(job)
        until(lambda: client.job(job).steps > kept + 100, LIMIT_S, "it goes on")
        # who reads its file late takes for kept what it has kept since
        assert kept - 200 < client.attempts(job)[1].from_step <= client.job(job).steps
        client.cancel(job)
        until(lambda: not any(held for n in client.nodes() for held in n.jobs), LIMIT_S)
