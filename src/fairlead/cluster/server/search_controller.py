"""The controller of searches: begins their trials, stops bad ones, and ends the searches.

A thread of the driver's process. It reads the store and the metrics of jobs, and acts by the same doors as
people: jobs are submitted, cancelled, and given other weights. All that it remembers is in the
store: a trial is written with its job in one transaction, what becomes of it before its job is cancelled. So
whatever it is killed at, the next one goes on where this one was (docs/decisions/0042).
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec.structs import replace

from fairlead.cluster.front.caller_roles import check_admin, check_person
from fairlead.cluster.front.facade import ConflictError, NotFoundError, TooManyError
from fairlead.cluster.front.visible_tenants import may_see
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import ENDED_STATES
from fairlead.cluster.protocol.read_study import check_study, check_trial, longest_trial, trial_spec
from fairlead.cluster.protocol.study import SearchState, StudySpec, TrialState
from fairlead.cluster.searching.samplers import check_sampler
from fairlead.cluster.server.live_search import LiveSearch
from fairlead.cluster.server.sampler_process import SamplerProcess, SuggestionError
from fairlead.cluster.server.search_doors import JobLook, SearchDoors, WrittenTrials
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.server.submission_checks import check_rates_known
from fairlead.cluster.server.submissions import SubmissionQueue
from fairlead.cluster.server.tenant_limits import TenantAdmission
from fairlead.cluster.store.metric_store import LastValue, read_curves_of, read_lasts
from fairlead.cluster.store.rows import JobRow, SearchRow, TrialRow
from fairlead.cluster.store.tokens import check_tenant
from fairlead.errors import FairleadError, InputError, StoreError

POLL_S = 0.5  # between looks at what trials have reported
RETRY_S = 5.0  # until something is tried again that was refused
LATE_S = 10.0  # that a job's last value may come after its end
MAX_OPEN = 1_000  # searches that have not ended
MAX_OPEN_OF_TENANT = (
    100  # of these, so that no tenant keeps the others from searching; admins may have more
)
MIN_CHANGE = 0.01  # of a weight, below which it stays as it is
_log = logging.getLogger(__name__)


class SearchController:
    """``create`` and ``stop`` from any thread."""

    def __init__(
        self,
        loop: ServerLoop,
        directory: Path,
        submissions: SubmissionQueue,
        tenants: TenantAdmission,
        doors: SearchDoors,
    ) -> None:
        """directory: of the cluster's state."""
        self._state = loop.state
        self._directory = directory
        self._submissions = submissions
        self._tenants = tenants
        self._doors = doors
        self._rows: dict[int, SearchRow] = {}  # open searches; changed by the driver's thread
        self._keys: dict[str, SearchRow] = {}  # of searches since the start
        self._next = 0
        self._searches: dict[int, LiveSearch] = {}  # of this thread
        self._seen: dict[int, LastValue] = {}  # job -> its last value, as it was read
        self._sampler = SamplerProcess()
        self._troubles: set[str] = set()  # that have been told
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="searches", daemon=True)
        loop.listen_to_ends(lambda _: self._news.set())

    def start(self) -> None:
        """Once the state is recovered."""
        rows = self._state.store.searches()
        self._next = rows[-1].id + 1 if rows else 0
        self._rows = {row.id: row for row in rows if row.open}
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Begin nothing any more. Neither a sampler nor a store that cannot be written is waited for."""
        self._closed.set()
        self._news.set()
        self._sampler.kill()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # --- people ------------------------------------------------------------------------------------

    def create(self, caller: Caller, study: StudySpec, tenant: str = "", key: str = "") -> int:
        """Id of the search, once it is durable. key: as of a submission."""
        check_person(caller)
        if tenant and tenant != caller.tenant:
            check_admin(caller)
            check_tenant(tenant)
        check_study(study)
        check_sampler(study)
        example = trial_spec(study, 0, {})
        check_rates_known("job", example, self._state.options.catalogue)
        owner = tenant or caller.tenant or "default"
        mark = f"{caller.user}/search key {key}" if key else ""
        is_known = bool(mark) and self._state.store.key(mark) is not None  # it is asked again
        if is_known:
            self._tenants.check_change(caller)
        elif caller.role != "admin":
            self._tenants.check_study(owner, study, longest_trial(study))

        def enter() -> SearchRow:
            known = self._known(mark)
            if known is not None:
                if known.study != study:
                    raise ConflictError(f"key: {key!r} was used before, for another search")
                return known
            if len(self._rows) >= MAX_OPEN:
                raise ConflictError(f"there are {MAX_OPEN:,} searches that have not ended already")
            if caller.role != "admin":
                self._check_open(owner)
            row = SearchRow(
                id=self._next,
                tenant=owner,
                user=caller.user,
                study=study,
                started_s=self._state.now_s(),
                by_admin=caller.role == "admin",
            )
            self._next += 1
            self._put(row)
            if mark:
                self._keys[mark] = row
                self._state.write(lambda t: t.put_key(mark, [row.id]))
            return row

        row: SearchRow = self._doors.change(enter)
        self._news.set()
        return row.id

    def _check_open(self, tenant: str) -> None:
        if sum(row.tenant == tenant for row in self._rows.values()) >= MAX_OPEN_OF_TENANT:
            raise ConflictError(
                f"tenant {tenant!r}: may have {MAX_OPEN_OF_TENANT:,} searches that have not ended, and has"
            )

    def _known(self, mark: str) -> SearchRow | None:
        """The search of an earlier call with this key."""
        if not mark:
            return None
        ids = self._state.store.key(mark)
        return self._keys.get(mark) if ids is None else self._state.store.search(ids[0])

    def stop(self, caller: Caller, number: int) -> None:
        """End a search and its trials for good."""
        check_person(caller)
        row = self._state.store.search(number) if 0 <= number < 1 << 62 else None
        if row is None or not may_see(caller, row.tenant):
            raise NotFoundError(f"search {number}: there is none")
        self._tenants.check_change(caller)

        def run() -> None:
            if not self._end(number, "stopped", f"stopped by {caller.user}"):
                raise ConflictError(f"search {number}: has ended already")

        self._doors.change(run)
        self._news.set()

    def _end(self, number: int, state: SearchState, reason: str) -> bool:
        """A search is over (the driver's thread). Returns whether it was not before."""
        row = self._rows.get(number)
        if row is None or row.state != "running":
            return False
        now_s = self._state.now_s()
        self._put(replace(row, state=state, reason=reason, waiting_reason="", ended_s=now_s))
        return True

    def _put(self, row: SearchRow) -> None:
        """An open search is as this row says from now on (the driver's thread)."""
        self._rows[row.id] = row
        self._state.write(lambda t: t.put_search(row))

    # --- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._news.wait(POLL_S if self._rows else None)
                self._news.clear()
                if not (self._state.halted or self._state.commit_error or self._closed.is_set()):
                    self._look()
        finally:
            self._sampler.close()

    def _look(self) -> None:
        try:
            self._doors.audit.write_rest()
            self._troubles.discard("audit log")
        except StoreError as problem:  # nothing is done that cannot be written down
            self._tell("audit log", str(problem))
            return
        for number in list(self._rows):
            self._adopt_all()
            self._guarded(number, self._look_at_search)

    def _look_at_search(self, number: int) -> None:
        # As it is now: a look at a thousand takes a while, and one of them may have been stopped meanwhile
        row = self._rows[number]
        search = self._searches.get(number)
        if search is None:
            if self._state.store.search(number) is None:  # it is not durable yet
                return
            search = self._searches[number] = self._loaded(row)
        search.row = row
        self._turn(search)
        self._troubles.discard(f"search {number}")

    def _adopt_all(self) -> None:
        """Take over, and write into the audit log, the trials that have become durable since."""
        for number, search in list(self._searches.items()):
            if search.asked is not None and search.asked.done():
                self._guarded(number, lambda number: self._adopt(self._searches[number]))

    def _guarded(self, number: int, do: Callable[[int], None]) -> None:
        """Do something for a search; of what is wrong with it the others have nothing."""
        try:
            do(number)
        except FairleadError as problem:
            self._tell(f"search {number}", str(problem))
        except Exception:
            if f"search {number}" not in self._troubles:
                _log.exception("search %d cannot go on", number)
            self._troubles.add(f"search {number}")

    def _tell(self, what: str, trouble: str) -> None:
        """Say once what is wrong."""
        if what not in self._troubles and not self._closed.is_set():
            self._troubles.add(what)
            _log.warning("%s: %s", what, trouble)

    def _loaded(self, row: SearchRow) -> LiveSearch:
        """A search as the store has it, with what its trials have reported."""
        search = LiveSearch(row, self._state.store.trials(row.id))
        trials = {trial.job: trial.number for trial in search.trials.values()}
        curves = read_curves_of(self._directory, trials, row.study.metric)
        for job, curve in curves.items():
            search.note_curve(trials[job], curve)
        return search

    def _turn(self, search: LiveSearch) -> None:
        """Do what is to be done for a search now."""
        self._adopt(search)
        looks = {trial.number: self._look_at(trial.job) for trial in search.running}
        over = {number: look for number, look in looks.items() if look.state in ENDED_STATES}
        self._read(search)  # behind the look at the jobs: a job's metrics come before its end
        changed = [self._decide(search, trial, over) for trial in search.running]
        self._change(search, [trial for trial in changed if trial is not None], over.keys())
        if search.row.state == "running":
            reason, wished = search.why_over()
            if reason:
                state: SearchState = "completed" if wished else "stopped"
                self._doors.change(lambda: self._end(search.row.id, state, reason))
                self._news.set()
            else:
                self._balance(search)
                self._ask(search)
        elif search.is_over:
            self._settle(search)

    def _look_at(self, job: int) -> JobLook:
        """A job as it is now. Its state is looked at once: where a round ends just then, the next look may
        still find the state that it had before."""
        row = self._job(job)
        if row is None:
            return JobLook("dropped", "nothing is known of its job any more")
        return JobLook(self._doors.displayed_state(row), row.reason)

    def _job(self, job: int) -> JobRow | None:
        return self._state.registry.jobs.get(job) or self._state.store.job(job)

    def _is_over(self, job: JobRow | None) -> bool:
        return job is None or self._doors.displayed_state(job) in ENDED_STATES

    def _read(self, search: LiveSearch) -> None:
        """Take over what running trials have reported since."""
        metric = search.study.metric
        jobs = {trial.job: trial.number for trial in search.running}
        lasts = read_lasts(self._directory, jobs, metric)
        news = [job for job, last in lasts.items() if self._seen.get(job) != last]
        curves = read_curves_of(self._directory, news, metric) if news else {}
        for job, curve in curves.items():
            search.note_curve(jobs[job], curve)
            self._seen[job] = lasts[job]

    def _decide(
        self,
        search: LiveSearch,
        trial: TrialRow,
        over: dict[int, JobLook],
    ) -> TrialRow | None:
        """Return what has become of a running trial; None = nothing new."""
        if trial.number in over:
            return self._ended(search, trial, over[trial.number])
        value, step = search.value(trial.number) or (None, None)
        trial = replace(trial, value=value, step=step)
        if search.row.state != "running":
            return replace(trial, state="stopped", reason=search.row.reason)
        verdict = search.verdict(trial.number)
        if verdict.reason:
            return replace(trial, state="pruned", reason=verdict.reason, rungs=verdict.rungs)
        return replace(trial, rungs=verdict.rungs) if verdict.rungs != trial.rungs else None

    def _ended(self, search: LiveSearch, trial: TrialRow, job: JobLook) -> TrialRow | None:
        """Return how a trial has ended whose job has; None = its value may still come."""
        value, step = search.value(trial.number) or (None, None)
        trial = replace(trial, value=value, step=step)

        def ended(state: TrialState, reason: str) -> TrialRow:
            return replace(trial, state=state, reason=reason[:1000])

        if job.state == "cancelled":
            return ended("stopped", job.reason or "its job was cancelled")
        if job.state != "completed":
            return ended("failed", job.reason or f"its job was {job.state}")
        if value is not None:
            return ended("completed", "")
        since = search.ended_s.setdefault(trial.number, time.monotonic())
        if time.monotonic() - since < LATE_S:
            return None
        return ended("failed", f"it has reported no {search.study.metric}")

    def _change(self, search: LiveSearch, trials: list[TrialRow], ended: Collection[int]) -> None:
        """Make durable what has become of trials, and cancel the jobs of those that are over. ended: numbers
        of those whose jobs have ended by themselves."""
        unsettled = [search.trials[number] for number in search.unsettled]
        if trials or any(not self._is_over(self._job(trial.job)) for trial in unsettled):
            done: WrittenTrials = self._doors.change(lambda: self._write(trials, ended, unsettled))
            for trial in done.trials:
                search.note_trial(trial)
            self._doors.audit.note(search.row, "cancel", done.cancelled)
        for trial in [search.trials[number] for number in search.unsettled]:
            if self._is_over(self._job(trial.job)):
                search.unsettled.discard(trial.number)
                self._seen.pop(trial.job, None)

    def _write(
        self, trials: list[TrialRow], ended: Collection[int], unsettled: list[TrialRow]
    ) -> WrittenTrials:
        """Write these trials and cancel the jobs of those that are over (the driver's thread). Returns what
        is written. A trial whose job has ended since it was looked at is not stopped any more: it has ended
        as its job has, which is seen the next time."""
        done = WrittenTrials([], [])
        for trial in trials:
            job = self._job(trial.job)
            if trial.state != "running" and trial.number not in ended:
                if job is None or self._is_over(job):
                    continue
                done.cancelled.extend(self._cancel(trial, job))
            self._state.write(lambda t, trial=trial: t.put_trial(trial))  # type: ignore[misc]
            done.trials.append(trial)
        for trial in unsettled:
            job = self._job(trial.job)
            if job is not None and not self._is_over(job):
                done.cancelled.extend(self._cancel(trial, job))
        return done

    def _cancel(self, trial: TrialRow, job: JobRow) -> list[TrialRow]:
        """Cancel the job of a trial that is over. Returns the trial, or nothing where it is not done."""
        if job.id not in self._state.registry.jobs:  # it is about to be
            return []
        job.stopped_by = f"{trial.state} by search {trial.search}: {trial.reason}"
        self._state.registry.dirty_jobs.add(job.id)
        self._doors.cancel(job)
        return [trial]

    def _balance(self, search: LiveSearch) -> None:
        """Share the weight of the search among its trials."""
        wanted: list[tuple[int, float]] = []
        for number, weight in search.weights().items():
            job = search.trials[number].job
            row = self._state.registry.jobs.get(job)
            if row is not None and abs(weight / row.weight - 1.0) > MIN_CHANGE:
                wanted.append((job, weight))

        def run() -> None:
            for job, weight in wanted:
                row = self._state.registry.jobs.get(job)
                if row is not None and row.open and not self._is_over(row):
                    self._doors.set_weight(row, weight)

        if wanted:
            self._doors.change(run)

    def _ask(self, search: LiveSearch) -> None:
        """Begin another trial, if one is wanted."""
        if not search.wants_trial:
            self._note_waiting(search, "")
        if search.asked or not search.wants_trial or time.monotonic() < search.ask_from_s:
            return
        search.ask_from_s = time.monotonic() + RETRY_S  # where it is refused, or fails
        if search.suggested is None:
            number = len(search.trials)
            try:
                suggestion = self._sampler.suggest(search.task())
            except SuggestionError as problem:
                reason = f"no parameters can be suggested: {problem}"
                self._doors.change(lambda: self._end(search.row.id, "stopped", reason))
                return
            search.suggested = TrialRow(
                search=search.row.id,
                number=number,
                parameters=suggestion.parameters,
                notes=suggestion.notes,
            )
        number = search.row.id
        submission = search.submission(search.suggested, lambda: self._is_running(number))
        try:
            check_trial(submission.specs[0], search.suggested.parameters)
        except InputError as problem:  # the study is from before this was made sure of
            trial = f"trial {search.suggested.number} cannot begin: {problem}"
            self._doors.change(lambda: self._end(search.row.id, "stopped", trial))
            return
        try:
            if not search.row.by_admin:
                self._tenants.check(submission.tenant, 1, submission.specs)
        except (ConflictError, TooManyError) as problem:
            # The limit: what follows in the sentence changes every second
            self._note_waiting(search, str(problem).partition("; ")[0])
            return
        search.asked = self._submissions.submit(submission)
        self._tenants.follow(submission.tenant, 1, search.asked)
        search.asked.add_done_callback(lambda _: self._news.set())

    def _is_running(self, number: int) -> bool:
        row = self._rows.get(number)
        return row is not None and row.state == "running"

    def _note_waiting(self, search: LiveSearch, reason: str) -> None:
        """Have people told why no trial of a search begins, "" = that one does."""

        def run() -> None:
            row = self._rows.get(search.row.id)
            if row is not None and row.state == "running":
                self._put(replace(row, waiting_reason=reason))

        # For its owner: users shall not fill the server's log
        if search.row.waiting_reason != reason:
            _log.info("search %d: %s", search.row.id, reason or "goes on")
            self._doors.change(run)

    def _adopt(self, search: LiveSearch) -> None:
        """Take over the trial that was asked for last, once it is durable."""
        if search.asked is None or not search.asked.done():
            return
        asked, search.asked = search.asked, None
        trial = search.suggested
        assert trial is not None
        try:
            (job,) = asked.result()
        except StoreError:  # it is asked for again
            return
        except ConflictError as problem:  # likewise, unless the search was stopped
            self._note_waiting(search, str(problem).partition("; ")[0])
            return
        self._note_waiting(search, "")
        search.suggested, search.ask_from_s = None, 0.0
        trial = replace(trial, job=job)
        search.note_trial(trial)
        self._doors.audit.note(search.row, "submit", [trial])

    def _settle(self, search: LiveSearch) -> None:
        """Nothing is left to be done for a search."""

        def run() -> None:
            row = self._rows.pop(search.row.id, None)
            if row is not None:
                settled = replace(row, settled=True)
                self._state.write(lambda t: t.put_search(settled))

        self._doors.change(run)
        del self._searches[search.row.id]
