"""Numbers of devices that always find their place: powers of two within a node, and whole nodes.

Jobs on whole nodes share them with nobody, and powers of two fill a node of a power of two without a gap, the
largest first. So whatever fits in number fits in place, and no two jobs on several nodes meet on one (Sia,
SOSP'23, section 3.3).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.arrays import Ints
from fairlead.simulator.pollux_reference.policies import Nodes


def device_counts(sizes: Sequence[int]) -> Ints:
    """Return the numbers of devices that a job may have, ascending. sizes: devices of each node. Raises
    ConfigError for nodes that differ, or have a number of devices that is no power of two."""
    per_node = sizes[0]
    if set(sizes) != {per_node} or per_node & (per_node - 1):
        raise ConfigError(
            f"--devices-per-server: this policy needs nodes of 1, 2, 4, 8, ... devices each, got "
            f"{', '.join(map(str, sorted(set(sizes))))}"
        )
    inside = [1 << k for k in range(per_node.bit_length() - 1)]
    return np.array([*inside, *range(per_node, sum(sizes) + 1, per_node)])


def place_on_whole_nodes(
    counts: Mapping[str, int], before: Mapping[str, Nodes], sizes: Sequence[int]
) -> dict[str, Nodes]:
    """Return the nodes of the replicas of each job. Who has as many as before keeps them, unless another
    finds no place so; then those on the node with fewest devices in use move.

    counts: numbers of ``device_counts``, of no more devices than there are.
    """
    per_node = sizes[0]
    free = list(sizes)
    found = dict[str, Nodes]()

    def take(name: str, nodes: Nodes) -> None:
        found[name] = nodes
        for node in nodes:
            free[node] -= 1

    def release(name: str) -> None:
        for node in found.pop(name):
            free[node] += 1

    for name, nodes in before.items():
        if counts.get(name) == len(nodes):
            take(name, nodes)
    waiting = [name for name in counts if name not in found]
    while waiting:
        waiting.sort(key=lambda name: -counts[name])
        name = waiting.pop(0)
        while (room := _room(counts[name], free, per_node)) is None:
            loosest = max((f, -node) for node, f in enumerate(free) if 0 < f < per_node)
            on_it = [one for one, theirs in found.items() if -loosest[1] in theirs]
            for one in on_it:
                release(one)
            waiting += on_it
        take(name, room)
    return found


def _room(count: int, free: Sequence[int], per_node: int) -> Nodes | None:
    """Whole nodes, or the fullest node with so many free devices; None = there are none."""
    if count >= per_node:
        whole = [node for node, f in enumerate(free) if f == per_node][: count // per_node]
        if len(whole) < count // per_node:
            return None
        return tuple(node for node in whole for _ in range(per_node))
    fitting = [(f, node) for node, f in enumerate(free) if f >= count]
    return (min(fitting)[1],) * count if fitting else None
