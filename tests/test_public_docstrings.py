"""``help(fairlead.X)`` says what the fields of records are."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import fairlead
from tests.small import job, run

RECORDS = (
    fairlead.Accounts,
    fairlead.AdmissionState,
    fairlead.SimulationOptions,
    fairlead.PlacementRequest,
    fairlead.Placement,
    fairlead.Result,
    fairlead.RoundPlan,
    fairlead.Schedule,
)


def explained(record: Any) -> str:
    """Its own docstring, which none of its bases has given it."""
    return inspect.cleandoc(vars(record)["__doc__"])


@pytest.mark.parametrize("record", RECORDS, ids=lambda one: one.__name__)
def test_a_record_explains_its_fields(record: Any) -> None:
    names = getattr(record, "_fields", None) or [field.name for field in fields(record)]
    assert not [name for name in names if f"{name}:" not in explained(record).replace(",", ":")]


def test_a_change_explains_its_flags() -> None:
    assert all(f"{change.name}," in explained(fairlead.Change) for change in fairlead.Change)


def test_a_result_explains_its_metrics(tmp_path: Path) -> None:
    class All:
        name = "all"

        def admit(self, *_: object) -> bool:
            return True

    arrivals = [job(0, 0.0, 900.0)]
    metrics = run(arrivals, out=tmp_path / "run", admission=All()).metrics
    metrics |= run(arrivals, profile="gavel").metrics
    text = explained(fairlead.Result)
    assert not [name for name in metrics if name not in text]
