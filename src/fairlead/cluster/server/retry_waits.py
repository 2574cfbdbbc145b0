"""Jobs that wait for their next try: held back from the rounds for that alone."""


class RetryWaits:
    """On the driver's thread. The time for which a job waits is in its row."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()  # with a time before which they are not tried again
        self.to_hold: set[int] = set()  # of these, those that the core does not hold back yet

    def add(self, job: int) -> None:
        """A job waits, and the core is to be told."""
        if job not in self.waiting:
            self.waiting.add(job)
            self.to_hold.add(job)

    def discard(self, job: int) -> None:
        """A job waits no more."""
        self.waiting.discard(job)
        self.to_hold.discard(job)

    def keep_waiting(self, job: int) -> bool:
        """The core holds a job for another reason, which is over. If it waits for its next try, the core goes
        on holding it, and is told when its time has come: whether that is so."""
        self.to_hold.discard(job)
        return job in self.waiting
