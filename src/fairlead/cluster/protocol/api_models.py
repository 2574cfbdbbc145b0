"""The views of a live cluster for people and tools: the JSON of the HTTP API."""

from typing import Literal, TypeAlias

import msgspec

from fairlead.cluster.protocol.access import Role
from fairlead.cluster.protocol.attempt_end import LOST_ENDS, AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.node_states import NodeState
from fairlead.model.duration_text import duration

JobState = Literal[
    "waiting",
    "running",
    "finishing",
    "preempted",
    "paused",
    "completed",
    "dropped",
    "killed",
    "cancelled",
]
MAX_ADDED_DEVICES = 100_000  # of a type, in a question
FORECAST_OUTCOMES = 20  # from fewer an interval of a forecast is assumed for the most part
# How often an end comes within the interval of its forecast, by whether that rests on checked forecasts.
INTERVAL_WORDS = {True: "8 of 10 times", False: "probably"}
# Why no end is forecast of a job that takes part; "" = one is.
NoEnd: TypeAlias = Literal[
    "",
    "ended",
    "finishing",
    "overdue",
    "stands still",
    "node silent",
    "node unhealthy",
    "being ended",
    "waits for storage",
    "nothing starts",
    "rate unknown",
]
NO_END: dict[NoEnd, str] = {
    "ended": "its processes have ended, which is not booked yet",
    "finishing": "nobody knows how long its script takes after the last step",
    "overdue": "it has run for longer than its steps take, and tells of none",
    "stands still": "it stands still",
    "node silent": "its node is silent",
    "node unhealthy": "it runs on outside the rounds, on a node that is given no jobs",
    "being ended": "its processes are being ended, and it starts again",
    "waits for storage": "nobody knows when its checkpoints can be reached",
    "nothing starts": "nothing is started until nothing of before can run any more",
    "rate unknown": "its rate is not known, neither stated nor measured yet",
}
# How a job stands to its deadline; "" = it has none. "open": nothing is forecast of it; "out of reach": not
# even its best rate is enough; "at risk": the deadline is within the interval of its forecast; "past": it has
# not ended and is late; "withdrawn": cancelled in time.
DeadlineState: TypeAlias = Literal[
    "",
    "open",
    "forecast met",
    "at risk",
    "forecast late",
    "out of reach",
    "past",
    "met",
    "missed",
    "withdrawn",
]
ENDED_STATES: tuple[JobState, ...] = ("completed", "dropped", "killed", "cancelled")


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of the rank that failed first; "" and -1: not known."""

    kind: str  # not_started | exit | signal | exception | stalled
    rank: int
    exit_code: int | None  # negative: the signal that killed it
    type: str  # of the exception, with its module
    message: str
    file: str  # innermost place in the job's own code
    line: int
    function: str
    step: int  # of the whole job


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    id: int
    name: str
    tenant: str
    user: str
    family: str
    scale_factor: int
    weight: float
    state: JobState
    total_steps: float
    steps: float  # done and counted
    saved_step: int
    submitted_s: float  # all times: seconds since the cluster was first started
    started_s: float | None  # its first step
    ended_s: float | None
    node: str  # "" = does not run; several: comma-separated
    accelerator: str
    devices: tuple[int, ...]
    attempt: int
    starts: int
    preemptions: int
    failures: int
    run_s: float  # time on devices, starts included, the wait for them not
    # done again after failures, known when the next attempt has loaded; where none follows, lost
    lost_steps: float
    overhead_s: float  # handover of devices, starting, loading, saving, stopping
    rates: dict[str, float]  # steps/s believed, by accelerator type
    measured_rate: float | None  # steps/s measured where it runs or ran last
    slo_s: float | None
    reason: str  # why it is in this state, one sentence: the last failure, what it waits for
    rho: float | None = (
        None  # finish-time fairness, once completed: JCT over that alone on a 1/n share
    )
    user_estimates: dict[str, float] = {}  # steps/s that its owner stated, by accelerator type
    starts_over: bool = False  # without its progress, whenever it is stopped: it keeps none
    is_suspended: bool = False  # when it is preempted, its program may be parked as it is
    measured_on: str = ""  # accelerator type of the measured rate, "" = beside another job, or none
    failure: FailureView | None = None  # the last one
    retry_in_s: float | None = None  # it failed, and is not tried again before so many seconds
    queued_s: float = 0.0  # since it was submitted, or until it ended, without devices
    age_s: float | None = None  # of what is shown, where the scheduler does not answer; None = new
    # of its steps, where its node has not been heard of since the server was started; None = new
    progress_age_s: float | None = None
    may_have: tuple[int, ...] = ()  # numbers of devices of an elastic job; () = it keeps its own
    rate_known: bool = True  # False: neither stated nor measured, and ``rates`` are made up
    no_end: NoEnd = ""  # why nobody can tell when it ends, where it has not
    save_failed: str = ""  # why its last save failed, whichever start tried; "" = it did not
    save_failed_s: float | None = None  # when
    deadline: DeadlineState = ""
    # until its deadline, of a job that has ended from its end; negative = after it; None = it has none
    deadline_left_s: float | None = None
    # what its newest attempt began from, where that is not what it had kept: "began at step ..."
    origin: str = ""
    after: tuple[str, ...] = ()  # jobs that had or have to end first: "ok:12", "any:array:57"
    array: int | None = None  # its array: the id of the first task; None = it is in none
    array_index: int | None = None  # of this task
    array_count: int | None = None  # tasks of the array; their ids follow each other
    search: int | None = None  # of which it is a trial; None = of none
    trial: int | None = None  # its number there, from 0 on
    parameters: dict[str, bool | int | float | str] = {}  # of the trial

    @property
    def gave_up(self) -> bool:
        """Return whether it has ended before its last step: what it lost is not done again."""
        return self.state in ("cancelled", "dropped", "killed")


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job, from order to end. What was decided on and withdrawn before it was ordered of its
    nodes is none, and has no number here."""

    job: int
    attempt: int
    node: str
    accelerator: str
    devices: tuple[int, ...]
    began_s: float
    ended_s: float | None
    from_step: float
    to_step: float  # what counts of it
    why: str  # it ended, for people
    wait_s: float  # handover of devices; this and the next: as of AttemptStatus, -1 = not known
    start_s: float
    load_s: float
    save_s: float  # all its saves, the last one included
    stop_s: float  # from the order to stop to its end, without saving
    lost_steps: float
    trained_s: float | None = None  # when training began, as the server heard of it
    traceback: str = ""  # of an attempt that failed; of one that hung, the stacks of its ranks
    reached_step: float = (
        -1.0
    )  # done when it ended, as far as was known, kept or not; -1 = not known
    end: AttemptEnd | None = None  # how it ended, None = it has not
    lost_own: bool = False  # its lost steps are its own, which the next one does again
    origin: str = ""  # what it began from, where that is not what its job had kept
    nodes: tuple[str, ...] = ()  # one for each of the devices

    @property
    def overhead_parts_s(self) -> tuple[float, ...]:
        """Seconds of handover, start, load, saves and stop; -1 = not known. No time is in two of them."""
        return (self.wait_s, self.start_s, self.load_s, self.save_s, self.stop_s)

    @property
    def is_step_unknown(self) -> bool:
        """Return whether it trained, or may have, and ended without a word of how far it came: it was lost
        with its server."""
        known = self.reached_step >= 0 or self.to_step > self.from_step
        trained = self.trained_s is not None or self.end in LOST_ENDS
        return self.ended_s is not None and trained and not known

    @property
    def is_step_least(self) -> bool:
        """Return whether it may have done more steps than it told of: it ended before it had saved them, and
        a step counts only when the next one is asked for."""
        return self.ended_s is not None and self.reached_step > self.to_step and not self.lost_own


