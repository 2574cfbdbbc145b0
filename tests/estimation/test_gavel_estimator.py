"""Gavel's estimator: whom a job is taken for, and what pairs are believed to do."""

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import ConfigError
from fairlead.estimation.gavel_estimator import (
    Fingerprints,
    GavelEstimator,
    GavelEstimatorOptions,
)
from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.estimation.registry import make_estimator, parse
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.throughputs import Throughputs

N = 8
SLOTS = (SlotType("k80"), SlotType("v100"))
CLUSTER = Cluster((Node("a", "k80", 1), Node("b", "v100", 1)))


def slowdown(seed: int = 0) -> np.ndarray:
    """(families, families, types) of rank 2 in each type, all different."""
    rng = np.random.default_rng(seed)
    own, other = rng.uniform(0.3, 1.0, (N, 2)), rng.uniform(0.2, 1.0, (N, 2, 2))
    return np.asarray(np.einsum("ir,krt->ikt", own, other) / 2)


def table(seed: int = 0) -> Throughputs:
    rate = np.random.default_rng(seed + 1).uniform(1.0, 10.0, (N, 2))
    kinds = tuple((f"net {i}", 1) for i in range(N))
    return Throughputs(SLOTS, job_types(*kinds), rate, slowdown(seed) * rate[:, None, :])


def estimator(spec: str) -> GavelEstimator:
    made = make_estimator(spec, table(), CLUSTER, 0)
    assert isinstance(made, GavelEstimator)
    return made


def submit(made: GavelEstimator, **families: int) -> Beliefs:
    jobs = [Job(JobId(int(name[1:])), f"net {k}", 1, 1e6) for name, k in families.items()]
    made.submitted(jobs, None)
    message = made.beliefs()
    assert message is not None
    return message


def ran(one: int, two: int, rates: tuple[float, float], slot: int = 1) -> Measurement:
    seconds = np.full(2, 100.0)
    failed = np.full(2, rates == (0.0, 0.0))
    jobs, partner = np.array([one, two]), np.array([two, one])
    return Measurement(
        0.0, jobs, np.full(2, slot), np.array(rates) * seconds, seconds, partner, failed
    )


def test_with_all_families_as_references_and_all_measured_a_job_is_what_it_is() -> None:
    prints = Fingerprints(slowdown(), GavelEstimatorOptions(), 4)
    assert prints.references.tolist() == list(range(N))
    assert [prints.match(family) for family in range(N)] == list(range(N))


def test_the_number_of_references_is_honoured() -> None:
    prints = Fingerprints(slowdown(), GavelEstimatorOptions(references=3), 4)
    assert len(set(prints.references.tolist())) == 3
    assert {prints.match(family) for family in range(N)} <= set(prints.references.tolist())


def test_a_reference_is_known_by_what_it_was_measured_beside() -> None:
    prints = Fingerprints(slowdown(), GavelEstimatorOptions(references=5), 4)
    assert [prints.match(k) for k in prints.references.tolist()] == prints.references.tolist()


def test_the_defect_measures_beside_the_wrong_families() -> None:
    """With fewer references than families; with all of them there is no difference."""
    references = Fingerprints(
        slowdown(), GavelEstimatorOptions(references=5), 4
    ).references.tolist()
    broken = Fingerprints(slowdown(), GavelEstimatorOptions(references=5, defect=True), 4)
    assert [broken.match(k) for k in references] != references
    whole = Fingerprints(slowdown(), GavelEstimatorOptions(defect=True), 4)
    assert [whole.match(family) for family in range(N)] == list(range(N))


def test_a_fifth_measured_finds_most_references() -> None:
    """Completion does better than chance, which is right once in five."""
    prints = Fingerprints(slowdown(3), GavelEstimatorOptions(references=5, profiling=0.4), 4)
    tries = [(k, prints.match(k)) for k in prints.references.tolist() * 20]
    assert sum(k == found for k, found in tries) > 60


def test_nothing_measured_takes_a_job_for_any_reference() -> None:
    prints = Fingerprints(slowdown(), GavelEstimatorOptions(references=4, profiling=0.0), 4)
    assert {prints.match(0) for _ in range(60)} == set(prints.references.tolist())


