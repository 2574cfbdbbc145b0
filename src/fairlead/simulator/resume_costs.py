"""The cost of a start by where it is: less on the servers where the job ran last."""

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.simulator.round_kernels import RoundGroups
from fairlead.simulator.true_jobs import JobArrays


class ResumeCosts:
    """The servers on which each job ran last, and its two costs, by position."""

    def __init__(self, cluster: Cluster) -> None:
        self._node = cluster.device_node
        self._costs: list[tuple[float, float]] = []  # of a start elsewhere, and of one there
        self._last: list[tuple[int, ...]] = []  # nodes, ascending; () = none that would help

    def add(self, restart_s: float, resume_s: float) -> None:
        """Add a job at the end that has not run."""
        self._costs.append((restart_s, resume_s))
        self._last.append(())

    def charge(self, groups: RoundGroups, jobs: JobArrays) -> None:
        """Enter what starting in this round costs each job that is in it, and where it runs."""
        for i, members in enumerate(groups.job.tolist()):
            devices = groups.devices[groups.offsets[i] : groups.offsets[i + 1]]
            nodes = tuple(np.unique(self._node[devices]).tolist())
            for j in members:
                if j >= 0:
                    restart_s, resume_s = self._costs[j]
                    jobs.restart_s[j] = resume_s if self._last[j] == nodes else restart_s
                    self._last[j] = nodes

    def forget(self, node: int) -> None:
        """A node has failed: no job can resume from what it left there."""
        self._last = [() if node in nodes else nodes for nodes in self._last]
