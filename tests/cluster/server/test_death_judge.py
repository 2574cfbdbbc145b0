"""Who is to blame where agents and spawners die: the job that was there each time."""

from dataclasses import replace

import pytest

from fairlead.cluster.protocol.messages import SpawnerDeath
from fairlead.cluster.server.death_judge import SUSPECT_WAIT_S, DeathDecision, DeathJudge

EVIL, ONE, TWO = 7, 3, 9
NOTHING = DeathDecision()


def died(
    judge: DeathJudge, number: int, *jobs: int, node: str = "a", now: float = 0.0
) -> dict[int, DeathDecision]:
    death = SpawnerDeath(number=number, jobs=jobs)
    key = judge.note_spawner((node, f"{node}.1"), death, now)
    return {job: replace(judge.judge(job, key), node="") for job in jobs}


def lost(
    judge: DeathJudge, number: int, *jobs: int, node: str, now: float, one_node: bool = True
) -> dict[int, DeathDecision]:
    """The agent of a node died, and was heard of last at this time."""
    key = (node, f"{node}.1", number)
    judge.note_agent(key, jobs, now=now, last_seen_s=now, moment_s=5.0)
    return {job: judge.judge(job, key, one_node=one_node) for job in jobs}


def test_one_death_blames_nobody() -> None:
    judge = DeathJudge(1.0)
    assert set(died(judge, 1, EVIL).values()) == {NOTHING}
    assert set(died(judge, 1, EVIL).values()) == {NOTHING}, "it was told of twice"


def test_who_was_there_each_time_is_to_blame_and_nobody_else() -> None:
    judge = DeathJudge(1.0)
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
    judge = DeathJudge(1.0)
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
        judge, waiting, deaths, ran = DeathJudge(1.0), set[int](), 0, []
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
    judge = DeathJudge(1.0)
    died(judge, 1, ONE)
    assert died(judge, 2, ONE, now=1e5)[ONE] == NOTHING


def test_a_job_that_was_there_when_agents_of_two_nodes_died_is_blamed_and_given_up_at_the_third() -> (
    None
):
    judge = DeathJudge(1.0)
    assert lost(judge, 1, EVIL, ONE, node="a", now=0.0) == dict.fromkeys(
        (EVIL, ONE), DeathDecision("a")
    )
    second = lost(judge, 1, EVIL, TWO, node="b", now=100.0)
    assert second[TWO] == DeathDecision("b")
    assert second[EVIL].blame == (
        "an agent died or fell silent 2 times while the job ran (on a, b), "
        "and no other job was there each time"
    )
    assert not second[EVIL].hopeless
    third = lost(judge, 1, EVIL, node="c", now=200.0)[EVIL]
    assert third.hopeless


def test_a_job_on_several_nodes_is_never_given_up_at_once_for_nodes_that_die() -> None:
    judge = DeathJudge(1.0)
    for i, node in enumerate("abcd"):
        found = lost(judge, 1, EVIL, node=node, now=100.0 * i, one_node=False)[EVIL]
        assert not found.hopeless
    assert found.blame


def test_one_node_whose_agent_dies_is_suspected_before_the_job_that_is_always_there() -> None:
    judge = DeathJudge(1.0)
    for number in range(3):
        found = lost(judge, number, ONE, node="a", now=100.0 * number)
        assert found[ONE] == DeathDecision("a")
    found = lost(judge, 3, ONE, node="a", now=300.0)
    assert found[ONE].blame, "it was there four times"
    assert not found[ONE].hopeless, "but on one node alone"


def test_what_ends_agents_of_several_nodes_at_one_moment_is_no_job_of_one_of_them() -> None:
    judge = DeathJudge(1.0)
    for i in range(5):  # the network of two nodes goes down again and again, and their jobs change
        first, second = (ONE, TWO) if i % 2 else (TWO, ONE)
        now = 100.0 * i
        assert lost(judge, i, first, node="a", now=now)[first].blame == ""
        assert lost(judge, i, second, node="b", now=now + 3.0)[second].blame == ""


def test_a_gang_that_ends_the_agents_of_all_its_nodes_at_one_moment_is_one_death() -> None:
    judge = DeathJudge(1.0)
    lost(judge, 1, EVIL, ONE, node="a", now=0.0)
    assert lost(judge, 1, EVIL, TWO, node="b", now=1.0)[EVIL].blame == ""
    lost(judge, 2, EVIL, TWO, node="a", now=100.0)
    assert lost(judge, 2, EVIL, ONE, node="b", now=101.0)[EVIL].blame


def test_where_agents_die_everywhere_no_job_is_to_blame() -> None:
    judge = DeathJudge(1.0)  # a new version that crashes now and then
    for i in range(12):
        found = lost(judge, i, i % 4, node="abcde"[i % 5], now=100.0 * i)
        assert not any(one.blame or one.wait_s for one in found.values())


def test_who_ends_agents_and_spawners_is_blamed_for_both() -> None:
    judge = DeathJudge(1.0)
    died(judge, 1, EVIL, ONE)
    found = lost(judge, 2, EVIL, TWO, node="b", now=100.0)
    assert found[TWO] == DeathDecision("b")
    assert found[EVIL].blame.startswith("an agent, or its spawner, died or fell silent 2 times")
