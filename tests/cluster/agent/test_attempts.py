import signal
from typing import Any

import pytest
from tests.cluster.agent.cluster import job

from fairlead.client.messages import (
    Adapt,
    Loaded,
    Progress,
    RankEnded,
)
from fairlead.client.rank_environment import EXIT_RANK_SYNC
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.rank_failures import exit_failure
from fairlead.cluster.agent.report_limits import SendableCheck
from fairlead.cluster.agent.spawner_events import may_have_expired
from fairlead.cluster.agent.spawner_messages import Exited
from fairlead.cluster.protocol.messages import (
    AGENT_LEAVES,
    EXPIRED,
    LEFT_EARLY,
    ORPHANED,
    Failure,
    Rank,
)
from fairlead.cluster.server.attempt_statuses import measured_rate

TWO = tuple(Rank(rank=i, devices=(i,)) for i in range(2))


def ended(rank: int, code: int, output: str = "") -> Failure:
    return exit_failure(rank, code, None, output, world_size=2)


def start(**changes: Any) -> NodeAttempt:
    return NodeAttempt(job(1, **changes), "t" * 32, NodeLease(10.0), 0.0)


def test_the_times_of_a_start() -> None:
    one = start()
    one.started(1.0)
    assert one.status(2.0).state == "starting"
    one.times.record_hello(3.0)
    one.loaded(Loaded(1, 40, 0.5), 4.0)
    one.progress(Progress(1, 50, 45, 0.2), 5.0)
    status = one.status(9.0)
    assert (status.state, status.step, status.loaded_step, status.saved_step) == (
        "running",
        50,
        40,
        45,
    )
    assert (status.wait_s, status.start_s, status.load_s, status.ran_s, status.save_s) == (
        1,
        2.5,  # until it began to load: it may have waited for other ranks
        0.5,
        5,
        0.2,
    )
    one.stop("preempted", 10.0)
    one.progress(RankEnded(1, 60, 60, 0.3, False), 11.0)
    assert one.exited(0, 0, None, 11.5)  # the other ranks are to end now
    one.record_exit(12.0)
    status = one.status(20.0)
    assert (status.state, status.stop_s, status.ran_s, status.exit_code) == ("ended", 2, 7, 0)
    assert (status.completed, status.step, status.reason) == (False, 60, "preempted")


def test_the_time_in_which_a_start_saves_is_not_training_and_counts_once() -> None:
    """10 steps/s for 40 s, with a save of 20 s in between and one of 30 s when it was told to stop."""
    one = start()
    one.started(0.0)
    one.loaded(Loaded(1, 0, 0.5), 0.0)
    one.progress(Progress(1, 200, 0, 0.0), 20.0)
    assert (one.status(25.0).trained_s, one.status(25.0).saving_s) == (20.0, -1.0)
    one.progress(Progress(1, 250, 0, 0.0, saving=True), 25.0)
    one.progress(Progress(1, 250, 0, 0.0, saving=True), 35.0)  # it waits for its other ranks
    assert (one.status(40.0).trained_s, one.status(40.0).saving_s) == (25.0, 15.0)
    one.progress(Progress(1, 250, 250, 20.0), 45.0)
    assert (one.status(50.0).trained_s, one.status(50.0).saving_s) == (25.0, 20.0)
    one.progress(Progress(1, 390, 250, 20.0), 59.0)
    one.stop("preempted", 59.5)
    one.progress(Progress(1, 400, 250, 20.0, saving=True), 60.0)
    status = one.status(80.0)
    assert (status.state, status.trained_s, status.saving_s) == ("stopping", 40.0, 40.0)
    assert measured_rate(status) == 10.0
    one.progress(RankEnded(1, 400, 400, 30.0, False), 90.0)
    one.exited(0, 0, None, 91.0)
    one.record_exit(91.5)
    status = one.status(200.0)
    assert (status.trained_s, status.saving_s, status.save_s, status.stop_s) == (
        40.0,
        50.0,
        30.0,
        2.0,
    )
    assert measured_rate(status) == 10.0


