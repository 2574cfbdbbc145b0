"""Who is to blame for starts that fail, and what is done."""

import msgspec
import pytest

from fairlead.cluster.store.failures import (
    Backoff,
    FailureDecision,
    FailureRecord,
    RetryPolicy,
    added,
    in_a_row,
    judge_job,
    program_of,
    waiting,
    waiting_for_storage,
)
from fairlead.cluster.store.node_judge import GoodStart, NodeJudge, Parties

TRAIN = ("ann", "python", "train.py")
BACKOFF = Backoff(5.0, 300.0)


def failed(job: int, node: str, time_s: float = 0.0, **more: object) -> FailureRecord:
    given = {"kind": "exit", "exit_code": 1, "reason": "exit code 1", "program": TRAIN, **more}
    return FailureRecord(job=job, attempt=int(time_s), node=node, time_s=time_s, **given)  # type: ignore[arg-type]


def raised(node: str, time_s: float = 0.0, *, job: int = 1, **more: object) -> FailureRecord:
    given = {"kind": "exception", "reason": "ValueError: no", "place": "ValueError@train.py:57"}
    return failed(job, node, time_s, **{**given, "step": 120, **more})


def judge(
    *records: FailureRecord,
    policy: RetryPolicy | None = None,
    nodes: int = 3,
    runs_elsewhere: bool = False,
) -> FailureDecision:
    return judge_job(
        records, policy or RetryPolicy(), BACKOFF, nodes=nodes, runs_elsewhere=runs_elsewhere
    )


# --- jobs ----------------------------------------------------------------------------------------


def test_each_retry_waits_twice_as_long_and_avoids_where_it_failed() -> None:
    records = [failed(1, node, float(i)) for i, node in enumerate("abcab")]
    verdicts = [judge(*records[: n + 1]) for n in range(5)]
    assert [v.wait_s for v in verdicts] == [5.0, 10.0, 20.0, 40.0, 80.0]
    assert [v.avoid for v in verdicts[:2]] == [("a",), ("a", "b")]
    assert not any(v.drop for v in verdicts)
    assert Backoff(5.0, 300.0).wait_s(100) == 300.0


def test_after_max_retries_it_is_given_up_with_the_reason() -> None:
    records = [failed(1, node, float(i)) for i, node in enumerate("abcabc")]
    verdict = judge(*records)
    assert verdict.drop
    assert verdict.reason == "failed 6 times in a row (max_retries 5): exit code 1"
    assert judge(records[0], policy=RetryPolicy(0)).drop
    assert not judge(*records, policy=RetryPolicy(6)).drop


def test_a_start_that_got_further_begins_the_count_anew() -> None:
    records = [failed(1, "a", float(i), progressed=i == 4) for i in range(6)]
    assert [r.time_s for r in in_a_row(records)] == [4.0, 5.0]
    assert judge(*records).wait_s == 10.0


def test_what_the_node_is_to_blame_for_does_not_count() -> None:
    records = [failed(1, "a", 0.0, blames_node=True), failed(1, "b", 1.0)]
    assert judge(records[0]) == FailureDecision(False, "exit code 1", 0.0, ("a",), 0)
    assert judge(*records).wait_s == 5.0
    assert not judge(*[failed(1, "a", float(i), blames_node=True) for i in range(9)]).drop


@pytest.mark.parametrize("code", [1, 137])
def test_exit_codes_say_whether_it_is_tried_again(code: int) -> None:
    record = failed(1, "a", exit_code=code)
    assert not judge(record, policy=RetryPolicy(retry_on=(code,))).drop
    assert not judge(record, policy=RetryPolicy(no_retry_on=(2,))).drop
    other = judge(record, policy=RetryPolicy(retry_on=(75,)))
    assert other.drop
    assert other.reason.startswith(f"exit code {code} is not in retry_on")
    named = judge(record, policy=RetryPolicy(no_retry_on=(code,)))
    assert named.drop
    assert named.reason.startswith(f"exit code {code} is in no_retry_on")
    assert not judge(failed(1, "a", kind="stalled"), policy=RetryPolicy(retry_on=(75,))).drop


def test_a_reason_is_not_said_twice() -> None:
    policy = RetryPolicy(no_retry_on=(3,))
    bare = failed(1, "a", exit_code=3, reason="exit code 3")
    assert judge(bare, policy=policy).reason == "exit code 3 is in no_retry_on"
    telling = failed(1, "a", exit_code=3, reason="exit code 3: no data")
    assert judge(telling, policy=policy).reason.endswith("in no_retry_on: exit code 3: no data")


