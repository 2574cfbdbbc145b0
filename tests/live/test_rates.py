import numpy as np

from fairlead.live.rates import fits, kind_of, own_rates, table_for
from fairlead.live.rows import JobRow
from fairlead.live.spec import JobSpec
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.throughput import Throughputs

CATALOGUE = Throughputs((SlotType("v100"),), (("known", 1),), np.array([[5.0]]))
MIXED = Cluster.of({"v100": 2, "new": 4})


def _spec(**fields: object) -> JobSpec:
    return JobSpec(command=("true",), total_steps=10, **fields)  # type: ignore[arg-type]


def _row(spec: JobSpec) -> JobRow:
    kind = kind_of(spec, CATALOGUE)
    return JobRow(
        id=0, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=10, kind=kind
    )


def test_a_family_of_the_catalogue_goes_by_its_name() -> None:
    assert kind_of(_spec(family="known"), CATALOGUE) == "known"
    assert kind_of(_spec(family="known", rates={"v100": 9.0}), CATALOGUE) != "known"
    assert kind_of(_spec(family="known", scale_factor=2), CATALOGUE) != "known"


def test_jobs_with_the_same_rates_are_of_one_kind() -> None:
    one = kind_of(_spec(rates={"v100": 2.0, "new": 1.0}), CATALOGUE)
    assert one == kind_of(_spec(rates={"new": 1.0, "v100": 2.0}), CATALOGUE)
    assert one != kind_of(_spec(rates={"v100": 2.0}), CATALOGUE)


def test_rates_that_a_job_brings_are_all_it_has() -> None:
    assert own_rates(_spec(rates={"new": 3.0}), MIXED.slots).tolist() == [3.0, 0.0]
    assert own_rates(_spec(), MIXED.slots).tolist() == [1.0, 1.0]


def test_the_table_knows_new_types_and_what_was_learned() -> None:
    row = _row(_spec(rates={"new": 3.0}))
    table = table_for(CATALOGUE, MIXED, {0: row}).on(MIXED)
    own = table.row(row.kind, 1)
    assert own is not None
    assert dict(zip(table.slots, table.rate[own].tolist(), strict=True)) == {
        SlotType("new"): 3.0,
        SlotType("v100"): 0.0,
    }
    known = table.row("known", 1)
    assert known is not None
    assert table.rate[known].tolist() == [0.0, 5.0]
    learned = table.learned(((row.kind, 1),), (SlotType("new"),), np.array([[7.0]]))
    again = table_for(CATALOGUE, MIXED, {0: row}, learned).on(MIXED)
    assert again.rate[own].tolist() == [7.0, 0.0]


def test_a_job_fits_where_it_runs_and_there_is_room() -> None:
    assert fits({"v100": 1.0}, _spec(scale_factor=2), MIXED)
    assert not fits({"v100": 1.0}, _spec(scale_factor=3), MIXED)
    assert not fits({"v100": 0.0, "old": 1.0}, _spec(), MIXED)