def test_a_start_whose_checkpoints_cannot_be_saved_says_so_while_that_is_so() -> None:
    one = start()
    one.started(0.0)
    one.loaded(Loaded(1, 0, 0.0), 1.0)
    one.progress(Progress(1, 40, 10, 0.1, save_problem="No space left\non device"), 5.0)
    assert one.status(5.0).directory_problem == (
        "no checkpoint can be saved (No space left on device): "
        "a stop would lose the work since step 10"
    )
    one.directory_problem = "checkpoint directory '/nfs/x': no answer for 40 s"
    assert one.status(5.0).directory_problem == one.directory_problem
    one.directory_problem = ""
    one.progress(Progress(1, 50, 50, 0.1), 6.0)
    assert one.status(6.0).directory_problem == ""


def test_a_save_during_which_a_start_is_killed_is_over() -> None:
    one = start()
    one.started(0.0)
    one.loaded(Loaded(1, 0, 0.5), 0.0)
    one.stop("preempted", 10.0)
    one.progress(Progress(1, 100, 0, 0.0, saving=True), 10.0)
    one.exited(0, -9, ended(0, -9), 40.0)
    one.record_exit(40.0)
    status = one.status(100.0)
    assert (status.trained_s, status.saving_s, status.stop_s) == (10.0, 30.0, 0.0)


def test_a_unmanaged_job_counts_time_until_it_is_told_to_stop() -> None:
    one = start(unmanaged=True)
    one.started(1.0)
    one.stop("preempted", 4.0)
    one.exited(0, -15, ended(0, -15), 9.0)
    one.record_exit(9.0)
    status = one.status(10.0)
    assert (status.ran_s, status.exit_code, status.completed, status.step) == (3.0, -15, False, -1)


def test_a_gang_of_programs_runs_on_here_until_its_last_rank_has_ended() -> None:
    one = start(unmanaged=True, suspend=True, ranks=TWO, world_size=3)
    one.started(1.0)
    one.exited(0, 0, None, 3.0)
    assert (one.status(5.0).ran_s, one.is_through) == (4.0, False)
    one.exited(1, 0, None, 6.0)
    one.record_exit(6.0)
    status = one.status(9.0)
    assert (status.ran_s, status.exit_code, status.completed) == (5.0, 0, True)
    assert one.is_through
    assert status.is_through


def test_a_program_goes_on_without_the_ranks_that_have_ended() -> None:
    one = start(unmanaged=True, suspend=True, ranks=TWO, world_size=2, resumes=4)
    one.started(1.0)
    one.note_ended_before({1: 77}, 1.0)
    one.exited(1, 0, None, 6.0)
    one.record_exit(6.0)
    assert (one.status(9.0).exit_code, one.status(9.0).completed) == (0, True)


@pytest.mark.parametrize("reason", ["preempted", "paused", AGENT_LEAVES, EXPIRED])
def test_what_was_told_to_stop_has_not_ended_well(reason: str) -> None:
    """The server takes a gang for complete whose ranks have all ended with 0, on whatever nodes."""
    one = start(unmanaged=True, has_rank_0=False, world_size=2)
    one.started(1.0)
    one.stop(reason, 4.0)
    one.exited(0, -15, ended(0, -15), 5.0)
    one.record_exit(5.0)
    status = one.status(6.0)
    assert (status.exit_code, status.failure, status.reason) == (-15, None, reason)


def test_the_rate_of_an_unmanaged_job_that_goes_on_after_it_was_told_to_stop_is_that_of_its_steps() -> (
    None
):
    one = start(unmanaged=True, grace_s=60.0)
    one.started(0.0)
    for step in range(1, 11):
        one.progressed(step, -1, float(step))
    one.stop("preempted", 10.5)
    for step in range(11, 31):
        one.progressed(step, -1, float(step))
    status = one.status(30.0)
    assert status.step / status.trained_s == pytest.approx(1.0, rel=0.1)