def test_failures_that_do_not_count_are_told_apart() -> None:
    blamed = [failed(1, "a", float(i), blames_node=True) for i in range(5)]
    own = [failed(1, "b", 10.0 + i) for i in range(6)]
    told = (
        "failed 6 times in a row (max_retries 5, not counting 5 times for which nodes are to blame)"
    )
    assert judge(*blamed, *own).reason == f"{told}: exit code 1"


def test_the_same_exception_at_the_same_step_twice_in_a_row_is_enough() -> None:
    verdict = judge(raised("a", 0.0), raised("b", 9.0))
    assert verdict.drop
    assert verdict.reason == "the same exception at step 120 twice in a row: ValueError: no"
    assert not judge(raised("a"), raised("b", 9.0, step=121)).drop
    assert not judge(raised("a"), raised("b", 9.0, place="ValueError@train.py:58")).drop
    assert not judge(raised("a"), failed(1, "c", 5.0), raised("b", 9.0)).drop


def test_who_fails_at_the_same_step_got_no_further_however_long_it_ran() -> None:
    assert judge(raised("a"), raised("b", 9.0, ran_s=4e3, progressed=True)).drop
    assert judge(raised("a", progressed=True), raised("b", 9.0, progressed=True)).drop
    assert not judge(raised("a"), raised("b", 9.0, step=130, progressed=True)).drop
    unknown = raised("b", 9.0, step=-1, progressed=True)
    assert not judge(raised("a", step=-1), unknown).drop


def test_a_step_that_was_not_told_once_makes_no_other_failure_of_it() -> None:
    verdict = judge(raised("a", step=-1, worked_s=3.0), raised("b", 9.0))
    assert verdict.reason == "the same exception at step 120 twice in a row: ValueError: no"
    assert judge(raised("a"), raised("b", 9.0, step=-1, worked_s=4.0)).drop
    assert not judge(raised("a"), raised("b", 9.0, step=-1, worked_s=4e3)).drop


def test_exceptions_at_an_unknown_step_are_alike_if_they_come_soon() -> None:
    assert judge(raised("a", step=-1, worked_s=3.0), raised("b", 9.0, step=-1, worked_s=4.0)).drop
    late = raised("b", 9.0, step=-1, worked_s=4e3)
    assert not judge(raised("a", step=-1, worked_s=3.0), late).drop


def test_a_start_that_took_long_and_never_trained_did_not_come_further() -> None:
    assert judge(raised("a", step=-1, ran_s=90.0), raised("b", 9.0, step=-1, ran_s=4e3)).drop


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("torch.OutOfMemoryError@train.py:57", "OutOfMemoryError: CUDA out of memory"),
        ("ConnectionResetError@train.py:57", "ConnectionResetError: reset by peer"),
        ("RuntimeError@train.py:57", "RuntimeError: NCCL error: remote process exited"),
        ("OSError@train.py:57", "OSError: [Errno 5] Input/output error"),
    ],
)
def test_errors_that_may_pass_are_tried_again(place: str, reason: str) -> None:
    assert not judge(*[raised(n, place=place, reason=reason) for n in "ab"]).drop


def absent(job: int, node: str, time_s: float = 0.0, command: str = "python") -> FailureRecord:
    """The node does not find a command of its own."""
    reason = f"command not found: {command!r}"
    program = ("ann", command, f"{job}.py")
    return failed(
        job,
        node,
        time_s,
        kind="not_started",
        exit_code=127,
        reason=reason,
        place=reason,
        program=program,
        forgeable=False,
    )


def mistaken(job: int, node: str, time_s: float = 0.0, *where: str) -> FailureRecord:
    """A script, or a place where it is to run, that its owner has misspelt."""
    program = program_of("ann", ("python", "train.py" if where else f"nosuch{job}.py"), *where)
    reason = f"{where or program[2]} is not there"
    return failed(
        job, node, time_s, kind="not_started", reason=reason, place=reason, program=program
    )


def test_a_command_that_two_nodes_do_not_find_is_given_up() -> None:
    records = [absent(1, "a"), absent(1, "b", 5.0)]
    verdict = judge(*records)
    assert verdict.reason == "it cannot be started, tried on 2 nodes: command not found: 'python'"
    assert not judge(*records, runs_elsewhere=True).drop  # others find it
    assert not judge(records[0], absent(1, "a", 5.0)).drop  # another node may have it
    assert judge(records[0], absent(1, "a", 5.0), nodes=1).drop
    blamed = [msgspec.structs.replace(absent(1, "b", float(i)), blames_node=True) for i in range(3)]
    verdict = judge(*blamed, records[0], absent(1, "a", 5.0), nodes=1)
    assert verdict.reason.startswith("it cannot be started, tried 5 times: ")


