"""Jobs that wait for others, on a real server and agent, with the server killed in between."""

from functools import partial
from pathlib import Path

from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec

TASKS, LIMIT = 8, 2
# Each task appends a line when it begins and one when it ends.
SCRIPT = """
echo "begin $FAIRLEAD_ARRAY_INDEX" >> "$LEDGER"
sleep 0.2
echo "end $FAIRLEAD_ARRAY_INDEX $FAIRLEAD_ARRAY_ID $FAIRLEAD_ARRAY_COUNT" >> "$LEDGER"
"""


def test_array_and_what_comes_after_it_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    def unmanaged(script: str, **more: object) -> JobSpec:
        return JobSpec(
            command=("sh", "-c", script),
            total_steps=10_000,
            unmanaged=True,
            cwd="/",
            env={"LEDGER": str(ledger)},
            **more,  # type: ignore[arg-type]
        )

    def lines(word: str) -> list[str]:
        text = ledger.read_text() if ledger.exists() else ""
        return [line for line in text.splitlines() if line.startswith(word)]

    def ended(tasks: int) -> bool:
        return len(lines("end")) >= tasks

    with running(tmp_path, agents={"node-a": "v100=4"}) as cluster:
        with cluster.client() as client:
            until(lambda: any(node.state == "up" for node in client.nodes()), what="the node")
            ids = client.submit([unmanaged(SCRIPT, array=f"1-{TASKS}%{LIMIT}")])
            (last,) = client.submit(
                [unmanaged('echo last >> "$LEDGER"', after=(f"ok:array:{ids[0]}",))]
            )
            (never,) = client.submit([unmanaged("true", after=(f"ok:{last}",))])
            for done in (1, 3, 5):
                until(partial(ended, done), what=f"{done} ends")
                cluster.kill()
                cluster.start()
            until(lambda: client.job(last).state == "completed", what="the last job")
            assert [client.job(job).state for job in ids] == ["completed"] * TASKS
            assert [client.job(job).starts for job in (*ids, last)] == [1] * (TASKS + 1)
            until(lambda: client.job(never).state == "completed", what="the end of the chain")
        ends = [f"end {index} {ids[0]} {TASKS}" for index in range(1, TASKS + 1)]
        assert sorted(lines("end")) == ends
        assert lines("last") == ["last"]
        assert ledger.read_text().splitlines()[-1] == "last"
        running_now = most = 0
        for line in ledger.read_text().splitlines():
            running_now += {"begin": 1, "end": -1}.get(line.split()[0], 0)
            most = max(most, running_now)
        assert most <= LIMIT
