"""Which nodes are to blame for what fails on them. Pure: records in, judgements out.

Several jobs failing on one node that get further elsewhere, or cannot even be started here while the same
command is started elsewhere, are the fault of the node. See docs/decisions/0025; jobs: ``failures``.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from fairlead.cluster.store.failures import FailureRecord, Program

WINDOW_S = 900.0  # a node is judged by the failures of so long
MAX_RECORDS = 4096  # failures and good starts of all jobs
MIN_WEAK_JOBS, MIN_STRONG_JOBS = 3, 2  # jobs that have to fail on a node: see ``NodeJudge``
UNSURE_FACTOR = (
    2.0  # so much longer it has to run elsewhere where the step at which it failed is not known
)
MIN_PARTIES = 2  # parties whose word takes a node from others: see ``NodeJudge``


@dataclass(frozen=True, slots=True)
class GoodStart:
    """An attempt that trains, or has ended as it should."""

    job: int
    node: str
    time_s: float  # when it began to train
    program: Program
    lasted_s: float = 0.0  # for which it had trained when this was noted
    step: float = -1.0  # that it had reached by then, -1 = not known

    def was_bad(self, record: FailureRecord) -> bool:
        """Return whether it is the begin of an attempt that failed of what a healthy node does not bring
        about."""
        mine = self.job == record.job and self.node == record.node and record.of_node
        return mine and 0.0 <= record.time_s - self.time_s <= record.ran_s

    def passed(self, record: FailureRecord) -> bool:
        """Return whether the job that failed got further here than where it failed: it began after that,
        elsewhere, went past the place, and ran for as long."""
        if self.job != record.job or self.node == record.node or self.time_s <= record.time_s:
            return False
        place = max(float(record.step), record.reached)
        if place >= 0.0 and 0.0 <= self.step <= place:
            return False
        sure = record.step >= 0 and self.step >= 0.0
        return self.lasted_s >= (1.0 if sure else UNSURE_FACTOR) * record.worked_s


def _nobody(node: str) -> Collection[str]:
    del node
    return ()


@dataclass(frozen=True, slots=True)
class Parties:
    """Those who judge a node independently of each other: tenants, where there are several, else users."""

    known: Collection[str] = ()  # who have jobs, and would suffer from the loss of a node
    by_tenant: bool = False
    content: Callable[[str], Collection[str]] = (
        _nobody  # node -> those whose jobs run well there now
    )

    def of(self, record: FailureRecord) -> str:
        """Return the group to which a failed job belongs."""
        return record.tenant if self.by_tenant else record.user


class NodeJudge:
    """Which nodes are to blame for what fails on them.

    A failure speaks against a node if nothing has been started well there since (what fails later of what a
    healthy node does not bring about was not), and if the job did not
    fail on another node without getting further on a third. It is strong if the job has since got further on
    another node than here (see ``GoodStart.passed``), or if its error is one that a healthy node does not
    bring about; it is weak if it could not even be started while the same command is started on another node.
    ``MIN_STRONG_JOBS`` jobs of the first kind are enough, or ``MIN_WEAK_JOBS`` of both kinds together. That
    another job runs the same program elsewhere says nothing of one that started: a bug, a wrong option and
    bad data are a job's own.

    What fails for storage speaks against a node only if others do well with the same storage meanwhile: an
    outage that has passed looks alike, but nobody gets on in the middle of it.

    What jobs say of themselves (exceptions, exit codes, files that are missing) their owners can forge, and
    so take a node from others. So where there are several parties, ``MIN_PARTIES`` ones must speak against
    the node, and one more for each whose jobs run well there meanwhile. The word of a party counts if one of
    its jobs says what a healthy node does not bring about, or has since got as far on another node as here:
    that a job fails which fails everywhere is seen only then.
    """

    def __init__(self) -> None:
        self.failures: deque[FailureRecord] = deque(maxlen=MAX_RECORDS)
        self.good: deque[GoodStart] = deque(maxlen=MAX_RECORDS)

    @classmethod
    def of(cls, failures: Iterable[FailureRecord], good: Iterable[GoodStart]) -> "NodeJudge":
        """Return the judge as it was before the server was restarted. Failures for which a node was blamed
        have been dealt with and do not count again."""
        judge = cls()
        counted = [record for record in failures if not record.blames_node]
        judge.failures.extend(sorted(counted, key=lambda record: record.time_s))
        well = [start for start in good if not any(map(start.was_bad, counted))]
        judge.good.extend(sorted(well, key=lambda start: start.time_s))
        return judge

    def failed(self, record: FailureRecord) -> None:
        """An attempt has failed."""
        self.failures.append(record)
        if record.of_node:
            well = [start for start in self.good if not start.was_bad(record)]
            self.good = deque(well, MAX_RECORDS)

    def went_well(self, start: GoodStart) -> None:
        """An attempt trains, or has ended as it should."""
        self.good.append(start)

    def forgive(self, node: str) -> None:
        """Forget the failures on a node that has been mended, or dealt with."""
        records = [record for record in self.failures if record.node != node]
        self.failures = deque(records, MAX_RECORDS)

    def runs_elsewhere(self, record: FailureRecord) -> bool:
        """Return whether its command has been seen to run on another node. That says nothing of a directory
        for its checkpoints."""
        return not record.directory and any(
            start.node != record.node and _same_command(start.program, record)
            for start in self.good
        )

    def suspects(
        self, now_s: float, nodes: Collection[str], parties: Parties | None = None
    ) -> dict[str, list[FailureRecord]]:
        """Nodes that are to blame -> the newest failure there of each job that speaks against them, oldest
        first; of the nodes given, but never all of these."""
        parties = parties or Parties()
        recent = self._recent(now_s)
        found = {}
        for node in sorted({r.node for r in recent} & set(nodes)):
            records = self._against(node, recent)
            if self._weighty(records) and self._independent(node, records, parties):
                found[node] = records
        return found if len(found) < len(nodes) else {}

    def _against(self, node: str, recent: Sequence[FailureRecord]) -> list[FailureRecord]:
        since = max((g.time_s for g in self.good if g.node == node), default=-1.0)
        mine = [r for r in recent if r.node == node and r.time_s > since]
        strong: dict[int, FailureRecord] = {}
        weak: dict[int, FailureRecord] = {}
        own_storage = self._own_storage_fails(mine, recent)
        for record in mine:
            if record.names_storage and not own_storage:
                continue
            if self.fails_elsewhere(record, recent):
                continue
            if self._is_strong(record):
                strong[record.job] = record
            elif self._starts_elsewhere(record):
                weak[record.job] = record
        return sorted((weak | strong).values(), key=lambda r: r.time_s)

    def _own_storage_fails(
        self, mine: Sequence[FailureRecord], recent: Iterable[FailureRecord]
    ) -> bool:
        """Return whether a node fails for storage before and after a job that failed there for it did well on
        another, where nobody has failed for it since."""
        failed = [record for record in mine if record.names_storage]
        others = [r for r in recent if r.names_storage and r.node != mine[0].node] if mine else []
        well = [
            good
            for good in self.good
            if any(good.passed(record) for record in failed)
            and not any(r.node == good.node and r.time_s > good.time_s for r in others)
        ]
        return any(good.time_s < record.time_s for good in well for record in failed)

    def _is_strong(self, record: FailureRecord) -> bool:
        return record.of_node or self.got_further_elsewhere(record)

    def _weighty(self, records: Collection[FailureRecord]) -> bool:
        """Return whether these failures, one per job, are enough to blame a node."""
        strong = sum(map(self._is_strong, records))
        return strong >= MIN_STRONG_JOBS or len(records) >= MIN_WEAK_JOBS

    def _independent(self, node: str, records: Collection[FailureRecord], parties: Parties) -> bool:
        """Return whether several owners' jobs speak against the node: none may take it from others."""
        if len({*parties.known, *map(parties.of, records)}) == 1:
            return True  # nobody else suffers from it
        if self._weighty([r for r in records if not r.forgeable]):
            return True
        content = set(parties.content(node))
        against = {parties.of(r) for r in records if self._is_confirmed(r)} - content
        return len(against) >= MIN_PARTIES + len(content)

    def _is_confirmed(self, record: FailureRecord) -> bool:
        """Return whether more speaks for it than that the program runs elsewhere."""
        return record.of_node or not record.forgeable or self.got_further_elsewhere(record)

    def fails_elsewhere(
        self, record: FailureRecord, recent: Iterable[FailureRecord] | None = None
    ) -> bool:
        """Return whether this job, or one that runs the same program in the same place, has failed on another
        node, and has not got further on a third since."""
        for other in self.failures if recent is None else recent:
            if other.node == record.node or (other.of_storage and not record.names_storage):
                continue
            similar = (other.program, other.place) == (record.program, record.place)
            if other.job != record.job and not (record.place and similar):
                continue
            if not any(g.node != record.node and g.passed(other) for g in self.good):
                return True
        return False

    def got_further_elsewhere(self, record: FailureRecord) -> bool:
        """Return whether its job has since got further on another node."""
        return any(good.passed(record) for good in self.good)

    def _starts_elsewhere(self, record: FailureRecord) -> bool:
        """Return whether it could not even be started here, and the same command is started on another node.
        What only its owner knows the path of may have been removed since: that counts only if it was started
        later."""
        if record.kind != "not_started" or record.directory:
            return False
        return any(
            start.node != record.node
            and _same_command(start.program, record)
            and (not record.forgeable or start.time_s > record.time_s)
            for start in self.good
        )

    def open_questions(self, now_s: float) -> list[FailureRecord]:
        """Failures of which it is not known yet whether their jobs get further elsewhere."""
        found = [record for record in self._recent(now_s) if record.node and not record.of_node]
        of_job: dict[int, list[GoodStart]] = {}
        for good in self.good:
            of_job.setdefault(good.job, []).append(good)
        return [r for r in found if not any(g.passed(r) for g in of_job.get(r.job, ()))]

    def _recent(self, now_s: float) -> list[FailureRecord]:
        """Return the recent failures: one after long work can be told to go well elsewhere only as late."""
        return [r for r in self.failures if now_s - r.time_s - r.worked_s <= WINDOW_S]

    def sentence(self, records: Sequence[FailureRecord]) -> str:
        """Return what speaks against a node, without a full stop. records: as ``suspects`` has found them."""
        further = sum(map(self.got_further_elsewhere, records))
        ill = sum(r.of_node and not self.got_further_elsewhere(r) for r in records)
        absent = len(records) - further - ill
        parts = []
        if further:
            parts.append(f"{_jobs(further)} failed here that run{'s' * (further == 1)} elsewhere")
        if ill:
            parts.append(
                f"{_jobs(ill)} failed here with an error that a healthy node does not cause"
            )
        if absent:
            parts.append(
                f"{_jobs(absent)} could not be started here, with a command that is started elsewhere"
            )
        return ", ".join(parts)


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def _same_command(program: Program, record: FailureRecord) -> bool:
    """Return whether two commands that could not be started are the same. For a command of the node's own the
    name alone counts: another script is found by the same interpreter. A script, directory or environment
    that another job has named is not the same."""
    nodes_own = record.kind == "not_started" and not record.forgeable
    words = 2 if nodes_own else max(len(program), len(record.program))
    return bool(program) and program[:words] == record.program[:words]
