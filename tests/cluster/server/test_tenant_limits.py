"""A tenant cannot fill the cluster with jobs."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cluster.server_nodes import ADMIN, EngineNodes, engine_nodes

from fairlead.cluster.front.facade import ConflictError, TooManyError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, StudySpec
from fairlead.cluster.server.tenant_limits import TenantAdmission, TenantLimits

ANN = Caller(user="ann", tenant="apes", role="user")
BOB = Caller(user="bob", tenant="bees", role="user")
SPEC = JobSpec(command=("x",), total_steps=10, rates={"v100": 1.0})


def submit(cluster: EngineNodes, caller: Caller, jobs: int, key: str = "") -> list[int]:
    return cluster.service.submit(caller, [SPEC] * jobs, key=key)


def test_a_tenant_has_no_more_open_jobs_than_it_may(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(open_jobs=5)) as cluster:
        first = submit(cluster, ANN, 3, key="k")
        submit(cluster, ANN, 2)
        why = (
            "tenant 'apes': may have 5 jobs that have not ended; it has 5, and 1 more is submitted"
        )
        with pytest.raises(ConflictError) as refused:
            submit(cluster, ANN, 1)
        assert str(refused.value) == why
        assert submit(cluster, ANN, 3, key="k") == first, "it is asked again"
        submit(cluster, BOB, 5)
        submit(cluster, ADMIN, 9)
        cluster.service.cancel(ANN, first[0])
        cluster.until(lambda: cluster.job(first[0]).state == "cancelled")
        cluster.until(lambda: _is_taken(cluster, ANN))
        with pytest.raises(ConflictError):
            submit(cluster, ANN, 1)


def _is_taken(cluster: EngineNodes, caller: Caller) -> bool:
    try:
        return bool(submit(cluster, caller, 1))
    except ConflictError:
        return False


def test_after_a_restart_open_jobs_count_as_before(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(open_jobs=5)) as cluster:
        submit(cluster, ANN, 4)
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(open_jobs=5)) as cluster:
        with pytest.raises(ConflictError):
            submit(cluster, ANN, 2)
        submit(cluster, ANN, 1)


def test_jobs_come_no_faster_than_they_may() -> None:
    now = 100.0
    limits = TenantLimits(jobs_per_minute=60)
    admission = TenantAdmission(limits, lambda _: 0, lambda: now)
    admission.check("apes", 50)
    with pytest.raises(
        TooManyError, match="tenant 'apes': may submit 60 jobs a minute; 20 more in 10 s"
    ):
        admission.check("apes", 20)
    admission.check("bees", 60)
    now += 10.0
    admission.check("apes", 20)
    with pytest.raises(TooManyError):
        admission.check("apes", 1)
    with pytest.raises(ConflictError, match="may submit 60 jobs a minute, and submits 61 at once"):
        admission.check("cats", 61)
    now += 60.0
    admission.check("apes", 60)


def test_descriptions_come_in_no_more_bytes_than_they_may(tmp_path: Path) -> None:
    """Cancelled jobs are kept: who submits and cancels large ones for ever would fill the disk."""
    large = replace(SPEC, command=("x", "a" * 10_000))
    array = replace(large, array="0-5")
    study = StudySpec(
        metric="loss", parameters={"x": ParameterRange(low=0.0, high=1.0)}, job=large, trials=1,
        sampler="random",
    )  # fmt: skip
    limits = TenantLimits(bytes_per_minute=70_000)
    with engine_nodes(tmp_path, tenant_limits=limits) as cluster:
        service = cluster.service
        first = service.submit(ANN, [array], key="k")
        for job in first:
            service.cancel(ANN, job)
        too_many = (
            r"tenant 'apes': may submit 70,000 bytes of descriptions a minute; [\d,]+ more in"
        )
        with pytest.raises(TooManyError, match=too_many):
            service.submit(ANN, [large])
        with pytest.raises(TooManyError, match=too_many):
            service.submit_search(ANN, study)
        assert service.submit(ANN, [array], key="k") == first, "it is asked again"
        with pytest.raises(ConflictError, match=r"70,000 bytes of .*, and submits 8\d,\d+ at once"):
            service.submit(BOB, [replace(array, array="0-7")])
        service.submit(BOB, [array])
        service.submit(ADMIN, [replace(array, array="0-7")])
        service.submit_search(ADMIN, study)


def test_what_is_refused_for_one_limit_uses_up_nothing_of_another() -> None:
    limits = TenantLimits(jobs_per_minute=10, bytes_per_minute=1_000)
    admission = TenantAdmission(limits, lambda _: 0, lambda: 0.0)
    for _ in range(20):
        with pytest.raises(ConflictError, match="bytes of descriptions"):
            admission.check("apes", 1, [replace(SPEC, command=("a" * 1_000,))])
    admission.check("apes", 10)


def test_a_search_whose_trials_can_never_be_submitted_is_refused(tmp_path: Path) -> None:
    """It was taken, and waited for ever."""
    study = StudySpec(
        metric="loss", parameters={"x": ParameterRange(type="categorical", choices=("a" * 200, "b"))},
        job=replace(SPEC, command=("x", "{x}" * 100)), trials=1, sampler="random",
    )  # fmt: skip
    slow = replace(study, job=replace(SPEC, grace_s=601.0))
    limits = TenantLimits(bytes_per_minute=10_000, grace_s=600.0)
    with engine_nodes(tmp_path, tenant_limits=limits) as cluster:
        service = cluster.service
        with pytest.raises(ConflictError, match=r"10,000 bytes .*, and a trial, .*, has 20,\d+"):
            service.submit_search(ANN, study)
        with pytest.raises(ConflictError, match="grace_s: a job may take 600 s to end"):
            service.submit_search(ANN, slow)
        service.submit_search(ANN, replace(study, job=replace(study.job, command=("x", "{x}"))))
        service.submit_search(ADMIN, study)


def test_a_user_changes_jobs_no_more_often_than_they_may(tmp_path: Path) -> None:
    """Each change is written down: whoever changed a weight to and fro filled the disk."""
    now = 100.0
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(changes_per_minute=6)) as cluster:
        service = cluster.service
        service._tenants._monotonic = lambda: now
        (job,) = submit(cluster, ANN, 1, key="k")
        study = StudySpec(
            metric="loss", parameters={"x": ParameterRange(low=0.0, high=1.0)}, job=SPEC, trials=1,
            sampler="random",
        )  # fmt: skip
        search = service.submit_search(ANN, study, key="s")
        service.set_weight(ANN, job, 2.0)
        service.pause(ANN, job)
        service.resume(ANN, job)
        assert submit(cluster, ANN, 1, key="k") == [job]
        assert service.submit_search(ANN, study, key="s") == search
        service.stop_search(ANN, search)
        why = "user 'ann': may ask for 6 changes a minute; 1 more in 10 s"
        asked = (
            lambda: service.set_weight(ANN, job, 3.0),
            lambda: service.pause(ANN, job),
            lambda: service.resume(ANN, job),
            lambda: service.cancel(ANN, job),
            lambda: service.stop_search(ANN, search),
            lambda: service.submit(ANN, [SPEC], key="k"),
            lambda: service.submit_search(ANN, study, key="s"),
        )
        for ask in asked:
            with pytest.raises(TooManyError) as refused:
                ask()
            assert (str(refused.value), refused.value.wait_s) == (why, 10)
        assert cluster.job(job).weight == 2.0
        service.set_weight(ADMIN, job, 4.0)
        service.set_weight(replace(ANN, user="amy"), job, 5.0)
        submit(cluster, ANN, 1)
        now += 10.0
        service.cancel(ANN, job)


def test_an_array_is_cancelled_as_one_change(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(changes_per_minute=1)) as cluster:
        cluster.service._tenants._monotonic = lambda: 100.0
        ids = cluster.service.submit(ANN, [replace(SPEC, array="0-5")])
        assert cluster.service.cancel_array(ANN, ids[0]) == ids
        with pytest.raises(TooManyError):
            cluster.service.cancel_array(ANN, ids[0])


def test_without_limits_all_are_taken() -> None:
    admission = TenantAdmission(TenantLimits(), lambda _: 10**9)
    admission.check("apes", 10**9)


def test_a_job_may_not_take_for_ever_to_end(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, tenant_limits=TenantLimits(grace_s=600.0)) as cluster:
        for name in ("grace_s", "finish_grace_s"):
            with pytest.raises(ConflictError) as refused:
                cluster.service.submit(ANN, [SPEC, replace(SPEC, **{name: 601.0})])
            assert str(refused.value) == (
                f"tenant 'apes': {name}: a job may take 600 s to end once it is told to, got 601"
            )
        assert cluster.service.submit(ANN, [replace(SPEC, grace_s=600.0)])
        assert cluster.service.submit(ADMIN, [replace(SPEC, grace_s=86_400.0)])
