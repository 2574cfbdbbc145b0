"""A job of Pollux's simulator while it trains: its progress, epoch by epoch, on the devices that it has."""

from dataclasses import dataclass

from fairlead.simulator.pollux_reference.applications import BatchChoice, Placement
from fairlead.simulator.pollux_reference.workload import ElasticJob

_NO_BATCH = BatchChoice(0, 0)
RESTART_S = 30.0  # that every new placement costs, the first one too


@dataclass(slots=True)
class ElasticTraining:
    """The state of one job; ``advance`` moves its time on."""

    job: ElasticJob
    placement: Placement = ()
    choice: BatchChoice = _NO_BATCH
    epoch: int = 0
    progress: float = 0.0
    restart_left_s: float = 0.0
    service_s: float = 0.0  # device-seconds that it has had, those of restarts included
    starts: int = 0
    now_s: float = 0.0
    ended_s: float | None = None

    @property
    def restarts(self) -> int:
        """Placements after the first one."""
        return max(self.starts - 1, 0)

    def place(self, placement: Placement) -> None:
        """The job has other devices from now on; () = none."""
        self.placement = placement
        if placement:
            self.restart_left_s = RESTART_S
            self.starts += 1
            self._choose_batch()

    def advance(self, seconds: float) -> None:
        """Let time pass: what is left of a restart first, then training."""
        if not self.placement or self.ended_s is not None:
            self.now_s += seconds
            return
        restart_s = min(self.restart_left_s, seconds)
        self.restart_left_s -= restart_s
        self._pass(restart_s)
        seconds -= restart_s
        while seconds > 0 and self.ended_s is None:
            seconds -= self._train(seconds)

    def _train(self, seconds: float) -> float:
        """Train until the end of the epoch or for so many seconds. Returns the seconds that passed: to the
        end of an epoch they are whole ones, as in the release."""
        application, replicas = self.job.application, sum(self.placement)
        gain = application.gain(self.choice.total(replicas), self.epoch)
        rate = gain / application.iteration_s(self.placement, self.choice)
        end = application.progress_at(self.epoch + 1)
        if self.progress + rate * seconds < end:
            self.progress += rate * seconds
        else:
            seconds = float(round((end - self.progress) / rate))
            self.epoch += 1
            self.progress = end
            if self.epoch > application.epochs - 1:
                self.ended_s = self.now_s + seconds
        self._pass(seconds)
        self._choose_batch()
        return seconds

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds
        self.service_s += seconds * sum(self.placement)

    def _choose_batch(self) -> None:
        self.choice = self.job.application.choose_batch(self.job.batch, sum(self.placement))