class ParkedView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits for devices with its processes and its state in the memory of a node."""

    job: int
    attempt: int  # the last that has run
    memory_bytes: int
    age_s: float  # since it was parked


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    name: str
    accelerator: str
    devices: int
    state: NodeState
    host: str
    simulated_devices: bool
    last_seen_s: float | None  # seconds ago
    jobs: tuple[tuple[int, ...], ...]  # per device: the jobs that hold it
    reason: str = ""  # for the state, where one is needed
    state_since_s: float | None = (
        None  # seconds in this state; None = since before the server started
    )
    age_s: float | None = None  # of what is shown, where the scheduler does not answer; None = new
    # "isolated": jobs run as others than the agent, by its table; "jobs run as USER": as the agent's user, so
    # that they can read its files; "" = its agent has not told
    runs_as: str = ""
    # oldest first; to a user, those of their own tenant
    parked: tuple[ParkedView, ...] = ()


def parked_text(node: NodeView) -> str:
    """Return how many jobs are parked on a node, and in how much memory; "" = none."""
    size = sum(one.memory_bytes for one in node.parked)
    return f"{len(node.parked)} in {size / 1e9:.2g} GB" if node.parked else ""


class ReloadAnswer(msgspec.Struct, frozen=True):
    """The changes by a configuration file that was read again. Options by their names in the file."""

    changed: list[str]  # options that hold from now on
    needs_restart: list[str]  # options that are others than at the start, and do not hold


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant: what it was promised and what it got."""

    name: str
    jobs: int  # in the system
    running: int
    done: int
    devices: int  # held now
    share_promised: float  # of all device time, by weights of jobs in the system, now
    share_received: float  # of all device time handed out so far
    device_s: float
    lost_device_s: float  # work done again, and overhead
    mean_rho: (
        float | None
    )  # finish-time fairness of its ended jobs: JCT over JCT alone on a 1/n share
    states: dict[str, int] = {}  # state -> how many of its jobs in the system


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster in one screen."""

    version: str
    now_s: float  # since the cluster was first started, through restarts of its server
    policy: str
    profile: str
    round: int
    round_s: float
    round_ends_in_s: float | None
    jobs: dict[str, int]  # state -> how many
    devices: dict[str, tuple[int, int, int]]  # accelerator type -> (in all, working, held)
    solve: str  # "ok", "under way for 3 s", "failed: ...; the shares of 120 s ago hold"
    solve_s: float | None  # the last one took
    decide_s: float | None  # the last round decision took, without the solve
    journal_records: int
    tenants: tuple[TenantView, ...]
    age_s: float | None = (
        None  # of the state that is shown, where the scheduler does not answer; None = new
    )
    backup_age_s: float | None = None  # of the newest backup; None = there is none, or nobody knows
    halted: str = ""  # why nothing is scheduled or accepted, and what to do; "" = it is not so
    unwritable: str = ""  # why nothing can be written down just now; "" = it can
    checkpoints_trouble: str = ""  # why jobs get no directory for their checkpoints; "" = they do
    await_storage: int = 0  # so many jobs
    cannot_save: int = 0  # jobs that hold devices, and have not saved since a save failed
    cannot_save_s: float | None = None  # for so long that is so of one of them
    n_past_deadline: int = 0  # jobs that have not ended and are past their deadlines
    runs_as: dict[str, int] = {}  # ``NodeView.runs_as`` -> how many nodes
    restart_s: float | None = (
        None  # that a start is believed to cost, of jobs of which nothing is measured
    )


# How ``runs_as`` begins where jobs run as the agent's own user: the user's name follows.
AGENTS_USER = "jobs run as "


def jobs_wait(count: int) -> str:
    """Return how many jobs wait, at the beginning of a sentence."""
    return f"{count:,} jobs wait" if count != 1 else "1 job waits"


def failing_saves(status: StatusView) -> str:
    """Return how many jobs cannot save, and since when, without a full stop; "" = all can."""
    if not status.cannot_save:
        return ""
    whose = (
        f"{status.cannot_save:,} jobs that run have"
        if status.cannot_save > 1
        else "1 job that runs has"
    )
    first = ", one of them" if status.cannot_save > 1 else ""
    since = "" if status.cannot_save_s is None else f", for {duration(status.cannot_save_s)}"
    return f"{whose} not saved since a save failed{first}{since}"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One round, for the plots over time."""

    time_s: float
    allocated: dict[str, int]  # accelerator type -> devices held
    capacity: dict[str, int]
    running: int
    waiting: int
    share: dict[str, float]  # tenant -> part of the devices held