def test_an_unmanaged_job_that_had_to_be_killed_when_it_was_told_to_stop_is_told_so() -> None:
    one = start(unmanaged=True, grace_s=6.0)
    one.started(1.0)
    one.stop("paused", 4.0)
    one.exited(0, -9, ended(0, -9), 10.0)
    one.record_exit(10.0)
    status = one.status(11.0)
    assert status.reason == "killed: did not end within 6 s of being told to stop (paused)"
    assert status.failure is not None
    assert (status.failure.exit_code, status.exit_code, status.completed) == (-9, -9, False)


def test_who_is_killed_before_its_grace_is_over_did_not_miss_it() -> None:
    one = start(unmanaged=True, grace_s=20.0, world_size=2)
    one.started(1.0)
    one.stop("paused", 4.0)
    one.exited(0, -9, ended(0, -9), 6.7)
    one.exited(1, -9, ended(1, -9), 24.0)
    one.record_exit(24.0)
    assert one.status(25.0).reason == "rank 0: killed by signal 9 (SIGKILL)"


def test_who_is_killed_for_what_it_did_did_not_miss_its_grace() -> None:
    one = start(unmanaged=True, grace_s=20.0)
    one.started(1.0)
    one.stop("paused", 4.0)
    one.ended_for(0, "it did something", 6.7)
    one.record_exit(6.7)
    assert one.status(25.0).reason == "killed by signal 9 (SIGKILL): it did something"


def test_an_exception_after_an_order_to_stop_is_told_with_rank_0_on_another_node_too() -> None:
    one = start(has_rank_0=False, world_size=2)
    one.started(1.0)
    one.stop("paused", 4.0)
    raised = Failure(
        kind="exception", rank=1, exit_code=1, type="ValueError", message="shapes differ"
    )
    one.exited(1, 1, raised, 6.0)
    one.record_exit(6.0)
    status = one.status(7.0)
    assert status.failure == raised
    assert status.reason == "rank 1: ValueError: shapes differ"


@pytest.mark.parametrize("has_rank_0", [True, False])
def test_a_rank_that_had_to_be_killed_before_its_first_step_is_told_so(has_rank_0: bool) -> None:
    one = start(has_rank_0=has_rank_0, world_size=2, grace_s=6.0)
    one.started(1.0)
    one.stop("paused", 4.0)
    one.exited(1, -9, ended(1, -9), 10.0)
    one.record_exit(10.0)
    status = one.status(11.0)
    assert status.reason == "killed: did not end within 6 s of being told to stop (paused)"
    assert status.failure is not None
    assert status.failure.secondary, "where another rank has failed, that one is to blame"


@pytest.mark.parametrize("reason", [EXPIRED, AGENT_LEAVES, ORPHANED])
@pytest.mark.parametrize("code", [-15, -9, 143, 1])
def test_what_the_agent_stops_on_its_own_account_has_not_failed(reason: str, code: int) -> None:
    one = start()
    one.started(1.0)
    one.loaded(Loaded(1, 40, 0.5), 4.0)
    one.stop(reason, 5.0)
    one.exited(0, code, ended(0, code), 6.0)
    one.record_exit(6.0)
    status = one.status(7.0)
    assert (status.state, status.reason, status.completed, status.failure) == (
        "ended",
        reason,
        False,
        None,
    )


@pytest.mark.parametrize("reason", [EXPIRED, AGENT_LEAVES])
def test_what_the_agent_stops_says_why_its_work_could_not_be_saved(reason: str) -> None:
    one = start()
    one.started(1.0)
    one.loaded(Loaded(1, 40, 0.5), 4.0)
    one.stop(reason, 5.0)
    failure = Failure(kind="exit", rank=0, exit_code=74, message="step 44 could not be saved")
    one.exited(0, 74, failure, 6.0)
    one.record_exit(6.0)
    status = one.status(7.0)
    assert (status.reason, status.failure) == (reason, None)
    assert status.unsaved == "exit code 74: step 44 could not be saved"


