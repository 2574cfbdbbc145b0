"""An observer of your own: how many jobs were in the system when each round began.

python examples/observe_waiting.py
"""

from typing import Any

import fairlead


class Waiting:
    """Reads ``active`` off every command that starts a round."""

    def __init__(self) -> None:
        self.active: list[int] = []

    def event(self, event: Any) -> None:
        """Events are not needed."""

    def command(self, command: Any) -> None:
        """Called before the command is carried out."""
        if type(command).__name__ == "StartRound":
            self.active.append(command.active)


def main() -> None:
    """Thirty jobs on six devices."""
    cluster = fairlead.parse_cluster("v100=2,p100=2,k80=2")
    rates = fairlead.read_throughputs("builtin").columns(cluster.slots)
    jobs = list(fairlead.generate("gavel,jobs=30,interarrival=6000", rates, cluster, 0)[0])
    waiting = Waiting()
    fairlead.simulate(jobs, cluster, "las_aware", throughputs=rates, observers=[waiting])
    print(f"{len(waiting.active)} rounds, at most {max(waiting.active)} jobs in the system")


if __name__ == "__main__":
    main()
