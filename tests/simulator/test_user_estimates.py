import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import ConfigError
from fairlead.model.cluster import SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.options import SimulationOptions
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.simulation_run import SimulationRun
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.user_estimates import UserEstimates

SLOTS = (SlotType("fast"), SlotType("slow"), SlotType("never"))
TABLE = Throughputs(
    SLOTS,
    job_types(
        ("a", 1),
    ),
    np.array([[8.0, 2.0, 0.0]]),
)


def jobs(n: int) -> list[Job]:
    return [Job(JobId(i), "a", 1, 10.0, tenant=f"user-{i % 20}") for i in range(n)]


def test_user_estimates_are_off_by_a_lognormal_factor_and_nobody_estimates_what_cannot_be() -> None:
    message = UserEstimates(lognormal=0.7).about(TABLE)(jobs(2000))
    off = np.log(message[:, :2] / TABLE.rate[0, :2])
    assert (message[:, 2] == 0).all()
    assert off.mean() == pytest.approx(0.0, abs=0.05)
    assert off.std() == pytest.approx(0.7, rel=0.05)
    assert np.corrcoef(off.T)[0, 1] == pytest.approx(0.0, abs=0.1)


def test_errors_of_a_job_may_have_a_part_in_common() -> None:
    message = UserEstimates(lognormal=0.7, common=0.8).about(TABLE)(jobs(2000))
    assert np.corrcoef(np.log(message[:, :2]).T)[0, 1] == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(
    ("types", "message"), [("all", [16.0, 4.0, 0.0]), ("fastest", [16.0, 2.0, 0.0])]
)
def test_a_part_of_the_users_exaggerates(types: str, message: list[float]) -> None:
    user_estimates = UserEstimates.of(f"lognormal=0,exaggerating=0.3,types={types}", seed=4)
    exaggerating = [user_estimates.exaggerates(f"user-{i}") for i in range(20)]
    assert sum(exaggerating) == 6
    got = user_estimates.about(TABLE)(jobs(20))
    assert got[exaggerating].tolist() == [message] * 6
    assert got[np.logical_not(exaggerating)].tolist() == [[8.0, 2.0, 0.0]] * 14


def test_users_of_the_trace_stay_and_the_others_get_one() -> None:
    user_estimates = UserEstimates(users=5, seed=1)
    mine = Arrival(0.0, Job(JobId(1), "a", 1, 10.0, tenant="ann"))
    assert user_estimates.signed(mine) is mine
    got = {
        user_estimates.signed(Arrival(0.0, Job(JobId(i), "a", 1, 10.0))).job.tenant
        for i in range(99)
    }
    assert got == {f"user-{i}" for i in range(5)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lognormal=-1", "lognormal must be a number from 0 to 3, got '-1'"),
        ("sigma=1", "expected KEY=VALUE"),
        ("exaggerating=0.1,exaggerating=0.2", "exaggerating is given twice"),
        ("users=0", "users must be a whole number >= 1"),
        ("types=sometimes", "types must be all or fastest or slowest"),
    ],
)
def test_user_estimates_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        UserEstimates.of(text, 0)


def jct_h(**more: str) -> float:
    given = SimulationInput(
        generate="gavel,interarrival=1900,duration=10800",
        cluster="v100=2,p100=2,k80=2",
        window="10:70",
        user_estimates="lognormal=0.7,exaggerating=0.3",
        **more,  # type: ignore[arg-type]
    )
    jct = given.prepare("las_aware", "default").execute().metrics["avg_jct_s"]
    return float(jct) / 3600


def test_learned_rates_are_nearly_as_good_as_true_ones_where_trust_is_not() -> None:
    oracle, trusting = jct_h(estimator="oracle"), jct_h()
    assert jct_h(estimator="fairlead:known=0") < 1.05 * oracle
    assert trusting > 1.05 * oracle


def test_a_user_who_exaggerates_gains_no_more_than_a_round() -> None:
    """The user of the longest job says that it is ten times as fast as it is: whoever believes that takes it
    for the shortest."""
    types = parse_cluster("only=1").slots
    table = Throughputs(types, tuple(JobType.parse(f"k{i}", 1) for i in range(4)), np.ones((4, 1)))
    rounds = (26, 20, 21, 22)
    arrivals = [
        Arrival(0.0, Job(JobId(i), f"k{i}", 1, 360.0 * n, tenant=f"user-{i}"))
        for i, n in enumerate(rounds)
    ]

    def exaggerates(seed: int) -> bool:
        return UserEstimates(exaggerating=0.25, users=4, seed=seed).exaggerates("user-0")

    seed = next(s for s in range(99) if exaggerates(s))

    def jct_s(factor: float, estimator: str) -> float:
        user_estimates = UserEstimates(
            lognormal=0.0, exaggerating=0.25, factor=factor, users=4, seed=seed
        )
        options = SimulationOptions(
            throughputs=table, estimator=estimator, user_estimates=user_estimates
        )
        run = SimulationRun.of(list(arrivals), parse_cluster("only=1"), "srtf", options)
        jobs = run.execute().jobs
        return float(jobs.filter(jobs["job"] == 0)["jct_s"][0])

    honest = jct_s(1.0, "users")
    assert honest == pytest.approx(360 * sum(rounds))
    assert jct_s(10.0, "users") == pytest.approx(360 * rounds[0])
    assert jct_s(10.0, "fairlead:known=0") >= honest - 360