def test_a_rank_that_left_for_storage_says_so_though_others_ended_for_it_before() -> None:
    """Rank 1 dies of it on another node, and the server has the rest of the gang stopped, before the process
    of rank 0 has ended: the job waits for its storage, and is not blamed."""
    one = start()
    one.started(1.0)
    one.stop("rank 1: exit code 76: rank 0 is gone", 5.0)
    why = "checkpoint directory '/c/1': Read-only file system"
    failure = Failure(rank=0, exit_code=73, message=why, directory="out_of_order")
    one.exited(0, 73, failure, 6.0)
    one.record_exit(6.0)
    status = one.status(7.0)
    assert (status.exit_code, status.failure, status.reason) == (73, failure, why)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("code", [73, -signal.SIGTERM, -signal.SIGKILL])
def test_a_rank_that_left_for_storage_is_to_blame_though_another_ended_before(
    code: int, told: bool
) -> None:
    """told: the server has had the rest of the gang stopped by then."""
    one = start(ranks=TWO, world_size=3)
    one.started(1.0)
    missed = Failure(rank=1, exit_code=76, message="rank 0 is gone", secondary=True)
    why = "checkpoint directory '/c/1': Read-only file system"
    failure = Failure(rank=0, exit_code=code, message=why, directory="out_of_order")
    if told:
        one.stop("rank 2: exit code 76: rank 0 is gone", 5.0)
    one.exited(1, 76, missed, 5.5)
    one.exited(0, code, failure, 6.0)
    one.record_exit(6.0)
    status = one.status(7.0)
    assert (status.failure, status.reason) == (failure, f"rank 0: {why}")


def test_what_had_failed_before_the_agent_stopped_it_has_failed() -> None:
    one = start()
    one.started(1.0)
    one.loaded(Loaded(1, 40, 0.5), 4.0)
    one.exited(0, 9, ended(0, 9), 5.0)
    one.stop(EXPIRED, 5.5)
    one.record_exit(6.0)
    assert one.status(7.0).reason == "exit code 9"


def test_another_batch_size_has_its_own_count_of_steps() -> None:
    one = start()
    one.loaded(Loaded(1, 40, 0.5), 4.0)
    one.steps.adapt(Adapt(1, 64, 500, 20))
    status = one.status(5.0)
    assert (status.batch, status.total_steps, status.step) == (64, 500, 20)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "rank 1: exit code 1: error: boom"),
        (-9, "rank 1: killed by signal 9 (SIGKILL): error: boom"),
        (-11, "rank 1: killed by signal 11 (SIGSEGV): error: boom"),
    ],
)
def test_the_rank_that_fails_first_is_the_reason(code: int, reason: str) -> None:
    one = start(ranks=TWO, world_size=2)
    one.started(1.0)
    assert one.exited(1, code, ended(1, code, "error: boom"), 2.0)  # the others are to be ended
    one.exited(0, -9, ended(0, -9), 3.0)
    one.record_exit(3.0)
    assert (one.status(4.0).reason, one.status(4.0).exit_code) == (reason, code)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_leaves_before_its_first_step_is_to_blame_and_not_those_that_waited(
    rank: int,
) -> None:
    one = start(ranks=TWO, world_size=2)
    one.started(1.0)
    assert one.exited(rank, 0, None, 2.0, began=False)  # the other is to be ended
    one.exited(1 - rank, -15, ended(1 - rank, -15), 3.0)
    one.record_exit(3.0)
    status = one.status(4.0)
    assert (status.reason, status.exit_code) == (f"rank {rank} {LEFT_EARLY}", EXIT_RANK_SYNC)
    assert status.failure is not None
    assert (status.failure.rank, status.failure.exit_code) == (rank, 0)


def test_a_rank_may_leave_well_before_the_others_once_all_have_begun() -> None:
    gang: dict[str, Any] = {"ranks": TWO, "world_size": 2}
    begun = start(**gang)
    begun.started(1.0)
    assert not begun.exited(1, 0, None, 2.0)  # it came to its loop
    loaded = start(**gang)
    loaded.started(1.0)
    loaded.loaded(Loaded(1, 40, 0.5), 2.0)
    assert not loaded.exited(1, 0, None, 3.0, began=False)  # its stacks could not be written
    stopped = start(**gang)
    stopped.started(1.0)
    stopped.stop("preempted", 2.0)
    assert not stopped.exited(1, 0, None, 3.0, began=False)
    for one in (begun, loaded, stopped):
        assert (one.status(4.0).failure, one.status(4.0).left) == (None, -1)
    alone = start()
    alone.started(1.0)
    alone.exited(0, 0, None, 2.0, began=False)
    alone.record_exit(2.0)
    assert (alone.status(3.0).failure, alone.status(3.0).exit_code) == (None, 0)


