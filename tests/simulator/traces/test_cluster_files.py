"""Clusters from the command line and from TOML."""

import re
from pathlib import Path

import pytest

from fairlead.errors import ClusterError
from fairlead.simulator.traces.cluster_files import parse_cluster, parse_prices

TOML = """
[[node]]
name = "big"
accelerator = "h100"
devices = 8
count = 2

[[node]]
name = "old"
accelerator = "k80"
devices = 4

[prices]
h100 = 4
"""


def test_named_counts() -> None:
    cluster = parse_cluster("v100=3, my-chip=2")
    assert cluster.accelerators == ("my-chip", "v100")
    assert cluster.capacity.tolist() == [2.0, 3.0]
    assert [node.devices for node in cluster.nodes] == [1] * 5
    assert cluster.prices == {"v100": 0.74}


def test_gavels_notation() -> None:
    cluster = parse_cluster("8:0:24")
    assert cluster.accelerators == ("k80", "v100")
    assert cluster.capacity.tolist() == [24.0, 8.0]
    assert cluster.prices == {"v100": 0.74, "k80": 0.135}


@pytest.mark.parametrize("per_server", ["4", "v100=4,k80=4", "4:4:4"])
def test_devices_per_server(per_server: str) -> None:
    cluster = parse_cluster("v100=6,k80=4", per_server)
    assert [(n.name, n.devices) for n in cluster.nodes] == [
        ("k80-0", 4),
        ("v100-0", 4),
        ("v100-1", 2),
    ]


def test_prices_over_the_defaults() -> None:
    cluster = parse_cluster("v100=1,k80=1,x=1", prices=parse_prices("v100=2.5,x=0.1"))
    assert cluster.prices == {"v100": 2.5, "k80": 0.135, "x": 0.1}


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(TOML)
    cluster = parse_cluster(str(path))
    assert [(n.name, n.accelerator, n.devices) for n in cluster.nodes] == [
        ("big-0", "h100", 8),
        ("big-1", "h100", 8),
        ("old", "k80", 4),
    ]
    assert cluster.prices == {"h100": 4.0, "k80": 0.135}
    assert parse_cluster(str(path), prices={"h100": 5.0}).prices["h100"] == 5.0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "cluster: must not be empty"),
        ("v100", "cluster: expected NAME=NUMBER,..., v100:p100:k80 or a TOML file, got 'v100'"),
        ("1:2", "cluster: expected NAME=NUMBER,..., v100:p100:k80 or a TOML file, got '1:2'"),
        ("v100=0,k80=0", "the cluster has no devices: every count is 0"),
        ("v100=-1", "v100: devices must be >= 0, got -1"),
        ("v100=many", "cluster: v100: expected a whole number, got 'many'"),
        ("v100=nan", "cluster: v100: expected a whole number, got 'nan'"),
        ("v100=1.5", "cluster: v100: expected a whole number, got '1.5'"),
        ("v100=1,v100=2", "cluster: v100 is given twice"),
        ("v100=1,", "cluster: expected NAME=NUMBER, got ''"),
        ("=4", "cluster: expected NAME=NUMBER, got '=4'"),
        ("absent.toml", "absent.toml: cannot be read (No such file or directory)"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_cluster(spec)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("per_server", "message"),
    [
        ("0", "v100: devices per server must be >= 1, got 0"),
        ("x", "devices per server: all types: expected a whole number, got 'x'"),
        ("k80=4", "devices per server: 'k80' is not in the cluster"),
    ],
)
def test_bad_devices_per_server(per_server: str, message: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_cluster("v100=4", per_server)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": needs at least one [[node]] table"),
        ("node = 3", ": needs at least one [[node]] table"),
        ("x = 1", ": the file: unknown key 'x'; known: ['node', 'prices']"),
        ("[[node]", ": is not valid TOML: "),
        ("node = [3]", ": node 1: expected a table, got 3"),
        ('[[node]]\nname = "a"', ": node 1: 'accelerator' is missing"),
        ("[[node]]\nname = 3", ": node 1: name: expected a name, got 3"),
        (TOML.replace("devices = 4", "devices = 0"), ": node 2: devices: expected a whole number"),
        (TOML.replace("devices = 4", "devices = true"), ": node 2: devices: expected a whole"),
        (TOML.replace("count", "cuont"), ": node 1: unknown key 'cuont'; did you mean 'count'?"),
        (TOML.replace("h100 = 4", 'h100 = "4"'), ": [prices] h100: expected a number, got '4'"),
    ],
)
def test_bad_toml(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ClusterError) as caught:
        parse_cluster(str(path))
    found = str(caught.value).removeprefix(str(path))
    assert re.sub(r"^:[0-9]+: ", ": ", found).startswith(message)


def test_nodes_and_prices_must_make_sense(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(TOML.replace('"old"', '"big-0"'))
    with pytest.raises(ClusterError, match="'big-0': the name appears twice"):
        parse_cluster(str(path))
    with pytest.raises(ClusterError, match="devices per server cannot be given too"):
        parse_cluster(str(path), "4")
    with pytest.raises(ClusterError, match="'h100' is not in the cluster, which has v100"):
        parse_cluster("v100=1", prices={"h100": 1.0})
    with pytest.raises(
        ClusterError, match=r"price of 'v100': must be a number from 0 to .*, got -1"
    ):
        parse_cluster("v100=1", prices={"v100": -1.0})
    with pytest.raises(ClusterError, match="prices: v100: expected a number, got 'x'"):
        parse_prices("v100=x")
