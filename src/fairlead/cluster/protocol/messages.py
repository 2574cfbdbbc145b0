"""Messages between agents and the server, over gRPC.

Messages are msgpack of the structs below, checked on arrival (docs/decisions/0016 says why not protobuf).
Both directions are *states*, not deltas: a report says all that the node holds, orders say all that it
shall hold. So a message may be lost, doubled, late or out of order without harm: ``seq`` tells which is
newest, and ``incarnation`` tells a restarted agent from its predecessor.

Calls of the service ``fairlead.Agents``, all with the metadata ``authorization: Bearer TOKEN``. The token of
the user ``agent`` enrols nodes: an agent registers with it once, and is given a token of its node, which the
other calls need.

- ``Register(Register) -> Welcome``
- ``Report(stream of NodeReport) -> stream of Orders``, an answer to each: heartbeat, progress and renewal of
  leases in one. Sent every ``heartbeat_s``, as the newest answer says, and whenever something changes on the
  node. Any refusal ends the stream, and so does a newer one of the same node. A stream, for a call for each
  report costs the server four times as much.
- ``Watch(WatchRequest) -> stream of Orders``: pushed whenever the orders of the node change.
- ``Log(LogChunk) -> LogOffset``: output of ranks, as it grows; the server keeps it where its owner may
  read it.
- ``Metrics(MetricChunk) -> LogOffset``: the metrics that rank 0 of a job reports, likewise.

Refusals are gRPC statuses with one sentence: INVALID_ARGUMENT (malformed, unknown device), UNAUTHENTICATED,
PERMISSION_DENIED (not an agent's token), FAILED_PRECONDITION (another protocol version), ABORTED (register
again), UNAVAILABLE (the server cannot write its state now, or too many nodes are new: try again).

``gc=False``: there are tens of thousands of these in a server, and no cycle can go through them; searching
them for cycles would hold up everything else.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from fairlead.cluster.protocol.runtime import Runtime

PROTOCOL = 5  # of both sides; they must be equal
SERVICE = "fairlead.Agents"
EXPIRED = "lease expired"  # reasons of an end that is not the job's fault
AGENT_LEAVES = "agent leaves"
ORPHANED = "the process that owned the ranks died"
WOULD_LOSE = ": a stop would lose"  # in a ``directory_problem``, before what it would
SPAWNER_STALLED = "the process that owned the ranks stood still"
LARGEST_LOG = 256 << 10  # bytes in a LogChunk
LARGEST_METRICS = 64 << 10  # and in a MetricChunk
ASSIGNMENT_BYTES = 256 << 10  # no Assignment is larger: its texts 128 KiB (JOB_BYTES), paths 80 KiB

# What a field may hold: checked on arrival, so that nothing absurd gets further.
Name: TypeAlias = Annotated[
    str, Meta(pattern=r"^(?!\.+\Z)[A-Za-z0-9._-]{1,64}\Z")
]  # may be a file's
Text: TypeAlias = Annotated[str, Meta(max_length=4096)]
Traceback: TypeAlias = Annotated[str, Meta(max_length=1 << 16)]
Problems: TypeAlias = Annotated[tuple[Text, ...], Meta(max_length=64)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
CountOrNone: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 53)]  # -1 = not known, none
# (cluster).(timeline).(run id).(random): of the order by which an attempt was begun; "" = not told. Two
# copies of a state give out the same job ids and attempt numbers; this they cannot.
OrderId: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,160}\Z")]
AttemptKey: TypeAlias = tuple[int, int]  # (job, attempt)
SecondsOrNone: TypeAlias = Annotated[float, Meta(ge=-1, le=1e12)]  # -1 = not known


class StorePosition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The position of a cluster's state. A server tells agents of what is durable, and they tell the
    servers after it: one that is started on an older copy of the state learns from them that it is old."""

    cluster: Name  # random, of the state, also when it is restored
    timeline: Count  # of its history: another one since each restore, and the later one is larger
    run: Count  # of a server on it, ascending
    run_id: Name  # random
    commit: Count  # the newest
    time_s: Annotated[float, Meta(ge=0.0, le=1e11)] = 0.0  # of that, wall clock

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key by which the later of two positions in one cluster is the larger."""
        return self.timeline, self.run, self.commit


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """An agent comes up."""

    protocol: Count
    version: Text  # of Fairlead
    node: Name
    incarnation: Name  # random, new at every start of the agent
    host: Text  # where ranks of other nodes can reach its ranks
    accelerator: Text
    devices: Annotated[int, Meta(ge=1, le=65536)]
    simulated_devices: bool = False  # devices that exist by configuration only
    holds: tuple["AttemptStatus", ...] = ()  # after a restart of the server: what goes on running
    # after a restart of the server, too: what is parked there
    parked: Annotated[tuple["ParkedAttempt", ...], Meta(max_length=65536)] = ()
    machine: Text = ""  # the running kernel and its process table; "" = not told
    cleared: tuple[Name, ...] = ()  # incarnations of which it has made sure that nothing runs there
    seen: StorePosition | None = None  # the latest position of the state that it was told of
    halted_runs: Annotated[
        tuple[Name, ...], Meta(max_length=64)
    ] = ()  # run ids of servers that halted
    ending: bool = False  # as in ``NodeReport``
    runs_as: Text = ""  # whom its jobs run as, in words; "" = not told
    # seconds until the node is taken away, as at the end of an allocation; -1 = nobody knows of such an end
    ends_in_s: float = -1.0


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The node is part of the cluster."""

    heartbeat_s: float
    lease_s: float
    rate_bound: float  # relative drift between the clocks of two machines that is allowed for
    orders: "Orders"
    wall_s: float = 0.0  # the server's clock, seconds since 1970; 0 = not told
    wait_s: float = 0.0  # no jobs for so long: the agent before this one may still run some
    token: str = ""  # of the node, for all calls from now on; "" = it has one


