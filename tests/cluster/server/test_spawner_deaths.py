"""Who is to blame where the processes that own the ranks die: the job that was there each time."""

import pytest

from fairlead.cluster.protocol.messages import SpawnerDeath
from fairlead.cluster.server.spawner_deaths import (
    SUSPECT_WAIT_S,
    DeathDecision,
    SpawnerDeathJudge,
)

EVIL, ONE, TWO = 7, 3, 9
NOTHING = DeathDecision()


def died(
    judge: SpawnerDeathJudge, number: int, *jobs: int, node: str = "a", now: float = 0.0
) -> dict[int, DeathDecision]:
    death = SpawnerDeath(number=number, jobs=jobs)
    return {job: judge.judge(job, (node, f"{node}.1"), death, now) for job in jobs}


def test_one_death_blames_nobody() -> None:
    judge = SpawnerDeathJudge(1.0)
    assert set(died(judge, 1, EVIL).values()) == {NOTHING}
    assert set(died(judge, 1, EVIL).values()) == {NOTHING}, "it was told of twice"


def test_who_was_there_each_time_is_to_blame_and_nobody_else() -> None:
    judge = SpawnerDeathJudge(1.0)
    died(judge, 1, EVIL, ONE)
    second = died(judge, 1, EVIL, TWO, node="b")
    assert second[TWO] == NOTHING
    assert second[EVIL].blame == (
        "the process that owns the ranks died 2 times while the job ran, "
        "and no other job was there each time"
    )
    third = died(judge, 2, EVIL, ONE)
    assert third[ONE] == NOTHING, "the other one explains both"
    assert third[EVIL].blame


def test_who_is_there_alone_is_told_from_who_runs_beside_it() -> None:
    judge = SpawnerDeathJudge(1.0)
    died(judge, 1, EVIL, ONE)
    alike = died(judge, 2, EVIL, ONE)
    assert sum(verdict.wait_s > SUSPECT_WAIT_S for verdict in alike.values()) == 1
    again = died(judge, 3, EVIL, ONE)
    assert {job: v.wait_s > 0 for job, v in again.items()} == {
        job: v.wait_s == 0 for job, v in alike.items()
    }, "the other one waits"
    third = died(judge, 4, EVIL, ONE)
    assert max(v.wait_s for v in third.values()) > max(v.wait_s for v in alike.values())
    assert died(judge, 5, EVIL)[EVIL].blame


@pytest.mark.parametrize("suspects", [2, 3, 5, 6, 8, 13])
def test_few_deaths_tell_one_of_many_that_were_always_there(suspects: int) -> None:
    for evil in range(suspects):
        judge, waiting, deaths, ran = SpawnerDeathJudge(1.0), set[int](), 0, []
        blamed: set[int] = set()
        while evil not in blamed:
            there = [job for job in range(suspects) if job not in waiting]
            if evil in waiting:  # nobody dies, until all that wait are back
                waiting.clear()
                continue
            deaths += 1
            ran.append(len(there))
            found = died(judge, deaths, *there)
            waiting |= {job for job, verdict in found.items() if verdict.wait_s}
            blamed |= {job for job, verdict in found.items() if verdict.blame}
        assert blamed == {evil}
        assert deaths <= 3 + 2 * (suspects - 1).bit_length()
        assert set(found[evil].cleared) >= waiting - {evil}, "they have waited for it"
        assert max(ran[2:]) >= suspects // 2, "half of them go on meanwhile"


def test_deaths_of_long_ago_do_not_count() -> None:
    judge = SpawnerDeathJudge(1.0)
    died(judge, 1, ONE)
    assert died(judge, 2, ONE, now=1e5)[ONE] == NOTHING
