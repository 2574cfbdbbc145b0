"""A rule of placement of your own: devices with the largest numbers, and whoever can stays.

python examples/place_last.py
"""

from dataclasses import dataclass

import numpy as np

import fairlead
from fairlead import Placement, PlacementRequest


@dataclass(frozen=True)
class LastFree:
    """Never leaves room on purpose: compare it with the rule of the default profile."""

    name: str = "last_free"

    def place(self, request: PlacementRequest) -> Placement:
        """Devices for every row of the plan, of the accelerator type that it names."""
        free, given = request.topology.usable.copy(), {}
        for row, devices in request.previous_devices().items():
            if free[devices].all():
                given[row] = devices
                free[devices] = False
        for row, count in enumerate(request.device_counts().tolist()):
            if row not in given:
                wanted = request.topology.accelerator_of_slot[request.plan.slot[row]]
                given[row] = np.flatnonzero(free & (request.topology.device_type == wanted))[
                    -count:
                ]
                free[given[row]] = False
        return request.placement(given)


def main() -> None:
    """Thirty jobs of one to eight devices on servers of four."""
    cluster = fairlead.Cluster.of({"v100": 16, "k80": 16}, devices_per_server=4)
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    jobs = list(
        fairlead.generate("gavel,multi-gpu,jobs=30,interarrival=3000", rates, cluster, 0)[0]
    )
    for rule in ("fewest_servers", LastFree()):
        got = fairlead.simulate(jobs, cluster, "las", throughputs=rates, placement=rule).metrics
        named = rule if isinstance(rule, str) else rule.name
        print(
            f"{named:15} average JCT {got['avg_jct_s'] / 3600:5.1f} h, {got['restarts']} restarts"
        )


if __name__ == "__main__":
    main()