def test_a_waiting_job_says_so() -> None:
    assert waiting(2, 40.2, "exit code 1") == "failed twice, tried again in 40 s: exit code 1"
    assert waiting(1, 5.0, "exit code 1", in_all=2) == (
        "failed once (2 failures in all), tried again in 5 s: exit code 1"
    )
    assert (
        waiting(3, -1.0, "exit code 1")
        == "failed 3 times, tried again when it gets devices: exit code 1"
    )


def homeless(node: str, time_s: float = 0.0, **more: object) -> FailureRecord:
    """The storage for its checkpoints is out of order."""
    why = "checkpoint directory '/x/1': No space left on device"
    given = {"kind": "not_started", "exit_code": 127, "reason": why, "place": why}
    return failed(1, node, time_s, **{**given, "directory": "out_of_order", **more})


def test_storage_that_is_out_of_order_is_no_fault_of_a_job() -> None:
    records = [homeless("ab"[i % 2], float(i)) for i in range(7)]
    verdicts = [judge(*records[: n + 1], policy=RetryPolicy(0, (75,))) for n in range(7)]
    assert not any(v.drop or v.failures for v in verdicts)
    assert [v.wait_s for v in verdicts] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
    own = failed(1, "a", 9.0)
    assert judge(*records, own).wait_s == 5.0
    assert judge(own, records[0]).failures == 1
    assert judge(own, records[0]).wait_s == 5.0, "its waits for storage begin anew"
    crash = raised("a", 1.0), homeless("b", 2.0), raised("b", 3.0)
    assert judge(*crash).reason.startswith("the same exception at step 120 twice in a row")


def test_a_long_outage_pushes_out_nothing_that_counts() -> None:
    records: tuple[FailureRecord, ...] = (failed(1, "a", 0.0, progressed=True), failed(1, "b", 1.0))
    for i in range(100):
        records = added(records, homeless("a", 2.0 + i, progressed=i == 0))
    assert len(records) == 11
    assert records[-1].time_s == 101.0
    assert in_a_row(records) == []
    assert judge(*records).wait_s == 60.0


def test_who_waits_for_storage_says_so() -> None:
    told = waiting_for_storage(5.0, "checkpoint directory '/x/1': no answer within 60 s")
    assert told.startswith("waits for the storage of its checkpoints, tried again in 5 s: ")


# --- nodes ---------------------------------------------------------------------------------------


def went_well(
    job: int, node: str, time_s: float = 1.0, program: tuple[str, ...] = TRAIN
) -> GoodStart:
    return GoodStart(job, node, time_s, program)


def suspects(
    *history: FailureRecord | GoodStart, nodes: str = "ab", now_s: float = 60.0
) -> set[str]:
    judge = NodeJudge()
    for one in history:
        (judge.failed if isinstance(one, FailureRecord) else judge.went_well)(one)  # type: ignore[arg-type]
    return set(judge.suspects(now_s, nodes))


def test_jobs_that_fail_speak_against_the_node_only_if_they_get_further_elsewhere() -> None:
    bad = [failed(job, "a") for job in (1, 2, 3)]
    assert suspects(*bad, went_well(1, "b"), went_well(2, "b")) == {"a"}
    assert suspects(*bad, went_well(1, "b")) == set()
    before = [went_well(job, "b", -5.0) for job in (1, 2, 3)]
    assert suspects(*before, *bad) == set()  # what it met only here, it may meet there
    assert suspects(*bad) == set()  # it may be the program
    assert suspects(*bad, went_well(9, "b")) == set()  # or what these jobs want of it
    again = [failed(1, "a", float(i)) for i in range(3)]
    assert suspects(*again, went_well(1, "b", 5.0)) == set()


