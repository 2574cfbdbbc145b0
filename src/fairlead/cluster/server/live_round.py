"""The round in force."""

from dataclasses import dataclass, field

from fairlead.cluster.server.attempts import Attempt
from fairlead.model.arrays import Ints
from fairlead.model.commands import StartRound
from fairlead.model.events import RoundOutcome

MAX_ROUND_S = 5  # times its length a round may last, for jobs that still start


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """The outcome of an attempt, for the report of its round."""

    time_s: float
    outcome: RoundOutcome
    completed: bool


@dataclass(slots=True)
class LiveRound:
    """The round in force."""

    number: int
    started_s: float
    length_s: float
    job_groups: Ints  # (groups, width) job ids, -1 = none
    attempts: dict[int, Attempt]  # job -> its attempt in this round
    ended: dict[int, EndedAttempt] = field(default_factory=dict)  # of those that are over

    @staticmethod
    def of(command: StartRound, attempts: dict[int, Attempt]) -> "LiveRound":
        """The round that a command begins. attempts: job -> its attempt."""
        return LiveRound(
            number=command.round,
            started_s=command.time_s,
            length_s=command.length_s,
            job_groups=command.job_groups,
            attempts=attempts,
        )

    @property
    def end_s(self) -> float:
        """When it is over at the latest."""
        return self.started_s + self.length_s

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that its attempts are on."""
        return {node for attempt in self.attempts.values() for node in attempt.nodes}

    def is_packed(self, job: int) -> bool:
        """Return whether a job shares its devices with another in this round."""
        return bool((self.job_groups[(self.job_groups == job).any(axis=1)] >= 0).sum() > 1)
