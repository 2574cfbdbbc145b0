import numpy as np
from tests.job_types import job_types

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.rates import (
    extended,
    fits,
    job_type_of,
    stated_rates,
    table_for,
    with_job_types_of,
    with_pairs_of,
)
from fairlead.cluster.store.rows import JobRow
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

KNOWN = JobType("known")
CATALOGUE = Throughputs(
    (SlotType("v100"),),
    (KNOWN,),
    np.array([[5.0]]),
)
MIXED = Cluster.of({"v100": 2, "new": 4})


def _spec(**fields: object) -> JobSpec:
    return JobSpec(command=("true",), total_steps=10, **fields)  # type: ignore[arg-type]


def _row(spec: JobSpec) -> JobRow:
    kind = job_type_of(spec, CATALOGUE).name
    return JobRow(
        id=0,
        name="",
        tenant="t",
        user="u",
        spec=spec,
        submitted_s=0.0,
        total_steps=10,
        rates_family=kind,
    )


def test_a_family_of_the_catalogue_goes_by_its_name() -> None:
    assert job_type_of(_spec(family="known"), CATALOGUE) == KNOWN
    assert job_type_of(_spec(family="known", rates={"v100": 9.0}), CATALOGUE) != KNOWN
    assert job_type_of(_spec(family="known", scale_factor=2), CATALOGUE).name != "known"


def test_jobs_with_the_same_rates_are_of_one_kind() -> None:
    one = job_type_of(_spec(rates={"v100": 2.0, "new": 1.0}), CATALOGUE)
    assert one == job_type_of(_spec(rates={"new": 1.0, "v100": 2.0}), CATALOGUE)
    assert one != job_type_of(_spec(rates={"v100": 2.0}), CATALOGUE)


def test_rates_that_a_job_brings_are_all_it_has() -> None:
    assert stated_rates(_spec(rates={"new": 3.0}), MIXED.slots).tolist() == [3.0, 0.0]
    assert stated_rates(_spec(), MIXED.slots).tolist() == [1.0, 1.0]


def test_the_table_knows_new_types_and_what_was_learned() -> None:
    row = _row(_spec(rates={"new": 3.0}))
    table = table_for(CATALOGUE, MIXED, {0: row}).on(MIXED)
    own = table.row(JobType.parse(row.rates_family, 1))
    assert own is not None
    assert dict(zip(table.slots, table.rate[own].tolist(), strict=True)) == {
        SlotType("new"): 3.0,
        SlotType("v100"): 0.0,
    }
    known = table.row(KNOWN)
    assert known is not None
    assert table.rate[known].tolist() == [0.0, 5.0]
    learned = table.learned(
        job_types(
            (row.rates_family, 1),
        ),
        (SlotType("new"),),
        np.array([[7.0]]),
    )
    again = table_for(CATALOGUE, MIXED, {0: row}, learned).on(MIXED)
    assert again.rate[own].tolist() == [7.0, 0.0]


def test_a_job_fits_where_it_runs_and_there_is_room() -> None:
    assert fits({"v100": 1.0}, _spec(scale_factor=2), MIXED)
    assert not fits({"v100": 1.0}, _spec(scale_factor=3), MIXED)
    assert not fits({"v100": 0.0, "old": 1.0}, _spec(), MIXED)


PAIRED = Throughputs(
    (SlotType("v100"),),
    job_types(("known", 1), ("other", 1)),
    np.array([[5.0], [8.0]]),
    np.array([[[0.0], [4.0]], [[6.4], [0.0]]]),
)


def _rows(*specs: JobSpec) -> dict[int, JobRow]:
    rows = {i: _row(spec) for i, spec in enumerate(specs)}
    for i, row in rows.items():
        row.id = i
    return rows


def _beside(table: Throughputs, one: JobRow, two: JobRow | str) -> float:
    a = table.row(JobType.parse(one.rates_family, 1))
    b = table.row(JobType.parse(two if isinstance(two, str) else two.rates_family, 1))
    assert a is not None
    assert b is not None
    assert table.pair_rates is not None
    return float(table.pair_rates[a, b, table.slots.index(SlotType("v100"))])