def test_who_trains_elsewhere_has_not_got_further_yet() -> None:
    bad = [failed(job, "a", 5.0, kind="signal", worked_s=8.0, reached=20.0) for job in (1, 2)]

    def further(step: float, lasted_s: float) -> set[str]:
        goods = [GoodStart(job, "b", 9.0, TRAIN, lasted_s, step) for job in (1, 2)]
        return suspects(*bad, *goods)

    assert further(0.0, 0.0) == set()
    assert further(20.0, 60.0) == set()
    assert further(40.0, 15.0) == set()
    assert further(40.0, 16.0) == {"a"}
    exact = [raised("a", 5.0, job=job, worked_s=8.0) for job in (1, 2)]
    goods = [GoodStart(job, "b", 9.0, TRAIN, 8.0, 121.0) for job in (1, 2)]
    assert suspects(*exact, *goods) == {"a"}


def test_what_fails_elsewhere_at_the_same_place_is_no_nodes_fault() -> None:
    """13 jobs of one program that fail in ways of their own, and one that fails only once."""
    kinds = ("exit", "signal", "exception", "stalled")
    bad = [
        failed(job, "a", float(job), kind=kinds[job % 4], worked_s=4.0, reached=20.0)
        for job in range(1, 13)
    ]
    starts = [GoodStart(job, "b", 20.0 + job, TRAIN, 0.5, 5.0) for job in range(1, 13)]
    once = failed(13, "a", 1.0), GoodStart(13, "b", 21.0, TRAIN, 30.0, 50.0)
    assert suspects(*bad, *starts, *once) == set()
    nowhere = [
        failed(20 + i, "a", 1.0, kind="not_started", directory="wrong_path") for i in range(3)
    ]
    assert suspects(*bad, *starts, *once, *nowhere) == set()


def test_storage_speaks_against_a_node_only_if_others_do_well_with_it_meanwhile() -> None:
    def gone(job: int, node: str, time_s: float) -> FailureRecord:
        at = f"checkpoint directory '/x/{job}': No space left on device"
        record = homeless(node, time_s, place=at, reason=at, forgeable=False)
        return msgspec.structs.replace(record, job=job)

    # An outage of all: who failed on one node fails, or does well later, on the other
    outage = [gone(job, "a", 0.0) for job in (1, 2, 3)] + [gone(4, "b", 0.0)]
    assert suspects(*outage) == set()
    after = [went_well(job, "b", 9.0) for job in (1, 2, 3)]
    assert suspects(*outage, *after) == set()
    # One of a node: it goes on failing while others get on
    more = gone(5, "a", 20.0)
    assert suspects(*outage, *after, more) == {"a"}
    assert suspects(*outage, *after, more, gone(6, "b", 21.0)) == set()
    full = "OSError: [Errno 28] No space left on device"
    disk = [raised("a", float(job), job=job, reason=full) for job in (1, 2)]
    good = [GoodStart(job, "b", 9.0, TRAIN, 3.0, 130.0) for job in (1, 2)]
    assert suspects(*disk) == set()
    assert suspects(*disk, *good) == set()
    assert suspects(*disk, *good, raised("a", 20.0, job=3, reason=full)) == {"a"}


def test_the_reason_says_what_was_counted() -> None:
    def told(*history: FailureRecord | GoodStart) -> str:
        judge = NodeJudge()
        for one in history:
            (judge.failed if isinstance(one, FailureRecord) else judge.went_well)(one)  # type: ignore[arg-type]
        return judge.sentence(judge.suspects(60.0, "ab")["a"])

    ill = [failed(job, "a", reason=ECC) for job in (1, 2)]
    assert told(*ill) == "2 jobs failed here with an error that a healthy node does not cause"
    assert told(*ill, went_well(1, "b"), went_well(2, "b")) == (
        "2 jobs failed here that run elsewhere"
    )
    elsewhere = went_well(9, "b", program=("ann", "python", "other.py"))
    assert told(*[absent(job, "a") for job in (1, 2, 3)], elsewhere) == (
        "3 jobs could not be started here, with a command that is started elsewhere"
    )


@pytest.mark.parametrize("where", [(), ("cwd /nosuch",), ("/nosuch/venv",)])
def test_mistakes_of_one_user_speak_against_no_node(where: tuple[str, ...]) -> None:
    runs = [went_well(job, node, 0.0) for job, node in ((8, "b"), (9, "a"))]
    bad = [mistaken(job, "a", 5.0, *where) for job in (1, 2, 3)]
    assert suspects(*runs, *bad) == set()
    judge = NodeJudge.of(bad, runs)
    assert not judge.runs_elsewhere(bad[0])
    assert list(judge.suspects(60.0, "ab", Parties(["ann"]))) == []


