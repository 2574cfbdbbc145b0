"""Entities in a TOML file, and what they make of a cluster."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.policies.entities import Entity, read_entities
from fairlead.policies.water_filling import WaterFilling
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.job_types import job_types

TREE = """
[research]
weight = 2
policy = "fairness"

[research.vision]
policy = "fifo"

[research.speech]
weight = 3.0

[product]
"""


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "entities.toml"
    path.write_text(text)
    return path


def problem(tenants: list[str], devices: int) -> Snapshot:
    """Jobs of one device each and rate 1, in this order."""
    table = Throughputs(
        (SlotType("a"),),
        job_types(
            ("f", 1),
        ),
        np.ones((1, 1)),
    )
    jobs = [InstanceJob(i, "f", tenant=tenant) for i, tenant in enumerate(tenants)]
    return snapshot_of(jobs, Cluster.of({"a": devices}), table)


def test_tables_are_entities(tmp_path: Path) -> None:
    entities = read_entities(file(tmp_path, TREE))
    assert entities.tree == (
        Entity("", 0),
        Entity("research", 0, 2.0),
        Entity("research/vision", 1, 1.0, "fifo"),
        Entity("research/speech", 1, 3.0),
        Entity("product", 0),
    )


@pytest.mark.parametrize("name", ["water_filling", "water_filling_aware", "water_filling_packed"])
def test_shares_follow_the_tree(tmp_path: Path, name: str) -> None:
    """Of 3 devices 2 go to research: of those 3/4 to speech, but its one job can use no more than 1, so
    vision has the other, and gives it to its oldest job. Of product's jobs each has a half."""
    tenants = ["product", "research/vision", "research/vision", "research/speech", "product"]
    policy = registry.make(f"{name}:{file(tmp_path, TREE)}", seed=0, profile="default")
    assert isinstance(policy, WaterFilling) == (name == "water_filling_aware")
    snapshot = problem(tenants, 3)
    share = policy.allocate(snapshot).share  # type: ignore[union-attr]
    assert share[:, 0] == pytest.approx([0.5, 1.0, 0.0, 1.0, 0.5])


def test_fifo_goes_on_to_the_next_that_can_rise(tmp_path: Path) -> None:
    entities = read_entities(file(tmp_path, "[queue]\npolicy = 'fifo'\n"))
    snapshot = problem(["queue"] * 5, 3)
    share = WaterFilling(entities=entities).allocate(snapshot).share
    assert share[:, 0] == pytest.approx([1, 1, 1, 0, 0])
    kind_less = replace(
        snapshot, rate=np.array([1.0, 0, 1, 1, 1])[:, None, None], job_type=np.arange(5)
    )
    kind_less = replace(kind_less, job_class=np.arange(5))
    share = WaterFilling(entities=entities).allocate(kind_less).share
    assert share[:, 0] == pytest.approx([1, 0, 1, 1, 0])


def test_an_entity_with_fifo_serves_the_entity_of_its_oldest_job_first(tmp_path: Path) -> None:
    text = "[org]\npolicy = 'fifo'\n[org.a]\n[org.b]\n"
    entities = read_entities(file(tmp_path, text))
    snapshot = problem(["org/b", "org/a", "org/b", "org", "org/a"], 4)
    share = WaterFilling(entities=entities).allocate(snapshot).share
    assert share[:, 0] == pytest.approx([1, 1, 1, 0, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nweight = 0\n", "a.weight: must be a number from 1e-06 to 1e.06, got 0"),
        ("[a.b]\nweight = 'x'\n", "a.b.weight: must be a number from 1e-06 to 1e.06, got 'x'"),
        ("[a]\nweight = true\n", "a.weight: must be a number from 1e-06 to 1e.06, got True"),
        ("[a]\nweight = nan\n", "a.weight: must be a number from 1e-06 to 1e.06, got nan"),
        ("[a]\npolicy = 'lifo'\n", "a.policy: must be 'fairness' or 'fifo', got 'lifo'"),
        ("[a]\npolicy = ['fifo']\n", r"a.policy: must be 'fairness' or 'fifo', got \['fifo'\]"),
        (
            "[a]\nweigth = 2\n",
            "a.weigth: an entity has weight, policy and tables of entities, got 2",
        ),
        ("a = 2\n", "a: expected a table of an entity, got 2"),
        ("", "has no entities"),
        ("[a\n", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"entities\.toml:([0-9]:)? {message}"):
        read_entities(file(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: cannot be read"):
        registry.make(f"water_filling:{tmp_path}/no.toml", seed=0, profile="default")
    with pytest.raises(ConfigError, match="there is nothing after the colon"):
        registry.make("water_filling:", seed=0, profile="default")


def test_a_tenant_without_an_entity(tmp_path: Path) -> None:
    entities = read_entities(file(tmp_path, TREE))
    message = (
        r"entities\.toml: no entity 'sales', which is the tenant of job 1; there are research, "
        "research/vision, research/speech, product"
    )
    with pytest.raises(ConfigError, match=message):
        WaterFilling(entities=entities).allocate(problem(["product", "sales"], 2))
