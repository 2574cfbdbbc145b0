"""The jobs that are pinned to a node without new work, because an attempt may still run there."""

from collections.abc import Collection, Iterable

from fairlead.cluster.server.job_registry import JobRegistry


class PinnedJobs:
    """Pinned jobs and their nodes. Changed by the driver's thread; ``nodes`` may be read from any thread."""

    def __init__(self) -> None:
        self.nodes: dict[int, str] = {}  # job -> the node that it is pinned to
        self._releasing: set[int] = set()  # unpinned, not part of a decision of the core yet
        self._resumed: set[int] = set()  # those of them whose unpinning the core knows

    def has(self, job: int) -> bool:
        """Return whether the job is pinned, or was unpinned after the core's last decision."""
        return job in self.nodes or job in self._releasing

    def is_running(self, registry: JobRegistry, job: int) -> bool:
        """Return whether the job is pinned and its attempt goes on, outside the rounds."""
        attempt = registry.newest(job)
        runs = attempt is not None and attempt.ordered and not attempt.stopping and not attempt.lost
        return runs and self.has(job)

    def replace(self, found: dict[int, str]) -> tuple[list[int], list[int]]:
        """Replace the pinned jobs. Returns the newly pinned jobs and those that are no longer pinned."""
        before, self.nodes = self.nodes, found
        return (
            [job for job in found if job not in before],
            [job for job in before if job not in found],
        )

    def hold(self, jobs: Iterable[int]) -> None:
        """Note that these jobs are pinned again before the core decided on them."""
        self._releasing.difference_update(jobs)

    def release(self, jobs: Iterable[int]) -> None:
        """Note that the core is about to hear that these jobs are unpinned."""
        self._releasing.update(jobs)

    def resume(self, jobs: Iterable[int]) -> None:
        """Note that the core has heard that these jobs are unpinned."""
        self._resumed.update(self._releasing.intersection(jobs))

    def decided(self, jobs: Collection[int], solving: bool) -> None:
        """Note that the core has decided on a round with these jobs. solving: with shares from before the
        last changes, as a solve is under way."""
        self._releasing.difference_update(jobs)
        if not solving:
            self._releasing -= self._resumed
        self._resumed &= self._releasing
