import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.estimation.prior import Prior, Sigmas
from fairlead.model.cluster import SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.throughput_tables import builtin_throughputs

SLOTS = (SlotType("fast"), SlotType("slow"))


def table(rows: dict[tuple[str, int], list[float]]) -> Throughputs:
    return Throughputs(SLOTS, job_types(*rows), np.array(list(rows.values())))


def test_what_the_table_has_is_believed() -> None:
    known = table({("a", 1): [10.0, 2.0], ("b", 1): [30.0, 9.0]})
    prior = Prior(known, SLOTS)
    got = prior.job_type(JobType.parse("a", 1))
    assert np.exp(got.mean) == pytest.approx([10.0, 2.0], rel=0.01)
    assert np.sqrt(np.diag(got.covariance(prior.root))).max() < 0.02


@pytest.mark.parametrize(
    ("spread", "rel"),
    [
        (Sigmas(model_type=1.0, job_type_accelerator=0.001, job_type_slot=0.001), 0.01),
        (Sigmas(), 0.4),
    ],
)
def test_another_scale_factor_has_the_ratio_of_types_that_one_device_has(
    spread: Sigmas, rel: float
) -> None:
    """Sia's formula, rate(fast, 4) = rate(slow, 4) x rate(fast, 1) / rate(slow, 1), where ratios are all the
    model's; else it is drawn to what is usual."""
    rows = {
        ("a", 1): [12.0, 2.0],
        ("a", 4): [0.0, 7.0],
        ("b", 1): [10.0, 5.0],
        ("c", 1): [4.0, 2.0],
    }
    got = Prior(table(rows), SLOTS, spread).job_type(JobType.parse("a", 4))
    assert np.exp(got.mean) == pytest.approx([42.0, 7.0], rel=rel)
    assert np.exp(got.mean[0] - got.mean[1]) > 3.0


def test_an_unknown_model_has_the_ratio_that_most_have_and_an_unknown_speed() -> None:
    known = table({(name, 1): [3.0 * i, 1.0 * i] for i, name in enumerate("abcdefgh", 1)})
    prior = Prior(known, SLOTS)
    got = prior.job_type(JobType.parse("unheard of", 1))
    cov = got.covariance(prior.root)
    assert np.exp(got.mean[0] - got.mean[1]) == pytest.approx(3.0, rel=0.1)
    assert np.sqrt(cov[0, 0]) > 1.0
    assert np.sqrt(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]) < 0.6


def test_a_batch_size_between_two_lies_between_them() -> None:
    rows = {
        ("net (batch size 16)", 1): [8.0, 2.0],
        ("net (batch size 64)", 1): [2.0, 0.5],
        ("other", 1): [5.0, 1.0],
    }
    got = Prior(table(rows), SLOTS).job_type(JobType.parse("net (batch size 32)", 1))
    assert 3.0 < np.exp(got.mean[0]) < 5.5


def test_nothing_is_known_without_a_table() -> None:
    prior = Prior(None, SLOTS)
    got = prior.job_type(JobType.parse("a (batch size 64)", 1))
    assert got.mean.tolist() == [0.0, 0.0]
    assert np.sqrt(np.diag(got.covariance(prior.root))).min() > 3.0


def test_kinds_of_the_catalogue_that_are_left_out_are_predicted_from_their_models() -> None:
    whole = builtin_throughputs()
    slots = tuple(SlotType(name) for name in ("k80", "p100", "v100"))
    rates = whole.columns(slots)
    left_out = [
        i for i, one in enumerate(rates.job_types) if one.batch_size == 64 and one.scale_factor == 1
    ]
    left_out = [i for i in left_out if (rates.rate[i] > 0).all()]
    keep = [i for i in range(len(rates.job_types)) if i not in left_out]
    known = Throughputs(slots, tuple(rates.job_types[i] for i in keep), rates.rate[keep])
    prior = Prior(known, slots)
    off = [
        np.abs(prior.job_type(rates.job_types[i]).mean - np.log(rates.rate[i])) for i in left_out
    ]
    assert len(off) >= 3
    assert np.median(off) < 0.35