def test_jobs_that_state_how_fast_they_are_beside_others_can_be_pairs() -> None:
    rows = _rows(
        _spec(name="a", rates={"v100": 10.0}, colocated_fraction=0.7),
        _spec(name="b", rates={"v100": 20.0}, colocated_fractions={"a": 0.6, "known": 0.5}),
        _spec(name="c", rates={"v100": 30.0}),
    )
    for catalogue in (CATALOGUE, PAIRED):
        table = table_for(catalogue, MIXED, rows).on(MIXED)
        assert _beside(table, rows[0], rows[1]) == 7.0
        assert _beside(table, rows[1], rows[0]) == 12.0
        assert _beside(table, rows[0], rows[0]) == 7.0
        assert _beside(table, rows[1], rows[1]) == 0.0, "it says nothing of itself"
        assert _beside(table, rows[0], rows[2]) == 0.0, "of the other nothing is known"
        assert _beside(table, rows[2], rows[0]) == 0.0


def test_a_table_has_no_rates_side_by_side_where_nobody_asks_for_them() -> None:
    rows = _rows(_spec(name="a", rates={"v100": 10.0}, colocated_fraction=0.7))
    table = table_for(PAIRED, MIXED, rows, space_sharing=False).on(MIXED)
    assert table.pair_rates is None
    other = job_types(("unheard of", 1))
    table = extended(table, {other[0]: np.ones(len(table.slots))})
    paired = with_pairs_of(table, table_for(PAIRED, MIXED, rows))
    assert _beside(paired, rows[0], "known") == 7.0
    assert paired.pair_rates is not None
    assert not paired.pair_rates[-1].any()
    assert not paired.pair_rates[:, -1].any()


def test_a_family_of_the_table_keeps_what_it_keeps_beside_others_of_it() -> None:
    rows = _rows(_spec(name="a", rates={"v100": 10.0}, colocated_fraction=0.7))
    table = table_for(PAIRED, MIXED, rows).on(MIXED)
    assert _beside(table, rows[0], "known") == 7.0
    a, known = table.row(JobType.parse(rows[0].rates_family, 1)), table.row(KNOWN)
    assert a is not None
    assert known is not None
    assert table.pair_rates is not None
    assert table.pair_rates[known, a].max() == 4.0, "0.8 of its rate, as beside the other family"


def test_what_is_stated_of_pairs_makes_another_kind() -> None:
    one, two = (_spec(rates={"v100": 2.0}, colocated_fraction=f) for f in (0.5, 0.6))
    kinds = {job_type_of(spec, CATALOGUE) for spec in (one, two, _spec(rates={"v100": 2.0}))}
    assert len(kinds) == 3


def test_a_table_for_other_nodes_keeps_the_kinds_of_jobs_that_have_ended_since() -> None:
    row = _row(_spec(rates={"v100": 2.0, "new": 3.0}))
    before = table_for(CATALOGUE, MIXED, {0: row})
    kind = (row.rates_family, 1)
    after = table_for(CATALOGUE, Cluster.of({"new": 1, "newest": 1}), {}, before)
    assert after.row(JobType.parse(*kind)) is None, "the job has ended"
    kept = with_job_types_of(after, before)
    rates = dict(
        zip(
            [s.accelerator for s in kept.slots],
            kept.rate[kept.row(JobType.parse(*kind))],
            strict=True,
        )
    )
    assert rates == {"v100": 2.0, "new": 3.0, "newest": 0.0}


def test_what_is_kept_of_pairs_does_not_grow_with_their_number() -> None:
    """10,000 kinds have 100 million pairs: a driver stood still for as long as it took to make them."""
    sizes = []
    for n in (10, 1000):
        specs = [
            _spec(name=f"j{k}", rates={"v100": 1.0 + k}, colocated_fraction=0.7) for k in range(n)
        ]
        sizes.append(table_for(PAIRED, MIXED, _rows(*specs)).pair_rates_by_class().rate.shape)
    assert sizes[0] == sizes[1]
