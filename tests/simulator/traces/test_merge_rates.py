from pathlib import Path

import pytest
from tests.job_types import job_types

from fairlead.errors import ThroughputError
from fairlead.simulator.traces.merge_rates import merge_rates
from fairlead.simulator.traces.throughput_tables import read_throughputs


def row(family: str, accelerator: str, rate: float, scale: int = 1) -> dict[str, str]:
    return {
        "family": family,
        "scale_factor": str(scale),
        "accelerator": accelerator,
        "locality": "consolidated",
        "steps_per_s": str(rate),
        "source": "measured",
    }


def test_a_new_table(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    merge_rates(path, [row("a", "v100", 2.0), row("a", "k80", 1.0)])
    table = read_throughputs(path)
    assert table.job_types == job_types(("a", 1))
    assert table.rate.tolist() == [[1.0, 2.0]]


def test_a_row_gives_way_to_its_successor_and_to_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(
        "\ufeff# measured on Monday\n"
        "note, accelerator,family,scale_factor,locality,steps_per_s,beside\n"
        'x,v100,"a, b",1,consolidated,5,\n'
        "y,v100,c,1,consolidated,6,\n"
        'z,v100,c,1,consolidated,3,"a, b"\n'
        "v,v100,c,1,spread,4,\n",
        encoding="utf-8",
    )
    merge_rates(path, [row("c", "v100", 7.0), row("c", "v100", 9.0, scale=2)])
    assert path.read_text().splitlines() == [
        "note,accelerator,family,scale_factor,locality,steps_per_s,beside",
        'x,v100,"a, b",1,consolidated,5,',
        'z,v100,c,1,consolidated,3,"a, b"',
        "v,v100,c,1,spread,4,",
        ",v100,c,1,consolidated,7.0,",
        ",v100,c,2,consolidated,9.0,",
    ]
    assert read_throughputs(path).colocated_rate is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"v100": {"a": {"null": 1.0}}}', "plain CSV only"),
        ("family,scale_factor\na,1\n", "accelerator"),
        ("family,scale_factor,accelerator,locality,steps_per_s\na,1,v100,here,1\n", "locality"),
    ],
)
def test_what_is_no_table_of_ours_is_left_alone(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(text)
    with pytest.raises(ThroughputError, match=words):
        merge_rates(path, [row("a", "v100", 1.0)])
    assert path.read_text() == text
