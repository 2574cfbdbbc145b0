"""Which job brings about that the processes die that own the ranks of nodes.

The kernel does not tell who has sent a signal. But who was there each time is known: a job that was there
at two deaths or more, and more often than any other that was there at the last, is to blame for it. Where
several were there alike, half of them wait for a while, and after the next death the other half, so that
deaths tell; they wait no longer once another job is to blame for what they were suspected of.
"""

from dataclasses import dataclass

from fairlead.cluster.protocol.messages import SpawnerDeath

WINDOW_S = 1800.0  # deaths of so long count, and of so many rounds
ROUNDS = 8
SUSPECT_WAIT_S = 30.0  # that those wait who are not to run beside others, and a round
LONGEST_S = 3600.0
_SUSPICIOUS = 2  # deaths at which a job was there
_Key = tuple[str, str, int]  # node, run of its agent, number of the death


@dataclass(frozen=True, slots=True)
class DeathDecision:
    """What is to be done about a job after a death."""

    blame: str = ""  # why its start has failed, "" = it has not
    wait_s: float = 0.0  # that it is to wait, so that it does not run beside other suspects
    cleared: tuple[int, ...] = ()  # jobs that waited so, and are suspected of nothing any more


@dataclass(frozen=True, slots=True)
class _Death:
    time_s: float
    jobs: frozenset[int]


class SpawnerDeathJudge:
    """Of a cluster. Forgotten when the server ends: two deaths later it knows as much again."""

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._deaths: dict[_Key, _Death] = {}  # oldest first
        self._blamed: set[int] = set()
        self._apart: set[int] = set()  # jobs that were told to wait

    def judge(
        self, job: int, at: tuple[str, str], death: SpawnerDeath, now: float
    ) -> DeathDecision:
        """Of a job that ended with this death. at: the node, and the run of its agent."""
        self._note((*at, death.number), death, now)
        counted = {one: self._seen(one) for one in sorted({job, *death.jobs})}
        times, share = counted[job]
        if times < _SUSPICIOUS or counted[job] != max(counted.values()):
            return DeathDecision()
        equally_suspect = [one for one, seen in counted.items() if seen == (times, share)]
        text = f"the process that owns the ranks died {times} times while the job ran"
        if len(equally_suspect) == 1:
            self._blamed.add(job)
            blame = f"{text}, and no other job was there each time"
            return DeathDecision(blame=blame, cleared=self._clear())
        if not _waits(equally_suspect.index(job), len(equally_suspect), times):
            return DeathDecision()
        self._apart.add(job)
        wait_s = (SUSPECT_WAIT_S + self._round_s) * 2.0 ** min((times - _SUSPICIOUS) // 2, 20)
        return DeathDecision(wait_s=min(wait_s, LONGEST_S))

    def _clear(self) -> tuple[int, ...]:
        """Jobs that were told to wait for what others turn out to be to blame for."""
        cleared = {job for job in self._apart if self._seen(job)[0] < _SUSPICIOUS}
        self._apart -= cleared
        return tuple(sorted(cleared))

    def _note(self, key: _Key, death: SpawnerDeath, now: float) -> None:
        self._deaths.setdefault(key, _Death(now, frozenset(death.jobs)))
        window_s = max(WINDOW_S, ROUNDS * self._round_s)
        self._deaths = {k: one for k, one in self._deaths.items() if now - one.time_s <= window_s}
        self._blamed &= {job for one in self._deaths.values() for job in one.jobs}

    def _seen(self, job: int) -> tuple[int, float]:
        """How many deaths it was there at for which no other is to blame, and its share in them, one part of
        each for everyone who was there."""
        mine = [one.jobs for one in self._deaths.values() if job in one.jobs]
        mine = [jobs for jobs in mine if not (self._blamed & jobs) - {job}]
        return len(mine), round(sum(1.0 / len(jobs) for jobs in mine), 9)


def _waits(position: int, suspects: int, times: int) -> bool:
    """Whether one of several suspects waits after so many deaths. Each two of them are told apart by a binary
    digit of their positions: by each digit in turn half of them wait, then the other half."""
    turn = times - _SUSPICIOUS
    digit = turn // 2 % max((suspects - 1).bit_length(), 1)
    return position >> digit & 1 == turn % 2
