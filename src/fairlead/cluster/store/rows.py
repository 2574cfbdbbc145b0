"""The rows of a live cluster's store, as its server keeps them in memory too. ``gc=False``: as in
``protocol``. ``omit_defaults``: a round rewrites thousands of rows, most fields of which are as at first. Who
changes a default writes a migration (``store.migrations``) that puts the old one into the rows."""

import msgspec

from fairlead.cluster.protocol.access import Role
from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.protocol.study import Parameter, SearchState, StudySpec, TrialState
from fairlead.cluster.store.failures import FailureRecord, in_a_row

OPEN_STATES: frozenset[JobState] = frozenset(
    ("waiting", "running", "finishing", "preempted", "paused")
)
ON_DEVICES: frozenset[JobState] = frozenset(("running", "finishing"))


class SaveFailure(msgspec.Struct, frozen=True, gc=False):
    """A save that failed, of a job that has not saved since."""

    why: str
    at_s: float  # cluster's time
    attempt: int  # the number of the attempt that could not save
    saved_step: int  # that it had saved before; -1 = not known
    place: str = ""  # the directory that is out of order, "" = not known


class JobRow(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """A job; see ``api_models.JobView`` for the fields. Changed in place, written at the next commit."""

    id: int
    name: str
    tenant: str
    user: str
    spec: JobSpec
    state: JobState = "waiting"
    submitted_s: float
    started_s: float | None = None  # its first step
    ended_s: float | None = None
    attempt: int = 0  # number of its newest one
    steps: float = 0.0
    counted_s: float | None = None  # when these were
    acknowledged_steps: float = 0.0  # steps that the core counts, or is about to be told
    saved_step: int = 0
    # the attempt that told of it, or whose program was parked as it was; 0 = an earlier version did not note
    saved_by: int = 0
    parked_from: int = 0  # the attempt that began a program that is parked as it is; 0 = that one
    loss_accepted: str = ""  # who has its next attempt begin with whatever checkpoints there are
    origin: str = ""  # what its newest attempt began from, where that is not what it had kept
    starts: int = 0
    preemptions: int = 0
    failures: int = 0
    run_s: float = 0.0
    wait_s: float = (
        0.0  # that its starts waited for their devices; part of its overhead, and no run time
    )
    lost_steps: float = 0.0
    reached_step: float = 0.0  # by its starts since the last one of them was loaded, as was heard
    overhead_s: float = 0.0
    reason: str = ""
    reason_node: str = ""  # the node that it is about, "" = about none
    batch: int = 0  # samples per step now, 0 = the script's own
    total_steps: float
    acknowledged_total: float = 0.0  # of the whole job, as the core knows it
    measured_rate: float | None = None  # steps/s
    measured_on: str = ""  # the accelerator type of that
    rates_family: str = ""  # family under which the core knows its rates
    device_s: float = 0.0  # device-seconds received
    lost_device_s: float = 0.0  # of these, for work done again, starts and stops
    rho: float | None = None  # finish-time fairness, once it has completed
    weight: float = 1.0
    save_s: float = 0.0  # that its newest checkpoint took
    usual_start_s: float = -1.0  # to its first step, as its starts were measured; -1 = not known
    stall: str = ""  # why it is thought to hang
    failure: Failure | None = None  # the last one, without its traceback
    save_failure: SaveFailure | None = None  # of its last save, None = that did not fail
    failed: bool = False  # its last attempt did, and the next one has not been ordered yet
    recent_failures: tuple[FailureRecord, ...] = ()  # since it last did well, oldest first
    retry_s: float | None = None  # it is not tried again before this time
    tells_steps: bool = False  # an unmanaged job that has said how many are done
    tells_saved: bool = False  # and how many of them its own checkpoints keep
    avoids: tuple[str, ...] = ()  # nodes that it is not placed on, as the core has been told
    folder: str = ""  # of its checkpoints, among those of all jobs; "" = named by its id alone
    checkpoints: str = ""  # the directory of that; "" = as an earlier version wrote it
    has_run: bool = False  # on some node, which has let it use its checkpoint directory
    deadline_noted: bool = False  # that it is past its deadline has been noted (``job_notices``)
    end_noted: bool = False  # the same of its end, before this row says so
    held_s: float = 0.0  # from its submission until it waited for no other job any more
    array: int = -1  # its array: the id of the first task, -1 = it is in none
    array_index: int = 0  # of this task
    array_count: int = 0  # tasks of the array; their ids follow each other
    search: int = -1  # of which it is a trial, -1 = of none
    trial: int = 0  # its number there
    parameters: dict[str, Parameter] = {}  # of the trial
    stopped_by: str = ""  # why Fairlead itself cancels it; "" = it does not
    devices: int = 0  # that an elastic job has, or had last; 0 = those of its specification

    @property
    def scale_factor(self) -> int:
        """How many devices it has, or would have if it ran."""
        return self.devices or self.spec.scale_factor

    @property
    def array_ids(self) -> range:
        """Ids of all tasks of its array; none where it is in none."""
        return range(self.array, self.array + self.array_count)

    @property
    def open(self) -> bool:
        """Whether it has not ended yet."""
        return self.state in OPEN_STATES

    def drop_reason(self) -> None:
        """Whatever was the matter is so no longer. Why it is paused, or has ended, stays."""
        if self.open and self.state != "paused":
            self.reason = self.reason_node = ""

    @property
    def deadline_s(self) -> float | None:
        """Cluster's time by which its owner wants it done; None = whenever."""
        return None if self.spec.slo_s is None else self.submitted_s + self.spec.slo_s

    @property
    def checkpoint_folder(self) -> str:
        """Folder of the job's checkpoints, in its checkpoint directory."""
        return self.folder or str(self.id)

    @property
    def checkpoint_dir(self) -> str:
        """The path of its checkpoints; "" = not known."""
        if self.spec.checkpoint_dir or not self.checkpoints:
            return self.spec.checkpoint_dir
        return f"{self.checkpoints}/{self.checkpoint_folder}"

    @property
    def off_devices(self) -> JobState:
        """Return its state without devices, unless paused: after a failure it waits for another try."""
        waits = self.failed or self.retry_s is not None or not self.starts
        return "waiting" if waits else "preempted"

    @property
    def failures_in_a_row(self) -> int:
        """That count against the job."""
        return len(in_a_row(self.recent_failures))

    @property
    def starts_over(self) -> bool:
        """Whether, as far as is known, each attempt starts from zero."""
        return self.spec.starts_over and not self.tells_saved

    def kept_steps(self, from_step: float) -> int:
        """How many steps its checkpoints hold, as far as is known, where an attempt begins with so many."""
        if self.starts_over:  # what it has done is in its memory, if that is parked
            return 0
        return int(from_step if self.spec.unmanaged else min(from_step, self.saved_step))

    def countable(self, steps: float) -> float:
        """How many of these the core may count of a job that is not complete: one is kept back, for a job
        without steps left would have ended."""
        return min(steps, max(self.total_steps - 1.0, 0.0))

    def by_time(self, from_step: float, rate: float, ran_s: float) -> float:
        """Steps of an unmanaged job that has said nothing of them: its run time, at ``rate`` steps/s."""
        return self.countable(from_step + ran_s * rate)


class AttemptRow(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """One attempt of a job; see ``api_models.AttemptView`` for the fields."""

    job: int
    attempt: int
    node: str
    accelerator: str
    devices: tuple[int, ...]
    nodes: tuple[str, ...] = ()  # one for each device
    began_s: float  # it was decided on then
    ordered: bool = True  # of its nodes; until an earlier attempt of its job is over it is not
    ordered_s: float | None = None  # when, None = as it began
    rate: float = 0.0  # steps/s believed then: what a second of an unmanaged job is worth
    trained_s: float | None = None  # when training began
    ended_s: float | None = None
    from_step: float = 0.0
    to_step: float = 0.0
    reached_step: float = -1.0  # steps known to be done when it ended, kept or not; -1 = not known
    end: AttemptEnd | None = None  # how it ended
    why: str = ""  # that, for people
    traceback: str = ""  # of an attempt that failed; of one that hung, the stacks of its ranks
    wait_s: float = -1.0
    start_s: float = -1.0
    load_s: float = -1.0
    save_s: float = -1.0
    stop_s: float = -1.0
    lost_steps: float = 0.0
    lost_own: bool = False  # its lost steps are its own, which the next one does again
    order_id: str = ""  # of its order: see ``protocol.messages.OrderId``
    loss_accepted: str = ""  # who has it begin with whatever checkpoints there are
    resumes: int = 0  # the attempt whose parked ranks it was ordered to go on with; 0 = none
    origin: str = ""  # what it began from, where that is not what its job had kept
    no_start: bool = False  # it is over, and never had its devices
    shared_device_s: float = (
        0.0  # of its device-seconds, what the other jobs of packed pairs have had
    )

    @property
    def since_s(self) -> float:
        """When it was ordered."""
        return self.began_s if self.ordered_s is None else self.ordered_s


class NodeRow(msgspec.Struct, kw_only=True):
    """A node that has registered once."""

    name: str
    accelerator: str
    devices: int
    host: str
    simulated_devices: bool = False
    runs_as: str = ""  # whom jobs run as there, in words; "" = its agent has not told
    drained: bool = False
    incarnation: str = ""  # of the agent that registered last
    cordoned: str = ""  # why it is given no jobs though its agent is well; "" = it is given jobs
    machine: str = ""  # of that agent
    left_s: float = 0.0  # wall clock; when it ended in order, 0 = it did not
    superseded: tuple[str, ...] = ()  # incarnations before it, the newest ones
    # (job, attempt, incarnation) that may still run
    inherited: tuple[tuple[int, int, str], ...] = ()
    token_hash: bytes = b""  # of the node's own token; b"" = it has none yet
    revoked: bool = False  # by an administrator: no token of it counts, and it gets none
    ends_s: float = 0.0  # wall clock; when it is taken away, 0 = nobody knows of an end


class UserRow(msgspec.Struct, kw_only=True):
    """A user who may call. The token itself is not kept, only its hash (``tokens.hash_token``)."""

    user: str
    tenant: str
    role: Role
    token_hash: bytes
    expires_s: float | None = None  # wall clock; the token is refused from then on, None = never


class SearchRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A search; see ``protocol.study``."""

    id: int
    tenant: str
    user: str
    study: StudySpec
    state: SearchState = "running"
    reason: str = ""
    waiting_reason: str = ""  # the limit of its tenant for which no trial begins; "" = none
    started_s: float
    ended_s: float | None = None
    by_admin: bool = False  # whose jobs no limit of the tenant is for
    settled: bool = False  # it has ended, and no job of a trial runs any more

    @property
    def open(self) -> bool:
        """Whether it has to be looked after."""
        return not self.settled


class TrialRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trial of a search. It is written with its job, and never without."""

    search: int
    number: int
    job: int = -1
    parameters: dict[str, Parameter]
    state: TrialState = "running"
    value: float | None = None
    step: int | None = None
    reason: str = ""
    rungs: int = 0  # of asha and hyperband, that it has passed
    notes: dict[str, str] = {}  # of its sampler, as JSON


class TenantTotals(msgspec.Struct, kw_only=True):
    """The totals of a tenant so far."""

    done: int = 0  # jobs completed
    device_s: float = 0.0
    lost_device_s: float = 0.0
    rho_sum: float = 0.0
    rho_count: int = 0
