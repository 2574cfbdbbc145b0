"""Arrays: one submission, many jobs, of which a limited number takes part at once."""

import shutil
from pathlib import Path

import pytest
from tests.cluster.played_jobs import in_core
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, busy_driver, engine_nodes

from fairlead.cluster.front.facade import ConflictError, NotFoundError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.arrays import MAX_TASKS
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.tenant_limits import TenantLimits
from fairlead.errors import ConfigError

OTHER = Caller(user="o", tenant="another", role="user")
USER = Caller(user="u", tenant="t", role="user")


def submit_array(cluster: EngineNodes, array: str, **more: object) -> list[int]:
    """Returns the ids of its tasks."""
    given = {"command": ("x",), "total_steps": 1000, "rates": {"v100": 1.0}, "grace_s": 0.5}
    return cluster.service.submit(ADMIN, [JobSpec(**(given | {"array": array} | more))])  # type: ignore[arg-type]


def taking_part(cluster: EngineNodes, ids: list[int]) -> list[int]:
    return [job for job in ids if in_core(cluster, job)]


def complete_one(cluster: EngineNodes, node: PlayedNode, ids: list[int]) -> int:
    """Let one of these jobs run to its end; returns which."""

    def running() -> list[tuple[int, int]]:
        return [key for key in node.leased & node.statuses.keys() if key[0] in ids]

    cluster.until(running)
    job, attempt = min(running())
    node.run(job, attempt, loaded_step=0, step=5, saved_step=0)
    node.say()
    node.end(job, attempt, completed=True, exit_code=0, step=1000, loaded_step=0)
    cluster.until(lambda: cluster.job(job).state == "completed", f"the end of job {job}")
    return job


