"""Deaths of the process that owns the ranks: what they say of the node."""

from fairlead.cluster.agent.spawner_deaths import SpawnerDeaths


def test_deaths_with_nobody_there_are_the_nodes() -> None:
    deaths = SpawnerDeaths()
    for now in range(3):
        assert deaths.problem(float(now)) == ""
        assert deaths.note([], float(now)).number == now + 1
    assert deaths.problem(3.0) == "the process that owns the ranks died 3 times within 10 min"
    assert deaths.problem(700.0) == ""


def test_deaths_at_which_one_job_was_there_are_not() -> None:
    deaths = SpawnerDeaths()
    for other in range(6):
        assert deaths.note([100, other], 1.0).jobs == (other, 100)
    assert deaths.problem(2.0) == ""


def test_deaths_with_another_job_each_time_are_the_nodes() -> None:
    deaths = SpawnerDeaths()
    for job in range(3):
        deaths.note([job], 1.0)
    assert deaths.problem(2.0)
