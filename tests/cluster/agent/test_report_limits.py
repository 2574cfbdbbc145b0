"""No message is too large; and if one is, no job ends for it."""

import asyncio
import sys
from pathlib import Path

import msgspec
from tests.cluster.agent.cluster import Server, cluster, plain

from fairlead.cluster.agent.rank_failures import MAX_TRACEBACK
from fairlead.cluster.agent.report_limits import (
    MIN_REPORT_BYTES,
    REPORT_BYTES,
    SendableCheck,
)
from fairlead.cluster.agent.server_client import orders_bytes
from fairlead.cluster.front.transport import MAX_MESSAGE_BYTES
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    Assignment,
    AttemptStatus,
    Failure,
    Orders,
    Rank,
)
from fairlead.cluster.protocol.read_job_spec import JOB_BYTES, MAX_PATH, check_spec
from fairlead.cluster.protocol.runtime import Runtime

_LONG = "\N{PILE OF POO}" * 500  # all that a line may hold
_FAIL = """
import json, os, sys
told = {"type": "E", "message": "m", "traceback": "\N{PILE OF POO}" * 31_900}
open(os.environ["FAIRLEAD_FAILURE_FILE"], "w").write(json.dumps(told, ensure_ascii=False))
sys.exit(1)
"""


def _ended(job: int) -> AttemptStatus:
    """All of its texts as long as they can be."""
    failure = Failure(
        type=_LONG, message=_LONG, file=_LONG, function=_LONG, traceback="x" * MAX_TRACEBACK
    )
    return AttemptStatus(
        job=job, attempt=1, state="ended", exit_code=1, reason=_LONG * 2, failure=failure
    )


def _ends(server: Server) -> set[int]:
    return {status.job for status in server.statuses.values() if status.state == "ended"}


def _size(status: tuple[AttemptStatus, ...]) -> int:
    return len(msgspec.msgpack.encode(status))


def test_many_ends_are_told_in_several_reports() -> None:
    check = SendableCheck()
    holds = {job: _ended(job) for job in range(200)}
    holds[200] = AttemptStatus(job=200, attempt=1, state="running", step=7, stacks="x" * 32_000)
    reports, known = 0, set[int]()
    while any(status.state == "ended" for status in holds.values()):
        told = check(holds.values())
        assert [status.job for status in told] == list(holds)  # nothing that is held is left out
        assert _size(told) <= REPORT_BYTES + 10 < MAX_MESSAGE_BYTES
        ends = {status.job for status in told if status.state == "ended"}
        assert ends
        assert ends >= known & holds.keys()  # what was told once is told until it is forgotten
        assert all(status == holds[status.job] for status in told if status.state == "ended")
        assert all(status.failure is None for status in told if status.state == "stopping")
        known |= ends
        for job in sorted(ends)[::2]:
            del holds[job]
            check.forget((job, 1))
        reports += 1
    assert 3 <= reports < 30
    assert check(holds.values()) == (holds[200],)


def test_one_end_always_fits() -> None:
    check = SendableCheck()
    for _ in range(20):
        check.halve_limit()
    assert check.most == MIN_REPORT_BYTES
    told = check([_ended(1), _ended(2)])
    assert [status.state for status in told] == ["ended", "stopping"]
    check.reset()
    assert [status.state for status in check([_ended(1), _ended(2)])] == ["ended", "ended"]


def test_the_largest_jobs_of_a_node_fit_its_orders() -> None:
    path = "/" + "\N{PILE OF POO}" * (MAX_PATH - 1)
    spec = JobSpec(
        command=("a" * (JOB_BYTES - 5 - 4_000), *[""] * 2_000),
        env={f"A{i}": "" for i in range(100, 200)},
        total_steps=1,
        cwd=path,
        checkpoint_dir=path,
        unmanaged=True,
        progress_url="http://127.0.0.1:80/" + "a" * 1_900,
        python=path,
    )
    check_spec(spec)
    assignment = Assignment(
        job=1 << 50,
        attempt=1 << 50,
        command=spec.command,
        env=spec.env,
        cwd=path,
        checkpoint_dir=path,
        ranks=(Rank(rank=4_000, devices=(60_000,)),),
        world_size=4_000,
        master="m" * 4_096,
        runtime=Runtime(python=path, venv=path, conda=path),
        progress_url=spec.progress_url,
    )
    for devices in (1, 72):
        orders = Orders(seq=1, desired=(assignment,) * (2 * devices))
        assert len(msgspec.msgpack.encode(orders)) <= orders_bytes(devices)


def test_neither_reports_nor_orders_that_are_too_large_end_an_agent(tmp_path: Path) -> None:
    async def scenario() -> None:
        devices = "v100=6"
        async with cluster(tmp_path / "s", "--devices", devices, largest=120_000) as (
            server,
            agent,
        ):
            bystander = plain(1, "sleep", "1000")
            failing = [
                plain(n, sys.executable, "-c", _FAIL, ranks=(Rank(rank=0, devices=(n - 1,)),))
                for n in range(2, 7)
            ]
            await server.order(bystander, *failing)
            seen = set[int]()
            while len(seen) < 5:
                await server.until(lambda: _ends(server) - seen)  # noqa: B023 - it is mutated
                seen |= _ends(server)
                await server.order(bystander)  # and forget those
            await server.until(lambda: len(server.statuses) == 1)
            large = plain(
                9, "true", ranks=(Rank(rank=0, devices=(2,)),), env={"A": "a" * (8 << 20)}
            )
            assert len(large.env["A"]) > orders_bytes(6)
            await server.order(bystander, large)
            await asyncio.sleep(1.0)
            assert agent.process is not None
            assert agent.process.poll() is None
            await server.order(bystander, plain(10, "true", ranks=(Rank(rank=0, devices=(3,)),)))
            ended = await server.until_state((10, 1), "ended")
            assert ended.exit_code == 0
            assert server.statuses[1, 1].state == "running"
            assert len(server.registered) == 1

    asyncio.run(scenario())