def test_tasks_take_turns_within_the_limit(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n", devices=4)
        node.register()
        before = cluster.submit(weight=0.01)
        ids = submit_array(cluster, "0-4:2,7,9%2", name="sweep")
        assert ids == list(range(before + 1, before + 6))
        views = [cluster.job(job) for job in ids]
        assert [view.array_index for view in views] == [0, 2, 4, 7, 9]
        assert {(view.array, view.array_count) for view in views} == {(ids[0], 5)}
        assert views[1].name == "sweep[2]"
        cluster.until(lambda: in_core(cluster, ids[1]), "the first to take part")
        left = list(ids)
        while left:
            cluster.until(lambda: len(taking_part(cluster, left)) == min(2, len(left)))
            held = [job for job in left if not in_core(cluster, job)]
            for job in held:
                reason = f"waits for its turn: 2 of array {ids[0]} may run at once"
                assert cluster.job(job).reason == reason
            left.remove(complete_one(cluster, node, left))
        assert all(cluster.job(job).starts == 1 for job in ids)


def test_ranks_are_told_which_task_they_are(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        ids = submit_array(cluster, "5,8", env={"SEED": "1"})
        orders = cluster.until(lambda: node.report().desired)
        (order,) = [one for one in orders if one.job in ids][:1]
        index = {ids[0]: "5", ids[1]: "8"}[order.job]
        assert order.env == {
            "SEED": "1",
            "FAIRLEAD_ARRAY_ID": str(ids[0]),
            "FAIRLEAD_ARRAY_INDEX": index,
            "FAIRLEAD_ARRAY_COUNT": "2",
        }


def test_array_is_listed_and_cancelled_as_one(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n", devices=2)
        node.register()
        ids = submit_array(cluster, "0-5%2")
        other = cluster.submit()
        service, array = cluster.service, ids[0]
        assert [job.id for job in service.jobs(ADMIN, array=array)] == ids
        assert [
            job.id for job in service.jobs(ADMIN, "open", after=ids[1], limit=2, array=array)
        ] == [
            ids[2],
            ids[3],
        ]
        done = complete_one(cluster, node, ids)
        assert [job.id for job in service.jobs(ADMIN, "completed", array=array)] == [done]
        for unknown in (ids[1], other, 10**9):
            with pytest.raises(NotFoundError, match=f"^array {unknown}: there is none$"):
                service.cancel_array(ADMIN, unknown)
        with pytest.raises(NotFoundError, match=f"^array {array}: there is none$"):
            service.jobs(OTHER, array=array)
        assert service.cancel_array(ADMIN, array) == [job for job in ids if job != done]
        cluster.until(lambda: not service.jobs(ADMIN, "open", array=array), "its end")
        assert service.cancel_array(ADMIN, array) == []
        cluster.until(lambda: cluster.job(other).state == "running", "the other job to run")


def test_job_waits_for_all_tasks_of_an_array(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n", devices=3)
        node.register()
        ids = submit_array(cluster, "1-3")
        after = cluster.submit(after=(f"ok:array:{ids[0]}",))
        left = list(ids)
        assert cluster.job(after).reason == f"waits for 3 jobs of array {ids[0]} to complete"
        while left:
            assert not in_core(cluster, after)
            left.remove(complete_one(cluster, node, left))
        cluster.until(lambda: cluster.job(after).state == "running", "the job after it")
        more = submit_array(cluster, "1-2%1", after=(f"ok:array:{ids[0]}",))
        then = cluster.submit(after=(f"ok:array:{more[0]}",))
        cluster.service.cancel(ADMIN, more[1])
        cluster.until(lambda: cluster.job(then).state == "dropped", "the end of the last")
        assert cluster.job(then).reason == (
            f"job {more[1]} of array {more[0]}, on which it depends (ok), was cancelled"
        )


def test_paused_tasks_are_passed_over_before_their_turn_and_keep_it_after(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n", devices=3)
        node.register()
        ids = submit_array(cluster, "0-3%1")
        cluster.until(lambda: in_core(cluster, ids[0]), "the first to take part")
        cluster.service.pause(ADMIN, ids[1])
        complete_one(cluster, node, ids[:1])
        cluster.until(lambda: in_core(cluster, ids[2]), "the third to take part")
        cluster.service.pause(ADMIN, ids[2])
        cluster.service.resume(ADMIN, ids[1])
        assert taking_part(cluster, ids) == [ids[2]]
        cluster.service.cancel(ADMIN, ids[2])
        cluster.until(lambda: taking_part(cluster, ids) == [ids[1]], "the second to take part")


def test_limits_of_tenants_count_tasks(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(open_jobs=5)) as cluster:
        spec = JobSpec(command=("x",), total_steps=1, array="1-6%1")
        with pytest.raises(ConflictError, match="it has 0, and 6 more are submitted"):
            cluster.service.submit(USER, [spec])
        assert not cluster.service.jobs(ADMIN)
        five = JobSpec(command=("x",), total_steps=1, array="1-5%1")
        ids = cluster.service.submit(USER, [five], key="k")
        assert len(ids) == 5
        assert cluster.service.submit(USER, [five], key="k") == ids
        other = JobSpec(command=("x",), total_steps=1, array="1-5")
        with pytest.raises(ConflictError, match="'k' was used before"):
            cluster.service.submit(USER, [other], key="k")
        too_many = [JobSpec(command=("x",), total_steps=1, array=f"1-{MAX_TASKS}")] * 2
        with pytest.raises(ConfigError, match="at most 10,000 jobs at once"):
            cluster.service.submit(ADMIN, too_many)


@pytest.mark.parametrize("stops", ["before the release", "after it"])
def test_server_that_is_killed_in_between_goes_on_with_the_array(
    tmp_path: Path, stops: str
) -> None:
    with engine_nodes(tmp_path / "first") as cluster:
        node = cluster.node("n", devices=4)
        node.register()
        ids = submit_array(cluster, "0-5%2")
        cluster.until(lambda: taking_part(cluster, ids) == ids[:2], "two to take part")
        if stops == "before the release":
            backend = cluster.service.engine.parts.rounds.backend
            cluster.do(lambda: setattr(backend, "_settle", lambda: False))
        done = complete_one(cluster, node, ids)
        if stops == "after it":
            cluster.until(lambda: in_core(cluster, ids[2]), "the release")
        with busy_driver(cluster):  # as a crash would leave it
            shutil.copytree(tmp_path / "first", tmp_path / "second")
    with engine_nodes(tmp_path / "second") as cluster:
        node = cluster.node("n", "two.1", devices=4)
        node.register()
        cluster.until(lambda: in_core(cluster, ids[2]), "the third to take part")
        left = [job for job in ids if job != done]
        while left:
            cluster.until(lambda: len(taking_part(cluster, left)) == min(2, len(left)))
            left.remove(complete_one(cluster, node, left))
        assert {cluster.job(job).state for job in ids} == {"completed"}