def test_pairs_are_as_much_slower_as_their_references() -> None:
    made, rates = estimator("gavel"), table()
    message = submit(made, j1=0, j2=3)
    assert message.rate.tolist() == rates.rate[[0, 3]].tolist()
    names = message.name.tolist()
    at = [sorted(pair) for pair in message.pair.tolist()].index(sorted(names))
    turned = message.pair[at].tolist() != names
    colocated_rate = message.colocated_rate[at][:, ::-1] if turned else message.colocated_rate[at]
    assert rates.colocated_rate is not None
    assert np.allclose(colocated_rate[:, 0], rates.colocated_rate[0, 3])
    assert np.allclose(colocated_rate[:, 1], rates.colocated_rate[3, 0])


def test_jobs_that_nothing_tells_apart_share_a_belief() -> None:
    made = estimator("gavel")
    first = submit(made, j1=2, j2=2)
    assert len(first.belief) == 1
    again = submit(made, j3=2)
    assert again.name.tolist() == first.belief.tolist()
    assert not len(again.belief)


def test_what_a_pair_did_takes_the_place_of_the_estimate() -> None:
    made = estimator("gavel")
    submit(made, j1=0, j2=3, j3=3)
    made.measured(ran(1, 2, (0.7, 0.4)))
    message = made.beliefs()
    assert message is not None
    assert set(message.jobs.tolist()) == {
        1,
        2,
    }  # they are told apart from others of their kinds now
    mine = message.name.tolist()
    at = [sorted(pair) for pair in message.pair.tolist()].index(sorted(mine))
    order = [
        message.pair[at].tolist().index(name) for name in (mine[message.jobs.tolist().index(1)],)
    ]
    assert message.colocated_rate[at, 1, order[0]] == 0.7
    assert message.colocated_rate[at, 1, 1 - order[0]] == 0.4
    made.measured(ran(1, 2, (0.7, 0.4)))
    assert made.beliefs() is None  # nothing new


def test_a_pair_that_failed_cannot_run() -> None:
    made = estimator("gavel")
    submit(made, j1=0, j2=3)
    made.measured(ran(1, 2, (0.7, 0.4)))
    made.beliefs()
    made.measured(ran(1, 2, (0.0, 0.0)))
    message = made.beliefs()
    assert message is not None
    assert not len(message.belief)
    assert message.colocated_rate[0, 1].tolist() == [0.0, 0.0]


def test_jobs_that_left_are_forgotten() -> None:
    made = estimator("gavel")
    submit(made, j1=0, j2=3)
    made.measured(ran(1, 2, (0.7, 0.4)))
    made.ended(np.array([1, 2]))
    assert made.beliefs() is None
    made.measured(ran(1, 2, (0.7, 0.4)))
    assert made.beliefs() is None
    assert len(submit(made, j4=0).belief) == 1


def test_on_other_slot_types_all_is_announced_anew() -> None:
    made = estimator("gavel")
    submit(made, j1=0, j2=3)
    made.measured(ran(1, 2, (0.7, 0.4)))
    made.beliefs()
    made.table(table().columns((SLOTS[1],)))
    message = made.beliefs()
    assert message is not None
    assert sorted(message.jobs.tolist()) == [1, 2]
    assert message.rate.shape == (2, 1)
    assert [0.4, 0.7] in np.sort(message.colocated_rate[:, 0], axis=1).tolist()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nobody", "estimator 'nobody' is not known"),
        ("oracle:x=1", "oracle takes no options"),
        ("gavel:profiling=2", "profiling must be a number from 0 to 1, got '2'"),
        ("gavel:references=0", "references must be a whole number >= 1, got '0'"),
        ("gavel:colour=red", "'colour' is not an option"),
        ("gavel:rank=1,rank=2", "rank is given twice"),
        ("gavel:defect=yes", "defect takes no value, got 'yes'"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_estimator(spec, table(), CLUSTER, 0)


def test_a_spec_is_a_name_and_options() -> None:
    assert parse("gavel:references=16,profiling=0.2,defect") == (
        "gavel",
        {"references": "16", "profiling": "0.2", "defect": ""},
    )
    assert make_estimator("oracle", table(), CLUSTER, 0) is None