class DeviceUsageView(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a device of a job and of its memory over time, in points of equal length."""

    attempt: int
    rank: int
    node: str
    device: int  # of the node
    start_s: float  # of the first point; cluster's time
    width_s: float  # of each
    # part of the time in which the device computed, None = not known; so are points without a report
    busy: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]  # the most that was in use
    memory_total_bytes: int


class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work that is lost of jobs that were told to stop and cannot save."""

    lost_work: list[str] = []  # a sentence for each of them


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The story of a job."""

    job: JobView
    why_here: str  # or why not now; one or two sentences with the numbers
    finish_s: float | None  # expected, seconds from now; None = not within the horizon
    finish_low_s: (
        float | None
    )  # 8 of 10 such forecasts came true between here, see forecast_outcomes
    finish_high_s: float | None  # and here
    forecasts: int  # futures that were simulated
    attempts: tuple[AttemptView, ...]
    events: tuple[tuple[float, str], ...]  # (seconds, sentence), oldest first
    facts: tuple[str, ...] = ()  # why_here, sentence by sentence
    # "" = it takes no part; "coarse": simulated without rounds, from ``forecast_exact_s`` on
    forecast_kind: Literal["", "none yet", "exact", "coarse"] = ""
    forecast_age_s: float | None = None  # of the state that the forecast is about
    forecast_exact_s: float | None = None  # for so long from now rounds were simulated
    forecast_error: float | None = None  # relative: half of such forecasts were further off
    # like forecasts about jobs that have ended since, on which the interval rests
    forecast_outcomes: int | None = None
    no_end: NoEnd = ""  # why none is forecast; the next three say more than the first reason
    stands_still: bool = False  # it makes no progress, and may hang: no end is forecast
    rate_known: bool = True  # False: neither stated nor measured yet, so no end is forecast
    waits_for_node: bool = False  # that is silent, and may still run it: no end is forecast

    @property
    def is_calibrated(self) -> bool:
        """Return whether the interval rests on checked forecasts, not on an assumption."""
        return self.forecast_outcomes is None or self.forecast_outcomes >= FORECAST_OUTCOMES

    @property
    def interval_words(self) -> str:
        """Return how often the end comes within the interval."""
        return INTERVAL_WORDS[self.is_calibrated]

    @property
    def calibration_words(self) -> str:
        """Return how little the interval rests on, in words; "" once it is calibrated."""
        if self.is_calibrated:
            return ""
        known = f"{self.forecast_outcomes} of {FORECAST_OUTCOMES}"
        return f"not calibrated yet: {known} like forecasts have been checked"


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question. All parts may be combined; none: the forecast as things are."""

    add_jobs: tuple[JobSpec, ...] = ()
    add_nodes: dict[str, int] = {}  # accelerator type -> devices (one node more)
    remove_nodes: tuple[str, ...] = ()
    policy: str = ""


class UserView(msgspec.Struct, frozen=True):
    """A user of the cluster."""

    user: str
    tenant: str
    role: Role
    expires_s: float | None = (
        None  # seconds since 1970; the token is refused from then on, None = never
    )


class ForecastSummary(msgspec.Struct, frozen=True, kw_only=True):
    """When the jobs in the system would be done."""

    # To the end of the last job whose end is forecast, or the horizon where one of them does not end.
    makespan_s: float
    mean_left_s: float  # mean time from now to the end of each job that ends
    # Job -> seconds from now; missing: not within the horizon, or of another tenant
    finish_s: dict[int, float]
    n_finished: int = 0  # jobs whose end is forecast, those of other tenants too
    n_unfinished: int = 0  # jobs that take part and do not end within the horizon
    n_no_end: int = (
        0  # of which no end is forecast, see ``Comparison.no_end``: in nothing else here
    )
    n_paused: int = 0  # these and the next take no part, and are in nothing else here
    n_without_devices: int = 0  # jobs that no devices of the cluster are enough for
    utilization: float

    @property
    def is_partial(self) -> bool:
        """Return whether there are jobs that do not end, for want of devices too, or of which no end is
        forecast."""
        return bool(self.n_unfinished or self.n_no_end or self.n_without_devices)

    @property
    def all_done_words(self) -> str:
        """When the last job ends, for people."""
        within = duration(self.makespan_s)
        if self.n_unfinished:
            return f"not within {within}"
        return self._of_those_that_end(within)

    @property
    def mean_left_words(self) -> str:
        """The mean time to the end of a job, for people."""
        return self._of_those_that_end(duration(self.mean_left_s))

    def _of_those_that_end(self, words: str) -> str:
        n = self.n_finished  # ``finish_s`` has those alone that whoever asks may see
        if not self.is_partial:
            return words
        return f"{words} (the {n:,} that end)" if n else "none ends"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a WhatIf."""

    now: ForecastSummary
    then: ForecastSummary
    changed: tuple[tuple[int, float, float], ...]  # (job, now, then), those that change most first
    notes: tuple[str, ...]
    no_end: dict[int, NoEnd] = {}  # job of which no end is forecast either way -> why
    forecast_kind: Literal["exact", "coarse"] = "exact"  # as in ``Explanation``
    forecast_age_s: float | None = None
    forecast_exact_s: float | None = None
    forecast_error: float | None = None

    @property
    def basis(self) -> str:
        """How old the state is that was simulated and, of a coarse answer, how far such ones were off; for
        people, "" = not known."""
        if self.forecast_age_s is None:
            return ""
        text = f"of the state of {duration(self.forecast_age_s)} ago"
        if self.forecast_kind == "coarse" and self.forecast_error is not None:
            text += f"; such ends were typically {self.forecast_error:.0%} off"
        return text
