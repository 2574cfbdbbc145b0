"""Jobs without a model."""

import pytest

from fairlead.client.stand_in import step_seconds


def test_a_step_takes_as_long_as_its_accelerator_type_needs() -> None:
    assert step_seconds("v100=0.05,k80=0.2", "k80") == 0.2


@pytest.mark.parametrize(
    ("text", "accelerator", "says"),
    [
        ("v100=0.05", "k80", "says nothing of 'k80'"),
        ("v100=0.05", "", "no accelerator type"),
        ("k80=x", "k80", "expected TYPE=SECONDS"),
    ],
)
def test_a_type_that_is_not_there_ends_it(text: str, accelerator: str, says: str) -> None:
    with pytest.raises(SystemExit, match=says):
        step_seconds(text, accelerator)
