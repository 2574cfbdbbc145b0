"""The webhook of a real server, which is killed before the receiver takes anything."""

from pathlib import Path

from tests.cluster.cluster import running, until
from tests.cluster.notice_receiver import SECRET, receiving

from fairlead.cluster.protocol.job_spec import JobSpec


def test_notices_of_a_server_that_is_killed_are_sent_after_its_next_start(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    with receiving() as receiver:
        receiver.answers = [503] * 1_000
        options = ("--webhook", receiver.webhook.url, "--webhook-secret", str(secret))
        with running(tmp_path, options, agents={"node-a": "v100=1"}) as cluster:
            with cluster.client() as client:
                spec = JobSpec(command=("true",), total_steps=10, unmanaged=True, cwd="/")
                (job,) = client.submit([spec])
                until(lambda: client.job(job).state == "completed", what="its end")
                until(lambda: bool(receiver.requests), what="the first try")
            cluster.kill()
            refused = len(receiver.requests)
            receiver.answers.clear()
            cluster.start()
            until(lambda: len(receiver.requests) > refused, what="the notice")
        told = receiver.notices()
        assert {notice["id"] for notice in told} == {told[0]["id"]}
        assert told[-1]["job"]["state"] == "completed"