# What is the matter with a checkpoint directory that cannot be made: its path, or the storage that it is on.
DirectoryTrouble: TypeAlias = Literal["", "wrong_path", "out_of_order"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The failure of the rank of an attempt that failed first."""

    kind: Literal["not_started", "exit", "signal", "exception", "stalled"] = "exit"
    rank: CountOrNone = -1
    exit_code: Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)] | None = None
    type: Text = ""  # of the exception, with its module
    message: Text = ""
    file: Text = ""  # innermost place in the user's own code
    line: Count = 0
    function: Text = ""
    step: CountOrNone = -1  # of the whole job, -1 = not known
    traceback: Traceback = ""  # all of it, or the stacks of ranks that hang
    secondary: bool = False  # it is the consequence of another rank's end
    time_s: float = 0.0  # wall clock of its node, 0 = not known
    directory: DirectoryTrouble = ""
    path: Text = ""  # then: the highest directory on the way there that is wrong, "" = not known
    # its own checkpoints are away or damaged, its storage is well: its owner can accept the loss
    of_checkpoints: bool = False

    @property
    def place(self) -> str:
        """By what two failures are known to be alike; "" = they cannot be."""
        if self.kind == "not_started":
            return self.message
        return f"{self.type}@{self.file}:{self.line}" if self.type else ""


# How a rank of a gang ended before it came to its loop, where the others wait for it.
LEFT_EARLY = (
    "ended first, with exit code 0, before its first step; "
    "a program without the iterator is one for --unmanaged"
)


class SpawnerDeath(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The process that owned the ranks of a node was ended by somebody."""

    number: Count  # of its deaths in this run of the agent
    jobs: Annotated[
        tuple[Count, ...], Meta(max_length=65536)
    ]  # whose ranks may have run there then


class DeviceUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The usage of a device and its memory, as measured. Of a device that several jobs share it is
    that of all of them."""

    rank: Count = 0  # of the job, that has the device
    device: Count = 0  # of the node
    # part of the time just past in which it computed; -1 = not known
    busy: Annotated[float, Meta(ge=-1, le=1)] = -1.0
    memory_bytes: Count = 0  # in use
    memory_total_bytes: Count = 0


class AttemptStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of one attempt of a job on a node: its ranks there. Kept until the orders say ``forget``."""

    job: Count
    attempt: Count
    state: Literal["starting", "running", "stopping", "ended"]
    order_id: OrderId = ""  # of its Assignment
    step: CountOrNone = -1  # steps done in all, -1 = not known yet (rank 0's node alone knows)
    loaded_step: CountOrNone = -1  # where this attempt went on from, -1 = not known yet
    stands_by: bool = False  # all ranks wait, ready to load, until the job runs nowhere else
    lost_steps: CountOrNone = (
        -1
    )  # by all attempts until this one was loaded, as the job counts them
    from_job: CountOrNone = -1  # that had saved what this attempt loaded; -1 = none, or not known
    from_attempt: Count = 0  # of that job
    saved_step: CountOrNone = -1  # of the newest whole checkpoint
    batch: Count = 0  # samples per step, where the job has changed them
    total_steps: Count = 0  # then: of the whole job
    address: Text = ""  # host:port:gang_port:secret of rank 0, for ranks on other nodes
    exit_code: Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)] | None = (
        None  # the worst of its ranks
    )
    completed: bool = (
        False  # rank 0 said that no more steps are needed, or an unmanaged job exited with 0
    )
    # A rank here has ended with 0 after a SIGTERM: what it does after its loop may not be done.
    terminated: bool = False
    finishing: bool = False  # rank 0 said so, and the code after its loop runs, or ran to its end
    reason: Text = (
        ""  # why it failed, in one sentence: "exit code 1", "killed by signal 9 (out of memory?)"
    )
    obstacle: Text = ""  # what of the node keeps it from starting: a full disk; "" = nothing
    directory_problem: Text = ""  # what is wrong with where it saves: no answer; "" = nothing known
    save_place: Text = ""  # where it cannot save: the directory that is wrong, "" = not known
    # How long things took, seconds; -1 = not known (yet).
    wait_s: SecondsOrNone = -1.0  # handover: from the order to free devices
    start_s: SecondsOrNone = -1.0  # from there to rank 0's hello
    load_s: SecondsOrNone = -1.0  # to load the checkpoint
    ran_s: SecondsOrNone = 0.0  # since training began
    step_age_s: SecondsOrNone = -1.0  # since ``step`` was heard of
    trained_s: SecondsOrNone = -1.0  # that the steps up to ``step`` have taken, saves excluded
    save_s: SecondsOrNone = -1.0  # the newest checkpoint
    saving_s: SecondsOrNone = -1.0  # all checkpoints of this attempt; -1 = none has been begun
    # from the order to stop to the end of the last rank, without the time in which it saved
    stop_s: SecondsOrNone = -1.0
    ended_age_s: SecondsOrNone = (
        -1.0
    )  # since its last process here ended, or left its devices before that
    released: bool = False  # it has left its devices here, and saves before it is parked
    resumed: bool = False  # its program, which has no iterator, goes on where it was stopped
    failure: Failure | None = None  # of an end that was nobody's wish
    # A rank here, with rank 0 on another node, that has ended with 0 before it came to its loop; -1 = none
    left: CountOrNone = -1
    # (rank, step) of the ranks here that left their loops by themselves first and last; () = none did
    left_loops: Annotated[tuple[tuple[Count, Count], ...], Meta(max_length=2)] = ()
    # Why its work could not be saved, or parked, as it ended; "" = it was, as far as is known
    unsaved: Text = ""
    stall: Text = ""  # it makes no progress: since when, and where its ranks stand
    stacks: Traceback = ""  # of those ranks
    spawner_death: SpawnerDeath | None = None  # that it ended with
    # of its ranks' devices here, once after each measurement; () = nothing new, or not known
    usage: Annotated[tuple[DeviceUsage, ...], Meta(max_length=65536)] = ()

    @property
    def is_through(self) -> bool:
        """Whether all ranks here have come to their end: with 0, and not because they were told to."""
        return self.state == "ended" and self.exit_code == 0 and not self.terminated


class ParkedAttempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attempt that is over, and whose ranks on a node keep their state in its memory."""

    job: Count
    attempt: Count
    ranks: Annotated[tuple["Rank", ...], Meta(max_length=65536)]
    memory_bytes: Count = 0
    age_s: SecondsOrNone = -1.0  # since it was parked


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that a node holds."""

    node: Name
    incarnation: Name
    seq: Count  # ascending within an incarnation
    holds: tuple[AttemptStatus, ...]
    orders_seq: CountOrNone = -1  # the newest orders that it follows
    problems: Problems = ()  # what is wrong with the node, a sentence each
    dead: tuple[Count, ...] = ()  # devices that do not work any more
    checked: Count = 0  # number of the newest test start that was made
    check_problem: Text = ""  # why it failed; "" = it did not
    health_known: bool = (
        True  # False: its checks have not come back yet, and ``problems`` says nothing
    )
    ending: bool = False  # it was told to end: it stops what it holds, and begins nothing
    leaving: bool = False  # that is done: nothing runs there any more, and nothing will
    parked: Annotated[tuple[ParkedAttempt, ...], Meta(max_length=65536)] = ()


class StartCheck(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A test start that the node is to make: a rank that does one step, started as a job's would be."""

    number: int
    programs: tuple[str, ...] = ()  # of which one at least must be found
    checkpoints: str = ""  # directory of those of all jobs; "" = the agent's own choice
    root_is_known: bool = False  # as in ``Assignment``


class Rank(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process of a job."""

    rank: int
    devices: tuple[int, ...]  # indices on the node


class Assignment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a job, as far as this node is concerned."""

    job: int
    attempt: int
    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    checkpoint_dir: str  # "" = the agent's own choice below its state directory
    # directory of those of all jobs, which that is in; "" = this job has named its own, or it is not known
    checkpoint_root: str = ""
    root_is_known: bool = False  # jobs have used it before: it is there, or its storage is away
    kept_steps: int = 0  # that its checkpoints hold: where these are gone it is not to begin anew
    kept_by: int = 0  # the attempt that told of them; 0 = not known
    accept_loss: bool = False  # its owner has it begin with whatever is there
    ranks: tuple[Rank, ...]  # on this node
    world_size: int
    # host:port:gang_port:secret of rank 0 where that is another node; "" = not known yet, or here
    master: str = ""
    has_rank_0: bool = True
    unmanaged: bool = (
        False  # without iterator: progress as it says, or by wall time; SIGTERM to stop
    )
    order_id: str = ""  # an OrderId
    total_steps: int = 0
    batch: int = 0  # samples per step to begin with, 0 = the script's own
    checkpoint_s: float = 600.0  # save this often
    grace_s: float = 30.0  # between the order to stop and SIGKILL
    finish_grace_s: float = -1.0  # the same once all steps are done; -1 = as before that
    finishing: bool = False  # they are, as the node of rank 0 says
    prefork: bool = False  # start from the agent's prepared process
    prepare: bool = False  # from one with what its script imports
    log_bytes: int = 10_000_000  # the newest so many bytes of output are kept
    start_timeout_s: float | None = None  # from the start of ranks to the first step; 0 = none
    stall_timeout_s: float | None = None  # without a step; None = by what is usual, 0 = none
    on_stall: str = "restart"  # or "report"
    usual_start_s: float = -1.0  # to the first step, as it was measured; -1 = not known
    usual_save_s: float = -1.0  # of its newest checkpoint; -1 = not known
    inspect: bool = False  # say where its ranks stand: those of another node hang
    runtime: Runtime = Runtime()  # where the command runs
    progress_url: str = (
        ""  # where an unmanaged job answers how far it is; "" = it may write it to a file
    )
    node_rank: int = 0  # of this node among those of the attempt
    nodes: int = 1
    colocated: tuple[tuple[int, int], ...] = ()  # (job, attempt) that it shares its devices with
    tenant: str = ""  # whose it is, and who has submitted it: nodes may run it as a user of theirs
    user: str = ""
    park: bool = False  # may it be parked when it is preempted?
    suspend: bool = False  # may it be stopped then as it is, being a program without the iterator?
    resumes: int = 0  # the attempt whose parked ranks go on as this one; 0 = none
    standby: bool = (
        False  # the job still runs elsewhere: its ranks start, and wait before they load
    )


class Orders(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that a node shall hold. What it holds beyond that it stops; unless ``halted`` says why the server
    does not know what the node shall hold: then all stays as it is, and what runs gets its leases.

    In the answer to a report only: position, of what is durable; wall_s; leases: job -> seconds from the
    moment that report was *sent*; heartbeat_s: until the next, if nothing happens before; 0 = as before;
    gap_s: at least so long until the next that tells of the node's own news, and not of orders that it
    follows.
    """

    seq: int
    desired: tuple[Assignment, ...]
    forget: tuple[
        tuple[int, int], ...
    ] = ()  # (job, attempt) of ended attempts that the server has booked
    leases: dict[int, float] = {}
    heartbeat_s: float = 0.0
    gap_s: float = 0.0
    reasons: dict[
        int, str
    ] = {}  # job -> why it is no longer wanted: preempted | cancelled | paused ...
    check: StartCheck | None = None  # to be made once; None = none is wanted
    unpark: tuple[tuple[int, int], ...] = ()  # (job, attempt) that need not be parked any longer
    wall_s: float = 0.0  # the server's clock when it answered, seconds since 1970; 0 = not told
    position: StorePosition | None = None  # to be remembered; None = none is told
    halted: str = ""
    halted_run: str = (
        ""  # then: its run id; what that server told and ordered is no evidence any more
    )


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Orders from now on, pushed."""

    node: Name
    incarnation: Name


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the output (stdout and stderr together) of one rank of one attempt."""

    node: Name
    incarnation: Name
    job: Count
    attempt: Count
    rank: Count
    offset: Count  # of the first byte, from the beginning of all output of this attempt
    data: Annotated[bytes, Meta(max_length=LARGEST_LOG)]


class LogOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Offset at which the next piece is to begin: the end of what the server holds."""

    offset: int


class MetricChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the reports of one attempt: lines as ``fairlead.client.report`` writes them."""

    node: Name
    incarnation: Name
    job: Count
    attempt: Count
    offset: Count  # of the first byte, from the beginning of all reports of this attempt
    data: Annotated[bytes, Meta(max_length=LARGEST_METRICS)]