def test_two_jobs_that_do_well_on_another_node_are_enough() -> None:
    bad = [failed(job, "a", program=("ann", "python", f"{job}.py")) for job in (1, 2)]
    good = [went_well(job, "b", 5.0, ("ann", "python", f"{job}.py")) for job in (1, 2)]
    assert suspects(*bad, *good) == {"a"}
    assert suspects(*bad, good[0]) == set()


def test_of_a_command_that_is_not_found_the_name_alone_counts() -> None:
    bad = [absent(job, "a") for job in (1, 2, 3)]
    assert suspects(*bad, went_well(9, "b", program=("ann", "python", "other.py"))) == {"a"}
    assert suspects(*bad, went_well(9, "b", program=("ann", "julia", "x.jl"))) == set()


def test_a_job_that_fails_everywhere_is_itself_to_blame() -> None:
    bad = [failed(job, node) for job in (1, 2, 3) for node in "ab"]
    assert suspects(*bad, went_well(9, "c"), nodes="abc") == set()
    # ... and so is a program, whichever job brought it there
    typo = [raised("a", job=1), raised("a", job=2), raised("a", job=3), raised("b", job=4)]
    assert suspects(*typo, went_well(9, "c"), nodes="abc") == set()


def test_two_broken_nodes_are_found_once_the_jobs_run_on_a_third() -> None:
    bad = [absent(job, node, 0.0) for job in (1, 2, 3) for node in "ab"]
    good = [went_well(job, "c", 5.0, ("ann", "python", f"{job}.py")) for job in (1, 2, 3)]
    assert suspects(*bad, *good, nodes="abc") == {"a", "b"}


def test_a_good_start_on_the_node_speaks_for_it() -> None:
    bad = [failed(job, "a", 10.0) for job in (1, 2, 3)]
    good = [went_well(job, "b", 12.0) for job in (1, 2)]
    assert suspects(*bad, *good, went_well(8, "a", 5.0)) == {"a"}
    assert suspects(*bad, *good, went_well(8, "a", 15.0)) == set()


def test_errors_of_hardware_speak_against_the_node_by_themselves() -> None:
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert suspects(*[failed(job, "a", reason=ecc) for job in (1, 2)]) == {"a"}
    assert suspects(failed(1, "a", reason=ecc)) == set()


def test_what_began_well_and_failed_of_hardware_was_no_good_start() -> None:
    """Jobs that train for a few steps before the device fails, by turns."""
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    records: list[FailureRecord | GoodStart] = [
        went_well(1, "a", 1.0), failed(1, "a", 3.0, reason=ecc, ran_s=2.5),
        went_well(2, "a", 4.0), failed(2, "a", 6.0, reason=ecc, ran_s=2.5),
    ]  # fmt: skip
    assert suspects(*records) == {"a"}
    assert suspects(*records, went_well(3, "a", 5.0)) == set(), "it goes on"
    bug = [failed(job, "a", 3.0 * job, reason="KeyError: 'x'", ran_s=2.5) for job in (1, 2)]
    assert suspects(*records[::2], *bug) == set()


def test_old_failures_and_nodes_out_of_service_are_passed_over() -> None:
    bad = [failed(job, "a") for job in (1, 2, 3)]
    assert suspects(*bad, went_well(1, "b"), now_s=1e4) == set()
    assert suspects(*bad, went_well(1, "b"), nodes="bc") == set()


def test_never_all_nodes_are_to_blame() -> None:
    ecc = "uncorrectable ECC error"
    history = [failed(job, node, reason=ecc) for job in (1, 2) for node in "a"]
    assert suspects(*history, nodes="a") == set()


def test_the_word_of_one_user_takes_no_node_from_others() -> None:
    def judged(*bad: FailureRecord, users: str) -> list[str]:
        judge = NodeJudge.of(bad, [went_well(9, "b")])
        return list(judge.suspects(60.0, "ab", Parties(users.split())))

    ecc = "uncorrectable ECC error"
    forged = [failed(job, "a", reason=ecc) for job in (1, 2, 3)]
    assert judged(*forged, users="ann bob") == []
    assert judged(*forged, users="ann") == ["a"], "nobody else suffers from it"
    other = msgspec.structs.replace(forged[0], job=4, program=("bob", "python", "his.py"))
    assert judged(*forged, other, users="ann bob") == ["a"]
    not_theirs = [msgspec.structs.replace(record, forgeable=False) for record in forged]
    assert judged(*not_theirs, users="ann bob") == ["a"]


