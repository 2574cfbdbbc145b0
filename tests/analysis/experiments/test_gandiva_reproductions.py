"""Gandiva's experiments: what they measure, and that small ones show what they shall."""

from pathlib import Path

import numpy as np
import pytest
from tests.analysis.experiments.made_up import MadeUpContext, complete, rows_of

from fairlead.analysis.experiments.published import gandiva_cluster, gandiva_models, gandiva_shared
from fairlead.analysis.experiments.published import gandiva_search as search
from fairlead.analysis.experiments.reproduce import reproductions
from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival, Job, JobId
from fairlead.policies.search.stopping import CurveFit
from fairlead.simulator.search.recorded_curves import read_curves


def test_they_are_all_there() -> None:
    names = [name for name in reproductions() if name.startswith("gandiva-")]
    assert names == [
        "gandiva-100",
        "gandiva-180",
        "gandiva-explored",
        "gandiva-search",
        "gandiva-shared",
    ]


def test_pairs_do_what_the_published_gains_say() -> None:
    table = gandiva_models.throughputs()
    assert table.colocated_rate is not None
    for k, model in enumerate(gandiva_models.MODELS):
        row = k * len(gandiva_models.SCALES)
        together = 2 * table.colocated_rate[row, row, 0] / table.rate[row, 0]
        assert together == pytest.approx(min(2.0, 1.0 + model.gain))


def test_feedback_and_use_are_measured_within_a_round() -> None:
    """Two jobs on one device, one after the other; a hundred mini-batches take 25 s."""
    jobs = [Arrival(0.0, Job(JobId(i), "LSTM", 1, 14_400.0)) for i in range(2)]
    seen = gandiva_cluster.FeedbackObserver(1, {"LSTM": 0.5})
    for arrival in jobs:
        seen.submit(arrival)
    simulate(
        jobs,
        Cluster.of({"p40": 1}),
        gandiva_cluster.BASELINE,
        throughputs=gandiva_models.throughputs(),
        observers=[seen],
        round_s=60.0,
    )
    assert seen.feedback_s == {0: pytest.approx(25.0), 1: pytest.approx(3600 + 25.0)}
    assert seen.utilisation[0] == pytest.approx(50 * (120 - 20) / 180)
    assert seen.utilisation[1] == pytest.approx(50.0)


def test_first_feedback_comes_much_sooner_on_a_quarter_of_the_cluster(tmp_path: Path) -> None:
    found = gandiva_cluster.gandiva_180(MadeUpContext(complete, folder=tmp_path))
    feedback = rows_of(found, "Mean time to 100 mini-batches")
    assert feedback["shorter by"].ours is not None
    assert feedback["shorter by"].ours >= 77.0
    used = rows_of(found, "Utilisation")["gandiva over baseline, minutes 20 to 120"]
    assert used.ours is not None
    assert used.ours > 1.1


def test_the_first_good_configuration_is_at_its_place() -> None:
    curves = read_curves()
    for place in search.PLACES:
        order = search.ordered(curves, place, 3)
        good = curves.reach(search.TARGET)[order]
        assert len(np.unique(order)) == search.CONFIGURATIONS
        assert good.argmax() == place - 1


@pytest.mark.parametrize(("devices", "least"), [(4, 7.0), (16, 6.0)])
def test_a_search_reaches_its_target_much_sooner(devices: int, least: float) -> None:
    curves = read_curves()
    base_s, ours_s, _ = search.times_to_target(
        curves.ordered(search.ordered(curves, 365, 0)), devices
    )
    assert base_s / ours_s >= least


def test_many_more_configurations_are_explored(tmp_path: Path) -> None:
    found = search.gandiva_explored(MadeUpContext(complete, folder=tmp_path))
    rows = rows_of(found, "Configurations explored")
    for devices in search.DEVICES:
        gain = rows[f"gandiva over baseline, {devices} devices"].ours
        assert gain is not None
        assert gain > 5


def test_a_search_as_one_entity_costs_the_others_next_to_nothing(tmp_path: Path) -> None:
    """It is more than twice as fast as the baseline, and the worst rho of every tenant is at most 1.05 of
    what it is without the search."""
    fair = gandiva_shared.entities(tmp_path)
    one = gandiva_shared.SharedSearch(
        gandiva_shared.chosen_curves(read_curves(), 1), gandiva_shared.background(0.6, 1)
    )
    made, base_s = one.run(fair, CurveFit()), one.run("fifo", None).reached_s
    assert base_s is not None
    assert made.reached_s is not None
    assert base_s / made.reached_s > 2
    ratios = gandiva_shared.worst_rho_ratios(one.without(fair), made.result)
    assert set(ratios) == {"a", "b", "c"}
    assert max(ratios.values()) <= 1.05
