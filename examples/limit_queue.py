"""An admission rule of your own: no more than so many jobs in the system.

python examples/limit_queue.py
"""

from dataclasses import dataclass

import fairlead
from fairlead import AdmissionState, Job


@dataclass(frozen=True)
class LimitQueue:
    """Refuses a job that finds ``most`` others in the system."""

    most: int
    name: str = "limit_queue"

    def admit(self, job: Job, state: AdmissionState) -> bool:  # noqa: ARG002
        """Let the job in?"""
        return len(state.jobs) < self.most


def main() -> None:
    """Thirty jobs on six devices, with room for 5, 10 or all of them."""
    cluster = fairlead.parse_cluster("v100=2,p100=2,k80=2")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    jobs = list(fairlead.generate("gavel,jobs=30,interarrival=3000", rates, cluster, 0)[0])
    for most in (5, 10, 30):
        rule = LimitQueue(most)
        got = fairlead.simulate(jobs, cluster, "las", throughputs=rates, admission=rule).metrics
        print(
            f"{most:3}: {got['n_refused']:2} refused, average JCT {got['avg_jct_s'] / 3600:.1f} h"
        )


if __name__ == "__main__":
    main()
