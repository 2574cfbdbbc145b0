"""What is told of a job that hangs, by a server to which its node says so."""

import re
from pathlib import Path

import msgspec
from rich.console import Console
from tests.cluster.server_nodes import ADMIN, compared, engine_nodes

from fairlead.cli.job_history import attempt_history
from fairlead.cli.terminal_views import comparison_screen
from fairlead.cluster.front.web.tables import left_s
from fairlead.cluster.front.web.what_if import answer
from fairlead.cluster.protocol.api_models import WhatIf

STALL = "no step for 92 s, usual 0.21 s; rank 0 is in fails.py:15 (train)"


def test_no_end_is_forecast_of_a_job_that_stands_still_until_it_goes_on(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit(total_steps=1000)
        cluster.until(lambda: (job, 1) in node.leased & node.statuses.keys())
        node.run(job, 1, loaded_step=0, step=20, ran_s=100.0, step_age_s=92.0, stall=STALL)
        cluster.until(lambda: STALL in cluster.job(job).reason)
        told = cluster.service.explain(ADMIN, job)
        assert told.facts[0] == f"It stands still, and may hang: {STALL}."
        assert (told.stands_still, told.finish_s, told.forecasts) == (True, None, 0)
        assert (told.job.no_end, left_s(told.job)) == ("stands still", None)
        (listed,) = cluster.service.jobs(ADMIN, "open")
        assert (listed.no_end, left_s(listed)) == ("stands still", None)
        console = Console(width=160)
        with console.capture() as shown:
            console.print(attempt_history(told, 0.0))
        assert "No end is forecast: it stands still." in shown.get()
        assert "Expected to end" not in shown.get()
        waits = cluster.submit(total_steps=1000)
        cluster.until(lambda: "hanging" in cluster.service.explain(ADMIN, waits).why_here)
        node.run(job, 1, loaded_step=0, step=21, ran_s=101.0, step_age_s=0.1)
        cluster.until(lambda: not cluster.service.explain(ADMIN, job).stands_still)
        assert cluster.job(job).no_end == ""
        assert left_s(cluster.job(job)) is not None


def test_a_question_names_who_stands_still_and_makes_up_no_end_of_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        node = cluster.node("one", devices=2)
        node.register()
        hangs = cluster.submit(total_steps=1000)
        cluster.until(lambda: (hangs, 1) in node.leased & node.statuses.keys())
        node.run(hangs, 1, loaded_step=0, step=20, ran_s=100.0, step_age_s=92.0, stall=STALL)
        cluster.until(lambda: cluster.service.explain(ADMIN, hangs).no_end == "stands still")
        alone = compared(cluster, WhatIf(add_nodes={"v100": 4}))
        assert (alone.now.finish_s, alone.then.finish_s) == ({}, {})
        assert alone.no_end == {hangs: "stands still"}
        assert (alone.now.n_no_end, alone.then.n_no_end) == (1, 1)
        assert alone.notes[0] == (
            f"job {hangs} stands still and may hang: no end is forecast, and what waits for it is a guess"
        )
        assert msgspec.json.decode(msgspec.json.encode(alone))["no_end"] == {
            str(hangs): "stands still"
        }
        console = Console(width=160)
        with console.capture() as shown:
            console.print(comparison_screen(alone))
        assert re.search(r"all done in +none ends +none ends", shown.get())
        assert re.search(r"jobs without a forecast +1 +1", shown.get())
        page = str(answer(alone).body)
        assert "none ends" in page
        assert "Jobs of which no end is forecast" in page
        trains = cluster.submit(total_steps=1000)
        for question in (WhatIf(), WhatIf(policy="fifo")):
            found = compared(cluster, question)
            assert found.now.finish_s.keys() == found.then.finish_s.keys() == {trains}
            assert found.no_end == {hangs: "stands still"}
            assert "(the 1 that end)" in found.then.all_done_words
