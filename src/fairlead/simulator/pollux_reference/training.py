"""A job of Pollux's simulator while it trains: its progress, epoch by epoch, on the devices that it has."""

from dataclasses import dataclass, field

from fairlead.estimation.goodput.fit_step_time import ReplicaSetting
from fairlead.estimation.goodput.job_goodput import JobGoodput
from fairlead.simulator.pollux_reference.applications import Application, BatchChoice, Placement
from fairlead.simulator.pollux_reference.workload import ElasticJob

_NO_BATCH = BatchChoice(0, 0)
RESTART_S = 30.0  # that every new placement costs, the first one too


@dataclass(slots=True)
class ElasticTraining:
    """The state of one job; ``advance`` moves its time on."""

    job: ElasticJob
    adapts_batch: bool = False  # is the batch chosen by the goodput, not by the owner?
    accelerator: str = ""  # type of the devices that it has, or had last
    goodputs: dict[str, JobGoodput] = field(
        init=False
    )  # what was measured of it, by accelerator type
    placement: Placement = ()
    choice: BatchChoice = _NO_BATCH
    epoch: int = 0
    progress: float = 0.0
    restart_left_s: float = 0.0
    service_s: float = 0.0  # device-seconds that it has had, those of restarts included
    starts: int = 0
    now_s: float = 0.0
    ended_s: float | None = None

    def __post_init__(self) -> None:
        self.accelerator = next(iter(self.job.on))
        self.goodputs = {name: JobGoodput(one.limits) for name, one in self.job.on.items()}

    @property
    def application(self) -> Application:
        """Return the application as measured on the type of its devices."""
        return self.job.on[self.accelerator]

    @property
    def goodput(self) -> JobGoodput:
        """Return what is known of it on the type of its devices."""
        return self.goodputs[self.accelerator]

    @property
    def restarts(self) -> int:
        """Placements after the first one."""
        return max(self.starts - 1, 0)

    def place(self, placement: Placement, accelerator: str | None = None) -> None:
        """The job has other devices from now on; () = none. accelerator: their type, None = as before."""
        self.placement = placement
        if placement:
            self.accelerator = accelerator or self.accelerator
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
        application, replicas = self.application, sum(self.placement)
        noise = application.between(batch := self.choice.total(replicas), self.epoch).noise
        step = application.step_time(self.placement, self.choice.local)
        if self.adapts_batch:
            setting = ReplicaSetting(len(self.placement), replicas, self.choice.local)
            self.goodput.observe(setting, step)
            for one in self.goodputs.values():
                one.noise = noise
        rate = noise.gain(batch / application.batches[0]) / self.choice.iteration_s(step)
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
        application, replicas = self.application, sum(self.placement)
        if not self.adapts_batch:
            self.choice = application.choose_batch(self.job.batch, replicas)
        elif not self.goodput.is_known:
            limits = application.limits
            least = max(limits.smallest, limits.min_local * replicas)
            self.choice = application.choose_batch(least, replicas)
        else:
            local, steps = self.goodput.best_alone(len(self.placement), replicas)
            self.choice = BatchChoice(local, steps)
