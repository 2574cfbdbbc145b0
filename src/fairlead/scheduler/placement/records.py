"""The input of a rule of placement, the plan, the round before and the devices there are, and its answer.

A device id is a position; the devices of a node, and the nodes of a type, are neighbours.
"""

from typing import NamedTuple

from fairlead.model.jit_records import Bools1, Floats1, Ints1, Ints2


class PlannedGroups(NamedTuple):
    """The job groups that are to run, in the order in which they were chosen."""

    group: Ints1  # (running,) rows of the ledger's job groups
    slot: Ints1  # (running,) slot types
    scale: Ints1  # (groups,) devices of each job group of the ledger


class PreviousRound(NamedTuple):
    """Devices of the previous round: job group i held devices[offsets[i]:offsets[i + 1]]."""

    group: Ints1  # (previous,) rows of today's job groups, -1 = the job group has left
    slot: Ints1  # (previous,)
    offsets: Ints1  # (previous + 1,)
    devices: Ints1  # (devices of all of them,)


class Topology(NamedTuple):
    """The devices to place on, by server and type. A slot type is an accelerator type with a locality."""

    device_type: Ints1  # (devices,) index of the accelerator type, non-decreasing
    device_node: Ints1  # (devices,) non-decreasing
    usable: Bools1  # (devices,)
    fewest_servers: Ints2  # as ``Cluster.fewest_servers``
    accelerator_of_slot: Ints1  # (slots,) index of the accelerator type
    other_locality: Ints1  # (slots,) the slot of the other locality, -1 = locality does not matter
    scattered: Bools1  # (slots,) is it that of job groups on more servers than they need?


class MoveTradeoffs(NamedTuple):
    """Gains and costs of a move, for each row of the plan."""

    fallback_rate: (
        Floats1  # (running,) rate with the other locality over rate on the slot, 0 = cannot run so
    )
    consolidation_gain: Floats1  # (running,) device-seconds won by being consolidated
    move_cost: Floats1  # (running,) device-seconds that a move loses


class Placement(NamedTuple):
    """Devices of each job group: the answer of a rule of placement. Row order[k] gets
    devices[offsets[k]:offsets[k + 1]].

    order: (placed,) rows of the plan that run, each once. offsets: (placed + 1,). devices: (devices of all of
    them,) ids. kept: (placed,) whether they are the devices of the round before. slot: (placed,) slot types
    of the devices: of the planned accelerator type, with the locality that the devices have.
    """

    order: Ints1
    offsets: Ints1
    devices: Ints1
    kept: Bools1
    slot: Ints1
