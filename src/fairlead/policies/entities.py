"""Entities: who shares a cluster, as a tree of weights and policies, read from TOML.

[research]              # a table is an entity; its sub-tables are the entities inside
weight = 2              # > 0, 1 if left out
policy = "fairness"     # or "fifo"; "fairness" if left out

[research.vision]       # jobs of the tenant "research/vision"
policy = "fifo"

[product]               # jobs of the tenant "product"
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.arrays import Bools, Ints
from fairlead.model.limits import MAX_WEIGHT, MIN_WEIGHT, is_weight
from fairlead.model.snapshot import Snapshot
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines

POLICIES = ("fairness", "fifo")


@dataclass(frozen=True, slots=True)
class Entity:
    """Jobs and further entities that share a weight."""

    path: str  # "research/vision"; "" = the root
    parent: int  # position of the entity that it is in; the root's is itself
    weight: float = 1.0
    policy: str = (
        "fairness"  # among its children: to all by weight, or to the first in order of submission
    )


@dataclass(frozen=True, slots=True)
class Entities:
    """A tree, parents before their children; the first is the root, which has fairness."""

    tree: tuple[Entity, ...] = (Entity("", 0),)
    source_path: str = ""  # the file; empty = there is only the root, and every job is its child

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def fifo(self) -> Bools:
        """(entities,) whether the policy inside is fifo."""
        return np.array([entity.policy == "fifo" for entity in self.tree])

    def of(self, snapshot: Snapshot) -> Ints:
        """(jobs,) position of the entity that each job's tenant names; the root where there is no file.
        Raises ConfigError for a tenant that names none."""
        if not self.source_path:
            return np.zeros(len(snapshot.jobs), np.int64)
        position = {entity.path: i for i, entity in enumerate(self.tree) if i}
        of_tenant = np.array([position.get(name, -1) for name in snapshot.tenants], np.int64)
        of = of_tenant[snapshot.tenant]
        lost = np.flatnonzero(of < 0)
        if lost.size:
            job = int(lost[0])
            name = snapshot.tenants[int(snapshot.tenant[job])]
            raise ConfigError(
                f"{self.source_path}: no entity {name!r}, which is the tenant of job {snapshot.jobs[job]}; "
                f"there are {', '.join(position)}"
            )
        return of


def read_entities(path: str | Path) -> Entities:
    """The tree in a TOML file. Raises ConfigError with file, line, field and value."""
    with naming_lines(Path(path)):
        return _read_entities(path)


def _read_entities(path: str | Path) -> Entities:
    table = read_toml(Path(path), ConfigError)
    root = Entity("", 0)
    tree = [root]
    for name, value in table.items():
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {name}: expected a table of an entity, got {value!r}")
        tree.extend(_entities(str(path), name, value, 0, len(tree)))
    if len(tree) == 1:
        raise ConfigError(f"{path}: has no entities")
    return Entities(tuple(tree), str(path))


def _entities(
    source_path: str, path: str, table: dict[str, Any], parent: int, position: int
) -> Iterator[Entity]:
    """The entity at a path, whose position in the tree is ``position``, and then those inside it."""
    field = path.replace("/", ".")
    weight, policy = table.get("weight", 1.0), table.get("policy", "fairness")
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not is_weight(weight):
        raise ConfigError(
            f"{source_path}: {field}.weight: must be a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}, "
            f"got {weight!r}"
        )
    if policy not in POLICIES:
        known = " or ".join(repr(name) for name in POLICIES)
        raise ConfigError(f"{source_path}: {field}.policy: must be {known}, got {policy!r}")
    yield Entity(path, parent, float(weight), policy)
    at = position + 1
    for name, value in table.items():
        if name in ("weight", "policy"):
            continue
        if not isinstance(value, dict):
            raise ConfigError(
                f"{source_path}: {field}.{name}: an entity has weight, policy and tables of entities, "
                f"got {value!r}"
            )
        inside = list(_entities(source_path, f"{path}/{name}", value, position, at))
        yield from inside
        at += len(inside)


def requested_entities(path: str | None) -> Entities:
    """The entities in the file that a policy's argument names; without one, the root alone."""
    if path == "":
        raise ConfigError(
            "water_filling: needs the name of a TOML file behind the colon, or no colon"
        )
    return Entities() if path is None else read_entities(path)
