"""The least that a job takes from now on, before which no end is told."""

from tests.cluster.server.test_explain import view

from fairlead.cluster.server.least_times import least_of


def test_the_steps_that_are_left_take_their_time() -> None:
    job = view(total_steps=60.0, steps=10.0, measured_rate=2.0, rates={"v100": 1.0})
    assert least_of(job) == 25.0
    faster = view(total_steps=60.0, steps=10.0, measured_rate=2.0, rates={"v100": 1.0, "h": 2.0})
    assert least_of(faster) == 12.5, "it may go on where it is faster"


def test_who_has_not_run_yet_takes_no_less_than_at_the_rates_believed() -> None:
    job = view(
        state="waiting", total_steps=6_000.0, rates={"v100": 100.0, "k80": 20.0}, measured_rate=None
    )
    assert least_of(job) == 60.0


def test_where_nobody_has_measured_nothing_is_known() -> None:
    assert least_of(view(measured_rate=None)) == 0.0
