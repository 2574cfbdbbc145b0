"""A question is refused for what a submission is refused for."""

import dataclasses
import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from tests.cluster.server_nodes import ADMIN, EngineNodes, compared, engine_nodes

from fairlead.cli.job_history import expected_end
from fairlead.cli.terminal_views import comparison_screen
from fairlead.cluster.forecasting import forecaster as forecaster_module
from fairlead.cluster.front.facade import ConflictError, ForbiddenError
from fairlead.cluster.front.web.tables import left_s
from fairlead.cluster.front.web.what_if import answer
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import Comparison, WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.failures import Backoff
from fairlead.errors import ConfigError
from fairlead.model.job import JobId


def _ends(cluster: EngineNodes) -> dict[int, float]:
    """Job -> when it will be done."""
    return compared(cluster, WhatIf()).now.finish_s


def test_jobs_that_would_never_end_are_named(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one", devices=2), cluster.node("two")
        one.register()
        two.register()
        only_there = cluster.submit(total_steps=1_000, scale_factor=2)
        anywhere = cluster.submit(total_steps=1_000)
        cluster.until(lambda: one.jobs | two.jobs == {only_there, anywhere})
        found = compared(cluster, WhatIf(remove_nodes=("one",)))
        assert (found.now.n_unfinished, found.then.n_unfinished) == (0, 1)
        assert found.notes[0] == f"job {only_there} would not end within 30 days then"
        shown = io.StringIO()
        Console(file=shown, width=120).print(comparison_screen(found))
        assert "not within 30 d" in shown.getvalue()
        assert "of the state of " in shown.getvalue(), "how old it is"
        assert found.basis in str(answer(found).body)
        assert "(the 1 that end)" in shown.getvalue()


def test_a_question_is_asked_of_jobs_as_they_are_wanted_now(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        first, second = (cluster.submit(total_steps=1_000) for _ in range(2))
        cluster.until(lambda: one.jobs == {first, second})
        assert set(_ends(cluster)) == {first, second}
        cluster.service.cancel(ADMIN, first)
        assert set(_ends(cluster)) == {second}
        third = cluster.submit(total_steps=1_000)
        assert set(_ends(cluster)) == {second, third}


def test_no_job_is_said_to_end_sooner_than_its_steps_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forecast that is some time old is counted down by the clock, also for jobs that wait."""
    monkeypatch.setattr(forecaster_module, "MAX_AGE_S", float("inf"))
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one")
        one.register()
        jobs = {cluster.submit(total_steps=1_000) for _ in range(2)}
        cluster.until(lambda: one.jobs)
        (waits,) = jobs - one.jobs
        assert set(_ends(cluster)) == jobs
        forecaster = cluster.service.forecasting.forecaster
        forecaster.outdate = lambda: None  # type: ignore[method-assign]
        forecaster._outdated = -float("inf")
        latest = forecaster.latest
        assert latest is not None
        forecaster.latest = dataclasses.replace(latest, at=latest.at - 1e5, cost_s=1e6)
        question = WhatIf(add_jobs=(JobSpec(command=("x",), total_steps=300, rates={"v100": 1.0}),))
        found = compared(cluster, question)
        assert found.now.finish_s[waits] >= 1_000.0
        assert found.then.finish_s[waits] >= 1_000.0
        assert found.then.finish_s.keys() > jobs
        assert min(found.then.finish_s.values()) >= 300.0
        assert found.now.makespan_s >= 1_000.0


def test_a_job_that_waits_for_another_try_is_part_of_what_will_be(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(3_000.0, 3_000.0)
        one = cluster.node("one", devices=2)
        one.register()
        job = cluster.submit(total_steps=100)
        cluster.until(lambda: one.jobs == {job})
        failure = Failure(exit_code=3, message="exit code 3")
        one.end(job, 1, exit_code=3, reason="exit code 3", failure=failure)
        core = cluster.service.engine.state
        cluster.until(
            lambda: core.scheduler is not None and JobId(job) in core.scheduler.data.paused_jobs
        )
        assert _ends(cluster)[job] > 2_000.0
        told = cluster.service.explain(ADMIN, job)
        assert told.finish_s is not None
        assert told.finish_s > 2_000.0


def test_what_has_ended_as_is_shown_is_not_paused(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        done, other = cluster.submit(), cluster.submit()
        cluster.until(lambda: one.jobs)
        clock, state = cluster.service.engine.parts.rounds.clock, cluster.service.engine.state
        if one.jobs != {done, other}:
            cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.until(lambda: one.jobs == {done, other})
        one.end(done, 1, exit_code=0, step=1_000_000, loaded_step=0, completed=True)
        cluster.until(lambda: cluster.job(done).state == "completed")
        for change in (cluster.service.pause, cluster.service.cancel):
            with pytest.raises(ConflictError, match=f"job {done}: has ended already"):
                change(ADMIN, done)
        assert cluster.job(done).state == "completed"


def test_a_family_that_is_not_known_is_refused(tmp_path: Path) -> None:
    spec = JobSpec(command=("true",), total_steps=1, family="nosuch")
    with (
        engine_nodes(tmp_path) as cluster,
        pytest.raises(ConfigError, match="family: 'nosuch' is not in the throughput table"),
    ):
        cluster.service.what_if(ADMIN, WhatIf(add_jobs=(spec,)))


def test_jobs_that_take_no_part_are_counted_and_named(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one", devices=2), cluster.node("two")
        one.register()
        two.register()
        runs = cluster.submit(total_steps=1_000)
        pair = cluster.submit(total_steps=1_000, scale_factor=2)
        wide = cluster.submit(total_steps=1_000, scale_factor=4)
        paused = cluster.submit(total_steps=1_000)
        cluster.service.pause(ADMIN, paused)
        cluster.until(lambda: one.jobs | two.jobs == {runs, pair})
        found = compared(cluster, WhatIf())
        assert set(found.now.finish_s) == {runs, pair}
        assert (found.now.n_paused, found.now.n_without_devices) == (1, 1)
        assert found.notes[:2] == (
            f"job {wide} waits for devices that the cluster does not have: no end is forecast",
            f"job {paused} is paused: no end is forecast",
        )
        more = compared(cluster, WhatIf(add_nodes={"v100": 4}))
        assert (more.now.n_without_devices, more.then.n_without_devices) == (1, 0)
        assert more.now.all_done_words.endswith(("that end)", "none ends"))
        assert set(more.then.finish_s) == {runs, pair, wide}
        assert (
            f"job {wide} waits for devices that the cluster does not have now, and would have them then"
            in more.notes
        )
        less = compared(cluster, WhatIf(remove_nodes=("one",)))
        assert (less.now.n_without_devices, less.then.n_without_devices) == (1, 2)
        assert f"job {pair} would have no devices then that it can run on" in less.notes
        shown = io.StringIO()
        Console(file=shown, width=120).print(comparison_screen(less))
        assert re.search(r"jobs without devices +1 +2", shown.getvalue())
        assert re.search(r"paused jobs +1 +1", shown.getvalue())
        assert "Jobs without devices" in str(answer(less).body)


def test_a_job_for_other_types_says_which_it_and_the_cluster_have(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        job = cluster.submit(rates={"v1OO": 3.0})
        words = "on which it can run: its rates are for v1OO, and the cluster has v100"
        cluster.until(lambda: cluster.job(job).reason.endswith(words))
        assert words in cluster.service.explain(ADMIN, job).why_here
        wide = cluster.submit(scale_factor=4)
        cluster.until(lambda: cluster.job(wide).reason.endswith("on which it can run"))


def test_a_job_that_loses_its_devices_and_would_have_them_again_is_part_of_what_would_be(
    tmp_path: Path,
) -> None:
    """The core knows it, and holds it aside."""
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one", devices=2), cluster.node("two")
        one.register()
        two.register()
        pair = cluster.submit(total_steps=1_000, scale_factor=2)
        cluster.until(lambda: one.jobs == {pair})
        cluster.service.drain(ADMIN, "one")
        cluster.until(lambda: not cluster.service.engine.state.registry.on_node.get("one"))
        with pytest.raises(ConflictError, match="'one': its agent was heard of 0 s ago, and would"):
            cluster.service.remove_node(ADMIN, "one")
        one.say(leaving=True)
        cluster.silence(one)
        cluster.service.remove_node(ADMIN, "one")
        cluster.until(lambda: cluster.service.engine.parts.jobs.admission.unfit == {pair})
        found = compared(cluster, WhatIf(add_nodes={"v100": 2}))
        assert (found.now.finish_s, set(found.then.finish_s)) == ({}, {pair})
        assert (found.now.n_without_devices, found.then.n_without_devices) == (1, 0)


def _exact(cluster: EngineNodes, question: WhatIf) -> Comparison:
    """An answer round by round: pairs have no part in coarse ones, which a busy machine gives."""
    found = compared(cluster, question)
    while found.forecast_kind != "exact":
        found = compared(cluster, question)
    return found


def test_under_a_policy_that_packs_jobs_run_side_by_side(tmp_path: Path) -> None:
    """The core of a policy that does not pack keeps no such rates."""
    with engine_nodes(tmp_path, 10.0) as cluster:
        one = cluster.node("one")
        one.register()
        jobs = {
            cluster.submit(name=name, total_steps=10_000, colocated_fraction=0.9) for name in "ab"
        }
        cluster.until(lambda: cluster.service.engine.state.setup is not None)
        cluster.until(lambda: set(_ends(cluster)) == jobs)
        apart = _exact(cluster, WhatIf(policy="fifo"))
        packed = _exact(cluster, WhatIf(policy="las_packed"))
        assert max(packed.then.finish_s.values()) < 0.7 * max(apart.then.finish_s.values())
        more = _exact(cluster, WhatIf(policy="las_packed", add_nodes={"v100": 1}))
        assert max(more.then.finish_s.values()) < 0.7 * max(apart.then.finish_s.values())


def test_who_has_ended_since_the_forecast_was_made_is_not_open(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one", devices=3)
        one.register()
        jobs = [cluster.submit(total_steps=1_000) for _ in range(3)]
        clock, state = cluster.service.engine.parts.rounds.clock, cluster.service.engine.state
        cluster.until(lambda: one.jobs)
        cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.until(lambda: one.jobs == set(jobs))
        assert set(_ends(cluster)) == set(jobs)
        forecaster = cluster.service.forecasting.forecaster
        assert forecaster.latest is not None
        costly = dataclasses.replace(forecaster.latest, cost_s=1e6)
        forecaster.latest = costly  # so it is kept
        key = next(key for key in one.statuses if key[0] == jobs[0])
        one.end(*key, exit_code=0, step=1_000, loaded_step=0, completed=True)
        cluster.until(lambda: cluster.job(jobs[0]).state == "completed")
        assert set(_ends(cluster)) == set(jobs[1:])
        cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.until(lambda: jobs[0] not in state.registry.jobs)
        assert set(_ends(cluster)) == set(jobs[1:])


def test_who_has_ended_in_the_round_in_force_is_open_nowhere(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        jobs = {cluster.submit(total_steps=5_000) for _ in range(3)}
        clock, state = cluster.service.engine.parts.rounds.clock, cluster.service.engine.state
        cluster.until(lambda: one.jobs)
        cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.until(lambda: len(one.jobs) == 2)
        done, runs = sorted(one.jobs)
        key = next(key for key in one.statuses if key[0] == done)
        one.end(*key, exit_code=0, step=5_000, loaded_step=0, completed=True)
        cluster.until(lambda: cluster.job(done).state == "completed")
        assert set(_ends(cluster)) == jobs - {done}
        assert {job.id for job in cluster.service.jobs(ADMIN, "open")} == jobs - {done}
        assert [job.id for job in cluster.service.jobs(ADMIN, "completed")] == [done]
        assert [job.id for job in cluster.service.jobs(ADMIN, "running", limit=1)] == [runs]


def test_no_end_is_made_up_for_a_job_of_whose_rate_nothing_is_known(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one", devices=3)
        one.register()
        unknown = cluster.submit(total_steps=1_000_000, rates={})
        by_time = cluster.submit(total_steps=1_000, rates={}, unmanaged=True)
        stated = cluster.submit(total_steps=1_000)
        clock, state = cluster.service.engine.parts.rounds.clock, cluster.service.engine.state
        cluster.until(lambda: one.jobs)
        cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.until(lambda: one.jobs == {unknown, by_time, stated})
        found = compared(cluster, WhatIf())
        assert set(found.now.finish_s) == {by_time, stated}
        assert found.no_end == {unknown: "rate unknown"}
        assert found.now.makespan_s <= 1_100.0
        assert found.notes[0].startswith(f"job {unknown} has no rate yet, stated or measured: ")
        assert [cluster.job(one).rate_known for one in (unknown, by_time, stated)] == [
            False,
            True,
            True,
        ]
        assert [left_s(cluster.job(one)) is None for one in (unknown, stated)] == [True, False]
        told = cluster.service.explain(ADMIN, unknown)
        assert (told.rate_known, told.finish_s) == (False, None)
        assert expected_end(told).startswith("No end is forecast: its rate is not known")
        key = next(key for key in one.statuses if key[0] == unknown)
        one.run(*key, step=10_000, loaded_step=0, ran_s=20.0, trained_s=20.0)
        one.say()
        cluster.until(lambda: cluster.job(unknown).measured_rate == 500.0)
        forecaster = cluster.service.forecasting.forecaster
        forecaster.outdate()
        ends = _ends(cluster)
        assert ends[unknown] == pytest.approx(990_000 / 500.0, rel=0.1)
        assert ends[by_time] == pytest.approx(1_000.0, rel=0.1), "its rate is not the other one's"


def test_who_is_past_its_last_step_or_on_a_silent_node_has_no_end_in_an_answer(
    tmp_path: Path,
) -> None:
    """``explain`` forecasts none either."""
    with engine_nodes(tmp_path, 600.0, lease_s=120.0) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        first = cluster.submit(total_steps=1_000)
        one.register()
        cluster.begin(one, first)
        two.register()
        second = cluster.submit(total_steps=1_000)
        clock, state = cluster.service.engine.parts.rounds.clock, cluster.service.engine.state
        cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.begin(two, second)
        one.run(first, 1, loaded_step=0, step=1_000, ran_s=10.0, trained_s=10.0, finishing=True)
        one.say()
        cluster.until(lambda: cluster.job(first).state == "finishing")
        cluster.silence(two)
        cluster.until(lambda: cluster.service.explain(ADMIN, second).waits_for_node)
        found = compared(cluster, WhatIf())
        assert found.no_end == {first: "finishing", second: "node silent"}
        assert not found.now.finish_s
        assert found.notes[0].startswith(f"job {second} is on a silent node: no end is forecast")
        assert f"job {first} is past the last step and has not ended: " in found.notes[1]
        for job, why in found.no_end.items():
            told = cluster.service.explain(ADMIN, job)
            assert (told.finish_s, told.no_end) == (None, why)


def test_jobs_of_other_tenants_are_in_sums_alone(tmp_path: Path) -> None:
    bob = Caller(user="bob", tenant="speech", role="user")
    added = JobSpec(command=("x",), total_steps=900, rates={"v100": 1.0})
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        one = cluster.node("one", devices=3)
        one.register()
        theirs = {cluster.submit(total_steps=1_000 + n, slo_s=1.0) for n in range(2)}
        theirs |= {cluster.submit(total_steps=1_000, scale_factor=9)}
        cluster.service.pause(ADMIN, cluster.submit())
        own = cluster.service.submit(bob, [added])[0]
        question = WhatIf(policy="fifo", add_jobs=(added,), add_nodes={"v100": 9})
        all_ = compared(cluster, question)
        found = compared(cluster, question, bob)
        assert all_.now.finish_s.keys() & theirs
        assert set(found.now.finish_s) == {own}
        assert theirs.isdisjoint(found.then.finish_s)
        assert {job for job, *_ in found.changed} <= found.then.finish_s.keys()
        assert not found.no_end
        for ours, shown in ((all_.now, found.now), (all_.then, found.then)):
            assert (shown.n_finished, shown.n_paused) == (len(ours.finish_s), ours.n_paused)
        assert "1 job of others is paused: no end is forecast" in found.notes
        assert not any("deadline" in note for note in found.notes)
        named = {
            int(number)
            for note in found.notes
            for number in re.findall(r"job (\d+) (?!of those)", note)
        }
        assert named.isdisjoint(theirs)


def test_nodes_that_cannot_be_left_out_are_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit()
        cluster.until(lambda: one.jobs == {job})
        with pytest.raises(ConfigError, match=r"^remove_nodes: there is no node 'zz'$"):
            compared(cluster, WhatIf(remove_nodes=("zz",)))
        with pytest.raises(
            ConfigError, match=r"^remove_nodes: without them no node would be left$"
        ):
            compared(cluster, WhatIf(remove_nodes=("one",)))


@pytest.mark.parametrize("policy", ["recorded", "water_filling", "partition:2:water_filling_aware"])
def test_users_have_the_server_read_no_files(tmp_path: Path, policy: str) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('password = "hunter2"\n')
    bob = Caller(user="bob", tenant="speech", role="user")
    with engine_nodes(tmp_path) as cluster:
        for separator in (":",) if ":" in policy else (":", "="):
            question = WhatIf(policy=f"{policy}{separator}{secret}")
            with pytest.raises(
                ForbiddenError, match="only an administrator may have the server read"
            ):
                cluster.service.what_if(bob, question)
            with pytest.raises(
                ConflictError, match="no nodes"
            ):  # it is asked on, with nothing to ask
                cluster.service.what_if(ADMIN, question)