def of(tenant: str, record: FailureRecord) -> FailureRecord:
    user = f"user of {tenant}"
    return msgspec.structs.replace(record, tenant=tenant, program=(user, *record.program[1:]))


def judged_by_tenants(
    *history: FailureRecord | GoodStart, content: tuple[str, ...] = (), known: str = "eve bob cat"
) -> bool:
    """Is node a to blame? content: tenants whose jobs run well there."""
    judge = NodeJudge()
    for one in history:
        (judge.failed if isinstance(one, FailureRecord) else judge.went_well)(one)  # type: ignore[arg-type]
    parties = Parties(known.split(), by_tenant=True, content=lambda node: content * (node == "a"))
    return "a" in judge.suspects(60.0, "ab", parties)


ECC = "uncorrectable ECC error"


def test_users_of_one_tenant_take_no_node_from_another() -> None:
    forged = [failed(job, "a", reason=ECC, tenant="eve") for job in (1, 2)]
    forged += [msgspec.structs.replace(forged[0], job=3, program=("adam", "python", "his.py"))]
    assert not judged_by_tenants(*forged)
    assert not judged_by_tenants(*forged, known="bob"), "none of its jobs is open any more"
    assert judged_by_tenants(*forged, known="eve"), "there never was another"


def test_a_forger_and_jobs_that_fail_by_themselves_take_no_node() -> None:
    forged = [of("eve", failed(job, "a", reason=ECC)) for job in (1, 2, 3)]
    honest = [of("bob", failed(job, "a", 10.0)) for job in (4, 5)]
    runs = went_well(9, "b", 5.0, honest[0].program)  # his program, with other arguments
    assert not judged_by_tenants(*forged, *honest, runs)
    long = [msgspec.structs.replace(record, worked_s=12.0) for record in honest]
    young = GoodStart(4, "b", 20.0, honest[0].program, lasted_s=10.0)
    assert not judged_by_tenants(*forged, *long, runs, young), "it may fail there as late"
    old = GoodStart(4, "b", 20.0, honest[0].program, lasted_s=30.0)
    assert judged_by_tenants(*forged, *long, runs, old), "it runs elsewhere, and does not here"


def test_jobs_that_run_well_on_a_node_weigh_as_much_as_those_that_fail() -> None:
    bad = [of(name, failed(i, "a", reason=ECC)) for i, name in enumerate(["eve", "bob", "dan"])]
    assert judged_by_tenants(*bad[:2])
    assert not judged_by_tenants(*bad[:2], content=("cat",))
    assert judged_by_tenants(*bad, content=("cat",))
    assert not judged_by_tenants(*bad, content=("cat", "fay"))
    assert not judged_by_tenants(*bad[:2], content=("bob",)), "he contradicts himself"


def test_what_a_node_itself_cannot_do_needs_no_second_party() -> None:
    own = [of("eve", absent(job, "a")) for job in (1, 2, 3)]
    good = went_well(9, "b", program=("user of eve", "python", "other.py"))
    mine = [msgspec.structs.replace(record, forgeable=True) for record in own]
    assert judged_by_tenants(*own, good, content=("cat",))
    assert not judged_by_tenants(own[0], *mine[1:], good), "one of them alone is too little"


def test_a_node_that_was_dealt_with_begins_anew() -> None:
    judge = NodeJudge()
    for job in (1, 2, 3):
        judge.went_well(went_well(job, "b"))
        judge.failed(failed(job, "a"))
    assert list(judge.suspects(60.0, "ab")) == ["a"]
    judge.forgive("a")
    assert judge.suspects(60.0, "ab") == {}


def test_after_a_restart_failures_that_were_dealt_with_do_not_count_again() -> None:
    bad = [failed(job, "a", float(job)) for job in (3, 2, 1)]
    good = [went_well(1, "b", 5.0), went_well(2, "b", 6.0)]
    assert list(NodeJudge.of(bad, good).suspects(60.0, "ab")) == ["a"]
    dealt_with = [msgspec.structs.replace(record, blames_node=True) for record in bad]
    assert NodeJudge.of(dealt_with, good).suspects(60.0, "ab") == {}
    assert NodeJudge.of(bad, [*good, went_well(8, "a", 15.0)]).suspects(60.0, "ab") == {}


def test_a_program_is_a_user_and_the_first_words() -> None:
    assert program_of("ann", ("python", "train.py", "--lr", "1")) == TRAIN
    assert program_of("ann", ("python", "train.py"), "", "/venv") == (*TRAIN, "/venv")
