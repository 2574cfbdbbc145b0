"""No two open jobs save to one directory: the second is refused, and nothing of it is written."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cluster.cluster import running
from tests.cluster.server_nodes import ADMIN, WAIT_S, EngineNodes, busy_driver, engine_nodes

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import InputError

SPEC = JobSpec(command=("x",), total_steps=1000, rates={"v100": 1.0})


def spec(path: str, name: str = "") -> JobSpec:
    return replace(SPEC, checkpoint_dir=path, name=name)


def refused(cluster: EngineNodes, *specs: JobSpec, tenant: str = "") -> str:
    before = [row.id for row in cluster.service.store.open_jobs()]
    with pytest.raises(ConflictError) as conflict:
        cluster.service.submit(replace(ADMIN, user="eve"), list(specs), tenant)
    assert [row.id for row in cluster.service.store.open_jobs()] == before
    return str(conflict.value)


@pytest.mark.parametrize("path", ["/c/one", "/c//one", "/c/one/", "/c/./one", "//c/one"])
def test_a_directory_is_that_of_one_open_job(tmp_path: Path, path: str) -> None:
    with engine_nodes(tmp_path) as cluster:
        job, *_ = cluster.service.submit(ADMIN, [spec("/c/one", "first"), spec("/c/one/below")])
        assert refused(cluster, spec(path, "second")) == (
            f"job: checkpoint_dir: '{path}' of 'second' is that of job {job} ('first'), which has not "
            "ended: they would take each other's checkpoints; name another one"
        )


def test_the_one_of_all_other_jobs_is_not_that_of_one(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        root = cluster.service.engine.state.checkpoints
        assert refused(cluster, spec(f"{root}/")) == (
            f"job: checkpoint_dir: '{root}/' is that of all jobs that name none: they would take each "
            "other's checkpoints; name another one"
        )
        assert cluster.service.submit(ADMIN, [spec(f"{root}/mine")])


def test_the_servers_own_directory_is_no_jobs(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        state = cluster.service.store.directory.absolute()
        for path in (state, state / "logs", f"{state}//samples.db/./x"):
            with pytest.raises(InputError) as refused:
                cluster.service.submit(ADMIN, [spec(str(path))])
            assert str(refused.value) == (
                f"job: checkpoint_dir: '{path}' is in the server's state directory; name another one, "
                "or none"
            )
        assert cluster.service.submit(ADMIN, [spec(f"{state}/checkpoints/mine"), spec(f"{state}2")])


def test_it_is_free_again_once_its_job_has_ended(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        (first,) = cluster.service.submit(ADMIN, [spec("/c")])
        cluster.service.pause(ADMIN, first)
        assert f"job {first}, which" in refused(cluster, spec("/c"))
        cluster.service.cancel(ADMIN, first)
        cluster.until(lambda: cluster.job(first).state == "cancelled")
        (second,) = cluster.service.submit(ADMIN, [spec("/c")])
        assert f"job {second}, which" in refused(cluster, spec("/c"))


def test_two_jobs_of_one_submission_share_none_either(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        said = refused(cluster, spec("/a"), spec("/b", "mine"), spec("/b/"))
        assert said == (
            "specs[2]: checkpoint_dir: '/b/' is that of specs[1] ('mine') as well: they would take each "
            "other's checkpoints; name another one"
        )
        assert len(cluster.service.submit(ADMIN, [spec("/a"), spec("/b"), SPEC, SPEC])) == 4


def test_the_folder_that_the_cluster_has_made_for_a_job_is_no_other_ones(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        job = cluster.submit()
        row = cluster.service.store.job(job)
        assert row is not None
        assert f"is that of job {job}, which" in refused(cluster, spec(row.checkpoint_dir))


def test_nothing_is_told_of_jobs_of_another_tenant(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.submit(ADMIN, [spec("/c", "secret")], "red")
        said = refused(cluster, spec("/c"), tenant="blue")
        assert "'/c' is that of a job of another tenant, which has not ended" in said
        assert "secret" not in said


def test_the_same_submission_again_is_the_same_jobs(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        first = cluster.service.submit(ADMIN, [spec("/c")], key="k")
        assert cluster.service.submit(ADMIN, [spec("/c")], key="k") == first
        with pytest.raises(ConflictError, match="is that of job"):
            cluster.service.submit(ADMIN, [spec("/c")], key="another")
        cluster.service.cancel(ADMIN, first[0])
        cluster.until(lambda: cluster.job(first[0]).state == "cancelled")
        assert cluster.service.submit(ADMIN, [spec("/c")], key="another") != first
        assert cluster.service.submit(ADMIN, [spec("/c")], key="k") == first


def test_a_restarted_server_knows_whose_directories_are_whose(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        (job,) = cluster.service.submit(ADMIN, [spec("/c")])
    with engine_nodes(tmp_path) as cluster:
        assert f"is that of job {job}, which" in refused(cluster, spec("/c"))


def test_also_while_the_driver_is_busy(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster, ThreadPoolExecutor() as pool:
        cluster.node("n").register()
        with busy_driver(cluster):
            (job,) = cluster.service.submit(ADMIN, [spec("/c")])  # its driver has not heard of it
            assert f"is that of job {job}, which" in refused(cluster, spec("/c"))
            both = [pool.submit(cluster.service.submit, ADMIN, [spec("/d")]) for _ in range(2)]
        problems = [one.exception(WAIT_S) for one in both]
        assert sorted(type(one).__name__ for one in problems) == ["ConflictError", "NoneType"]


def test_the_api_answers_with_409(tmp_path: Path) -> None:
    with running(tmp_path, agents={}) as cluster, cluster.client() as client:
        (job,) = client.submit([spec("/c", "a")], key="k")
        assert client.submit([spec("/c", "a")], key="k") == [job]
        with pytest.raises(
            InputError, match=rf"checkpoint_dir: '/c' of 'b' is that of job {job} \('a'\)"
        ):
            client.submit([spec("/c", "b")])
        with pytest.raises(InputError, match=r"specs\[1\]: checkpoint_dir"):
            client.submit([spec("/d"), spec("/d")])
        assert [one.id for one in client.jobs()] == [job]
