"""Which job brings about that agents, or the processes that own the ranks of nodes (spawners), die.

The kernel does not tell who has sent a signal. But who was there each time is known: a job that was there
at several deaths, and more often than any other that was there at the last, is to blame for it. Where
several were there alike, half of them wait for a while, and after the next death the other half, so that
deaths tell; they wait no longer once another job is to blame for what they were suspected of.

Spawners do not die by themselves: two deaths are suspicious. An agent may also be lost with its machine or
the network. So its deaths raise suspicion on two nodes, or at the fourth on one; what ends agents of several
nodes at one moment is no job but one that was on all of them; and nobody is to blame who was there at less
than half of the deaths of agents.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.cluster.protocol.messages import SpawnerDeath

WINDOW_S = 1800.0  # deaths of so long count, and of so many rounds
ROUNDS = 8
SUSPECT_WAIT_S = 30.0  # that those wait who are not to run beside others, and a round
MAX_WAIT_S = 3600.0
_SUSPICIOUS_DEATHS = 2  # deaths at which a job was there
_SUSPICIOUS_ON_ONE_NODE = 4  # the same of agents, all of one node
_HOPELESS_DEATHS = 3  # deaths of agents after which a job that runs on one node is not tried again
DeathKey = tuple[str, str, int]  # node, run of its agent, number of the death


@dataclass(frozen=True, slots=True)
class DeathDecision:
    """A decision about a job after a death."""

    node: str = ""  # of that death
    blame: str = ""  # why its attempt has failed, "" = it has not
    hopeless: bool = False  # it is to be given up: it takes node after node
    suspicion: str = ""  # then: why it waits
    wait_s: float = 0.0  # that it is to wait, so that it does not run beside other suspects
    cleared: tuple[int, ...] = ()  # jobs that waited so, and are suspected of nothing any more


@dataclass(slots=True)
class _Death:
    time_s: float
    nodes: set[str]  # several, where their agents died at one moment
    jobs: frozenset[int]
    last_seen_s: float | None = (
        None  # monotonic; when the agent was heard of last, None = a spawner's
    )


@dataclass(frozen=True, slots=True)
class _Presence:
    """The deaths at which a job was, and for which no other is to blame."""

    deaths: tuple[_Death, ...]
    share: float  # one part of each death for everyone who was there

    @property
    def rank(self) -> tuple[int, float]:
        """By which the more suspicious of two jobs is the larger."""
        return len(self.deaths), self.share

    @property
    def nodes(self) -> list[str]:
        return sorted({node for death in self.deaths for node in death.nodes})

    @property
    def agents(self) -> int:
        """Deaths of agents among them."""
        return sum(death.last_seen_s is not None for death in self.deaths)

    @property
    def text(self) -> str:
        """Return half a sentence on the deaths that happened while the job ran."""
        times = f"{len(self.deaths)} times while the job ran"
        if not self.agents:
            return f"the process that owns the ranks died {times}"
        who = "an agent" if self.agents == len(self.deaths) else "an agent, or its spawner,"
        return f"{who} died or fell silent {times} (on {', '.join(self.nodes)})"


class DeathJudge:
    """Judges deaths in one cluster. Its memory ends with the server: after a few deaths it knows as much
    again."""

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._deaths: dict[DeathKey, _Death] = {}  # oldest first
        self._blamed: set[int] = set()
        self._waiting: set[int] = set()  # jobs that were told to wait

    def note_spawner(self, at: tuple[str, str], death: SpawnerDeath, now: float) -> DeathKey:
        """A spawner died. at: the node, and the run of its agent. Told of twice, it counts once."""
        key = (*at, death.number)
        self._note(key, _Death(now, {at[0]}, frozenset(death.jobs)), now)
        return key

    def note_agent(
        self, key: DeathKey, jobs: Iterable[int], *, now: float, last_seen_s: float, moment_s: float
    ) -> None:
        """An agent died, or fell silent for good. jobs: whose ranks may have run there; last_seen_s: when it
        was heard of last, monotonic; moment_s: agents of other nodes that were heard of last within so many
        seconds of that died at one moment with it."""
        present = frozenset(jobs)
        for death in self._deaths.values():
            if death.last_seen_s is None or key[0] in death.nodes:
                continue
            if abs(death.last_seen_s - last_seen_s) <= moment_s:
                death.nodes.add(key[0])
                death.jobs &= present
                self._deaths.setdefault(key, death)
                return
        self._note(key, _Death(now, {key[0]}, present, last_seen_s), now)

    def judge(self, job: int, key: DeathKey, *, one_node: bool = True) -> DeathDecision:
        """Judge the death with which a job ended. one_node: it ran on no other node; the more nodes a job
        has, the more often it is there when one dies for another reason."""
        node, death = key[0], self._deaths.get(key)
        if death is None or job not in death.jobs:
            return DeathDecision(node)
        seen = {one: self._presence(one) for one in sorted(death.jobs)}
        mine = seen[job]
        if not self._is_suspicious(mine) or mine.rank != max(one.rank for one in seen.values()):
            return DeathDecision(node)
        equally_suspect = [one for one, other in seen.items() if other.rank == mine.rank]
        if len(equally_suspect) == 1:
            self._blamed.add(job)
            blame = f"{mine.text}, and no other job was there each time"
            hopeless = one_node and mine.agents >= _HOPELESS_DEATHS and len(mine.nodes) > 1
            return DeathDecision(node, blame=blame, hopeless=hopeless, cleared=self._clear())
        times = len(mine.deaths)
        if not _waits(equally_suspect.index(job), len(equally_suspect), times):
            return DeathDecision(node)
        self._waiting.add(job)
        wait_s = (SUSPECT_WAIT_S + self._round_s) * 2.0 ** min(
            (times - _SUSPICIOUS_DEATHS) // 2, 20
        )
        return DeathDecision(node, suspicion=mine.text, wait_s=min(wait_s, MAX_WAIT_S))

    def _is_suspicious(self, presence: _Presence) -> bool:
        times, agents = len(presence.deaths), presence.agents
        if times - agents >= _SUSPICIOUS_DEATHS:
            return True
        if times < (_SUSPICIOUS_DEATHS if len(presence.nodes) > 1 else _SUSPICIOUS_ON_ONE_NODE):
            return False
        return 2 * agents >= self._agent_deaths(presence)

    def _agent_deaths(self, presence: _Presence) -> int:
        """Return how many deaths of agents there were for which no other job is to blame."""
        mine = {id(death) for death in presence.deaths}
        return sum(
            id(death) in mine or not self._blamed & death.jobs
            for death in self._different()
            if death.last_seen_s is not None
        )

    def _clear(self) -> tuple[int, ...]:
        """Jobs that were told to wait for what others turn out to be to blame for."""
        cleared = {job for job in self._waiting if not self._is_suspicious(self._presence(job))}
        self._waiting -= cleared
        return tuple(sorted(cleared))

    def _note(self, key: DeathKey, death: _Death, now: float) -> None:
        self._deaths.setdefault(key, death)
        window_s = max(WINDOW_S, ROUNDS * self._round_s)
        self._deaths = {k: one for k, one in self._deaths.items() if now - one.time_s <= window_s}
        self._blamed &= {job for one in self._deaths.values() for job in one.jobs}

    def _presence(self, job: int) -> _Presence:
        """At which deaths a job was for which no other is to blame."""
        mine = [one for one in self._different() if job in one.jobs]
        mine = [one for one in mine if not (self._blamed & one.jobs) - {job}]
        return _Presence(tuple(mine), round(sum(1.0 / len(one.jobs) for one in mine), 9))

    def _different(self) -> list[_Death]:
        """All deaths; those of one moment are one."""
        return list({id(death): death for death in self._deaths.values()}.values())


def _waits(position: int, suspects: int, times: int) -> bool:
    """Return whether one of several suspects waits after so many deaths. Each two of them are told apart by a
    binary digit of their positions: by each digit in turn half of them wait, then the other half."""
    turn = times - _SUSPICIOUS_DEATHS
    digit = turn // 2 % max((suspects - 1).bit_length(), 1)
    return position >> digit & 1 == turn % 2
