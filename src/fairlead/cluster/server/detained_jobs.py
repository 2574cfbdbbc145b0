"""Jobs of which an attempt may still run on a node that is given nothing more: which they are."""

from collections.abc import Collection, Iterable

from fairlead.cluster.server.attempts import JobRegistry


class DetainedJobs:
    """Changed by the driver's thread; ``nodes`` may be read from any."""

    def __init__(self) -> None:
        self.nodes: dict[int, str] = {}  # job -> the node that it is detained by
        self._releasing: set[int] = set()  # let go, and not in a decision of the core yet
        self._resumed: set[int] = set()  # of these, those that the core knows to be let go

    def has(self, job: int) -> bool:
        """Whether it is detained, or the core has not decided since it was let go."""
        return job in self.nodes or job in self._releasing

    def is_running(self, registry: JobRegistry, job: int) -> bool:
        """Whether a detained job runs on, outside of the rounds."""
        attempt = registry.newest(job)
        runs = attempt is not None and attempt.ordered and not attempt.stopping and not attempt.lost
        return runs and self.has(job)

    def replace(self, found: dict[int, str]) -> tuple[list[int], list[int]]:
        """These are detained now. Returns jobs that were not before, and those that no longer are."""
        before, self.nodes = self.nodes, found
        return (
            [job for job in found if job not in before],
            [job for job in before if job not in found],
        )

    def hold(self, jobs: Iterable[int]) -> None:
        """These are not let go any more."""
        self._releasing.difference_update(jobs)

    def release(self, jobs: Iterable[int]) -> None:
        """The core is about to be told that these are let go."""
        self._releasing.update(jobs)

    def resume(self, jobs: Iterable[int]) -> None:
        """The core is told now that these jobs are let go."""
        self._resumed.update(self._releasing.intersection(jobs))

    def decided(self, jobs: Collection[int], solving: bool) -> None:
        """The core has decided on a round with these jobs. solving: by shares of before the last changes."""
        self._releasing.difference_update(jobs)
        if not solving:
            self._releasing -= self._resumed
        self._resumed &= self._releasing