def test_with_rank_0_elsewhere_a_rank_that_leaves_before_its_loop_is_told_of() -> None:
    one = start(ranks=(Rank(rank=2, devices=(0,)),), world_size=3, has_rank_0=False)
    one.started(1.0)
    assert not one.exited(2, 0, None, 2.0, began=False)
    one.record_exit(2.0)
    assert (one.status(3.0).left, one.status(3.0).exit_code) == (2, 0)
    other = start(ranks=(Rank(rank=2, devices=(0,)),), world_size=3, has_rank_0=False)
    other.started(1.0)
    other.exited(2, 0, None, 2.0)
    assert other.status(3.0).left == -1


def test_a_job_that_is_completed_but_fails_at_its_end_is_not_completed() -> None:
    one = start()
    one.progress(RankEnded(1, 60, 60, 0.3, True), 10.0)
    one.exited(0, 1, ended(0, 1), 11.0)
    one.record_exit(12.0)
    assert not one.status(13.0).completed


def test_a_lease_counts_from_the_question_and_is_never_shortened() -> None:
    lease = NodeLease(10.0)
    assert not lease.granted
    lease.extend(asked=100.0, seconds=10.0, rate_bound=0.1)
    assert lease.left_s(101.0) == pytest.approx(8.0)
    lease.extend(asked=90.0, seconds=10.0, rate_bound=0.1)  # an old answer comes late
    assert lease.left_s(101.0) == pytest.approx(8.0)
    assert not lease.is_short(106.0)
    assert lease.is_short(107.0)
    assert lease.left_s(200.0) == 0.0


def test_steps_neither_fall_nor_exceed_those_of_the_job() -> None:
    one = start(total_steps=1_000)
    one.started(1.0)
    one.times.record_hello(1.0)
    one.loaded(Loaded(1, 40, 0.5), 2.0)
    one.progress(Progress(1, 100, 90, 0.2), 3.0)
    one.progress(Progress(1, 7, 0, 0.2), 4.0)
    assert one.status(5.0).step == 100
    one.progress(Progress(1, 10**12, 10**12, 0.2), 5.0)
    status = one.status(5.0)
    assert (status.step, status.saved_step) == (1_000, 1_000)
    one.steps.adapt(Adapt(1, 64, 500, 250))  # with larger batches there are fewer
    assert one.status(6.0).step == 250
    one.progress(Progress(1, 600, 400, 0.2), 7.0)
    assert one.status(8.0).step == 500


@pytest.mark.parametrize(
    ("message", "expired"), [("", True), (EXPIRED, True), ("SIGTERM", False), ("preempted", False)]
)
def test_of_a_rank_that_says_why_it_ends_nothing_else_is_assumed(
    message: str, expired: bool
) -> None:
    one = start()
    one.started(1.0)
    one.loaded(Loaded(1, 40, 0.5), 4.0)
    one.progress(RankEnded(1, 50, 50, 0.2, False, message), 9.0)
    ended = Exited(job=1, attempt=1, rank=0, code=0, at_s=9.0)
    assert may_have_expired(one, ended) is expired


def test_a_failure_that_quotes_long_texts_can_be_told() -> None:
    """What is wrong with a start of a command of 100 kB is told like any other."""
    one = start()
    why = f"{'a' * 100_000}: the file name is too long"
    one.failed(0, f"rank 0: {why}", 1.0, directory="wrong_path", path="/" + "b" * 100_000)
    one.record_exit(1.0)
    (told,) = SendableCheck()([one.status(2.0)])
    assert told.failure is not None
    assert (told.failure.kind, told.failure.directory) == ("not_started", "wrong_path")
    assert told.failure.place == "a" * 1_000
    assert told.reason
