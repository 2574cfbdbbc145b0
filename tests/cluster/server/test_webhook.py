"""The operator's webhook is told what becomes of jobs, at least once."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.notice_receiver import SECRET, Receiver, receiving
from tests.cluster.played_jobs import complete, fail, run
from tests.cluster.server_nodes import ADMIN, EngineNodes, busy_driver, engine_nodes

from fairlead.cluster.server import job_notices, webhook
from fairlead.cluster.server.job_notices import PREFIX
from fairlead.cluster.server.notice_source import ServiceNotices
from fairlead.cluster.server.webhook import Webhook, WebhookSender, read_webhook, signature
from fairlead.errors import ConfigError


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(webhook, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(webhook, "POLL_S", 0.05)
    monkeypatch.setattr(webhook, "LOOK_S", 0.1)
    with receiving() as found:
        yield found


@contextmanager
def sending(cluster: EngineNodes, to: Webhook) -> Iterator[None]:
    notices = cluster.service.engine.parts.attempts.notices
    assert notices is not None
    sender = WebhookSender(to, ServiceNotices(cluster.service, notices))
    sender.start()
    try:
        yield
    finally:
        sender.close()


def waiting(cluster: EngineNodes) -> int:
    """Notices that have not been delivered."""
    return len(cluster.service.store.metas(PREFIX, 1000))


def test_ends_and_failures_are_told_signed_and_then_forgotten(
    tmp_path: Path, receiver: Receiver
) -> None:
    with engine_nodes(tmp_path, webhook=receiver.webhook) as cluster:
        node = cluster.node("n")
        node.register()
        good = cluster.submit(name="good", array="7")
        complete(cluster, node, good)
        with sending(cluster, receiver.webhook):
            bad = cluster.submit(max_retries=0)
            child = cluster.submit(after=(f"ok:{bad}",))
            fail(cluster, node, bad)
            cluster.until(lambda: len(receiver.told("job.ended")) == 3, "all notices")
            cluster.until(lambda: not waiting(cluster), "the end of the notices")
        ended = {job["id"]: job for job in receiver.told("job.ended")}
        assert (ended[good]["name"], ended[good]["state"]) == ("good[7]", "completed")
        assert (ended[good]["array"], ended[good]["array_index"]) == (good, 7)
        assert ended[bad]["state"] == "dropped"
        assert "exit code 3" in ended[bad]["reason"]
        assert ended[child]["reason"].startswith(f"job {bad}, on which it depends (ok)")
        assert [job["id"] for job in receiver.told("job.failed")] == [bad]
        for headers, body in receiver.requests:
            expected = signature(SECRET, headers["X-Fairlead-Timestamp"], body)
            assert headers["X-Fairlead-Signature"] == f"sha256={expected}"
            assert headers["X-Fairlead-Notice"] == json.loads(body)["id"]


def test_what_is_not_taken_is_sent_again_in_order(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [500, 302, 404]
    with engine_nodes(tmp_path, webhook=receiver.webhook) as cluster:
        jobs = [cluster.submit() for _ in range(3)]
        for job in jobs:
            cluster.service.cancel(ADMIN, job)
        with sending(cluster, receiver.webhook):
            cluster.until(lambda: len(receiver.requests) == 6 and not waiting(cluster))
        told = [notice["job"]["id"] for notice in receiver.notices()]
        assert told == [jobs[0]] * 4 + jobs[1:]
        assert len({notice["id"] for notice in receiver.notices()[:4]}) == 1


def test_notice_outlives_a_server_that_is_killed(tmp_path: Path, receiver: Receiver) -> None:
    with engine_nodes(tmp_path / "first", webhook=receiver.webhook) as cluster:
        job = cluster.submit()
        cluster.service.cancel(ADMIN, job)
        with busy_driver(cluster):
            shutil.copytree(tmp_path / "first", tmp_path / "second")  # as a crash would leave it
    with (
        engine_nodes(tmp_path / "second", webhook=receiver.webhook) as cluster,
        sending(cluster, receiver.webhook),
    ):
        cluster.until(lambda: receiver.requests, "the notice")
        other = cluster.submit()
        cluster.service.cancel(ADMIN, other)
        cluster.until(lambda: len(receiver.requests) == 2, "the other notice")
    first, second = receiver.notices()
    assert (first["job"]["id"], second["job"]["id"]) == (job, other)
    assert first["id"] < second["id"]


def test_missed_deadline_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    with engine_nodes(tmp_path, webhook=receiver.webhook) as cluster:
        node = cluster.node("n")
        node.register()
        late = cluster.submit(slo_s=1.0)
        run(cluster, node, late)
        with sending(cluster, receiver.webhook):
            cluster.until(lambda: receiver.told("job.deadline_missed"), "the notice")
            complete_it = cluster.job(late).attempt
            node.end(late, complete_it, completed=True, exit_code=0, step=1_000_000)
            cluster.until(lambda: receiver.told("job.ended"), "the end")
        (missed,) = receiver.told("job.deadline_missed")
        assert (missed["id"], missed["state"], missed["deadline"]) == (late, "running", "past")
        assert receiver.told("job.ended")[0]["deadline"] == "missed"


def test_an_end_is_told_while_its_round_goes_on(tmp_path: Path, receiver: Receiver) -> None:
    with engine_nodes(tmp_path, 1000.0, webhook=receiver.webhook) as cluster:
        node = cluster.node("n", devices=2)
        job, other = cluster.submit(total_steps=100), cluster.submit()
        node.register()
        cluster.until(lambda: node.jobs == {job, other})
        run(cluster, node, job)
        run(cluster, node, other)
        number = cluster.service.status(ADMIN).round
        ended = {"completed": True, "exit_code": 0, "loaded_step": 0, "step": 100}
        node.end(job, cluster.job(job).attempt, saved_step=100, **ended)
        cluster.until(lambda: cluster.job(job).state == "completed")
        with sending(cluster, receiver.webhook):
            cluster.until(lambda: receiver.told("job.ended"), "the end")
            assert cluster.service.status(ADMIN).round == number
            node.run(other, cluster.job(other).attempt, loaded_step=0, step=40, ran_s=1.0)
            cluster.until(lambda: cluster.job(other).steps == 40)
            cluster.service.cancel(ADMIN, other)
            done = {"loaded_step": 0, "step": 43, "saved_step": 43, "exit_code": 0}
            node.end(other, cluster.job(other).attempt, **done)  # the round is over with it
            cluster.until(lambda: len(receiver.told("job.ended")) == 2, "the other end")
        told = [(one["id"], one["state"], one["steps"]) for one in receiver.told("job.ended")]
        assert told[0] == (job, "completed", 100)
        assert told[1] == (other, "cancelled", 43), "each end is told once, as it was"


def test_notices_that_nobody_takes_are_bounded(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_notices, "MAX_WAITING", 2)
    with engine_nodes(tmp_path, webhook=receiver.webhook) as cluster:
        jobs = [cluster.submit() for _ in range(4)]
        for job in jobs:
            cluster.service.cancel(ADMIN, job)
        assert waiting(cluster) == 2
        with sending(cluster, receiver.webhook):
            cluster.until(lambda: not waiting(cluster), "their delivery")
            cluster.service.cancel(ADMIN, more := cluster.submit())
            cluster.until(lambda: len(receiver.requests) == 3, "the next one")
        assert [job["id"] for job in receiver.told("job.ended")] == [*jobs[:2], more]


def test_without_a_webhook_nothing_is_noted(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.cancel(ADMIN, cluster.submit())
        assert waiting(cluster) == 0


@pytest.mark.parametrize(
    ("url", "secret", "problem"),
    [
        ("http://a/", None, "--webhook: is given without --webhook-secret; give both or none"),
        (None, "s" * 16, "--webhook-secret: is given without --webhook; give both or none"),
        ("ftp://a/", "s" * 16, "--webhook: must be an http:// or https:// URL, got 'ftp://a/'"),
        ("http:///x", "s" * 16, "--webhook: must be an http:// or https:// URL, got"),
        ("http://a:b/", "s" * 16, "--webhook: must be an http:// or https:// URL, got"),
        ("http://a/", "short", "must hold at least 16 bytes, got 5"),
        ("http://a/", "", "cannot be read: No such file or directory"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    tmp_path: Path, url: str | None, secret: str | None, problem: str
) -> None:
    path = tmp_path / "secret"
    if secret:
        path.write_text(secret)
    with pytest.raises(ConfigError) as raised:
        read_webhook(url, None if secret is None else path)
    assert problem in str(raised.value)
