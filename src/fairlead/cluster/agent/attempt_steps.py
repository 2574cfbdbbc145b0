"""The progress of an attempt: what its rank 0, or an unmanaged job itself, says of its steps."""

from fairlead.client.messages import Adapt, Loaded, Progress, RankEnded


class StepProgress:
    """Steps done and saved by one attempt. -1 = not known yet."""

    def __init__(self, job_steps: int, now: float) -> None:
        """job_steps: of the whole job, as it was submitted."""
        self._job_steps = job_steps
        self._first_reported_step = -1  # steps that an unmanaged job told of first
        self._step_at = now
        self.loaded: Loaded | None = None
        self.step = -1
        self.saved_step = -1
        self.save_problem = ""  # why the newest checkpoint could not be saved, as rank 0 says
        self.save_place = ""  # then: the directory that is out of order, "" = not known
        self.save_s = -1.0  # the newest checkpoint
        self.batch = 0
        self.total_steps = 0  # where the batch size was changed
        self.all_done = False  # as rank 0 said
        self.end_reason = ""  # why rank 0 ended before that, as it said

    @property
    def has_reported(self) -> bool:
        """Return whether an unmanaged job has reported its progress."""
        return self._first_reported_step >= 0

    @property
    def has_told_its_end(self) -> bool:
        """Return whether rank 0 has said that its loop is over, and at which step."""
        return self.all_done or bool(self.end_reason)

    @property
    def loaded_step(self) -> int:
        """Step from which this attempt went on."""
        return self._first_reported_step if self.loaded is None else self.loaded.step

    @property
    def lost_steps(self) -> int:
        """Steps lost by all attempts until this one was loaded."""
        return -1 if self.loaded is None else self.loaded.lost_steps

    @property
    def load_s(self) -> float:
        """Seconds taken to load the checkpoint."""
        return -1.0 if self.loaded is None else self.loaded.load_s

    def load(self, message: Loaded, now: float) -> None:
        """Training goes on from a checkpoint."""
        self.loaded, self.all_done = message, False
        self.step, self._step_at = max(self.step, message.step), now
        self.saved_step = max(self.saved_step, message.step)

    def advance(self, message: Progress | RankEnded, now: float) -> None:
        """Steps are done: never more than the job has, and never fewer than before, but where it has changed
        its batch size (``adapt``)."""
        step, self._step_at = max(self.step, self._possible(message.step)), now
        self.step, self.saved_step = step, self._possible(message.saved_step)
        if message.saved_step > 0:
            self.save_s = message.save_s
        if isinstance(message, Progress):
            self.save_problem, self.save_place = message.save_problem, message.save_place
        else:
            self.all_done, self.end_reason = message.completed, message.reason

    def count(self, step: int) -> bool:
        """The job itself has counted so many. Returns whether that is more than it had told of."""
        before, self.step = self.step, max(self.step, self._possible(step))
        return self.step > before

    def record_report(self, step: int, saved_step: int, now: float, *, began: float | None) -> None:
        """An unmanaged job says how many steps are done, and how many its own checkpoints keep, -1 = that
        is not said. The first time it says from where it goes on. began: when its training did."""
        if not self.has_reported:
            self._first_reported_step = step
        if step != self.step or self._step_at < (began or 0.0):
            self.step, self._step_at = step, now
        self.saved_step = saved_step

    def adapt(self, message: Adapt) -> None:
        """Another batch size, and with it another count of steps."""
        self.batch, self.total_steps = message.batch, message.total_steps
        self.step = self._possible(message.step)

    def age_s(self, now: float, paused: float | None) -> float:
        """Seconds since ``step`` was heard of. paused: when training did."""
        if self.loaded is None and not self.has_reported:
            return -1.0
        if self.has_reported and paused is not None:
            now = (
                paused  # as ``TrainingTimes.ran_s``: their difference is what its steps have taken
            )
        return max(0.0, now - self._step_at)

    def _possible(self, steps: int) -> int:
        """Return the steps, at most the job's total if that is known."""
        total = self.total_steps or self._job_steps
        return min(steps, total) if total > 0 else steps
