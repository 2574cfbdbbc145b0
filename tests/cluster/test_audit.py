"""The audit log of a real cluster, whose server is killed while it works."""

import json
import threading
from pathlib import Path

from tests.call_command import call
from tests.cluster.cluster import running

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.audit_log import NAME
from fairlead.errors import FairleadError

SPEC = JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0})


def test_what_was_acknowledged_is_in_the_log_after_the_server_was_killed(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        acknowledged: list[int] = []
        enough = threading.Event()

        def submit() -> None:
            with cluster.client() as client:
                while True:
                    try:
                        (job,) = client.submit([SPEC])
                    except FairleadError:
                        return
                    acknowledged.append(job)
                    if len(acknowledged) == 40:
                        enough.set()

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(180)
        cluster.kill()
        for thread in threads:
            thread.join()
        cluster.start()
        with cluster.client() as client:
            known = {job.id for job in client.all_jobs()}
            page = client.audit(action="submit", limit=10_000)
        logged = {
            int(one.object.removeprefix("job "))
            for one in page.entries
            if one.outcome == "accepted"
        }
        assert set(acknowledged) <= logged <= known


def test_a_backup_and_a_restore_at_the_machine_are_written(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        state = cluster.state
        assert call("backup", state, tmp_path / "file") == 0
        cluster.stop()
        assert call("restore", "--replace", tmp_path / "file", state) == 0
        cluster.start()
        with cluster.client() as client:
            found = [one for one in client.audit().entries if one.source == "local"]
    # New tokens follow where the backup is from before the first ones were known to be delivered.
    assert [one.action for one in found][:4] == ["add_user", "add_user", "backup", "restore"]
    lines = (state / NAME).read_text().splitlines()
    assert [json.loads(line)["action"] for line in lines] == [one.action for one in found]
