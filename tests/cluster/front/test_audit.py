"""What a real server writes into its audit log, and to whom it shows that."""

import asyncio
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from tests.call_command import call
from tests.cluster.served import Served, served

from fairlead.cluster.agent.server_client import AgentClient, RefusedError
from fairlead.cluster.front import audit
from fairlead.cluster.front.audit import TOKEN_DIGITS, AuditedFacade, RequestRecord
from fairlead.cluster.front.audit_writer import (
    MAX_REFUSALS,
    MAX_REFUSALS_OF_ALL,
    AuditWriter,
    RefusalLimiter,
)
from fairlead.cluster.protocol.audit import AuditEntry, jobs_text
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import PROTOCOL, Register
from fairlead.cluster.store.audit_log import NAME, AuditLog
from fairlead.cluster.store.tokens import hash_token
from fairlead.errors import FairleadError, InputError, StoreError

SPEC = JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0})


def entries(front: Served, **wanted: Any) -> list[AuditEntry]:
    with front.client() as admin:
        page = admin.audit(limit=10_000, **wanted)
    assert not page.more
    return page.entries


def named(token: str) -> str:
    return hash_token(token).hex()[:TOKEN_DIGITS]


def ask(front: Served, method: str, path: str, token: str, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
    return httpx.request(method, front.url + path, headers=headers, verify=False, **more)


def test_what_is_changed_is_written_with_who_when_and_from_where(front: Served, ann: str) -> None:
    began = time.time()
    with front.client(ann) as client, front.client() as admin:
        ids = client.submit([SPEC] * 3)
        client.pause(ids[0])
        client.resume(ids[0])
        client.set_weight(ids[1], 2.5)
        client.cancel(ids[2])
        with pytest.raises(InputError):
            client.resume(ids[1])
        admin.set_policy("fifo")
        admin.add_user("bob", "bees", "user")
        admin.remove_user("bob")
        b"".join(admin.backup())
        with pytest.raises(InputError):
            admin.drain("nowhere")
    first, second, third = ids
    found = entries(front, since=began)
    assert [(one.user, one.tenant, one.action, one.object, one.outcome, one.status) for one in found] == [
        ("ann", "apes", "submit", f"jobs {first}-{third}", "accepted", 201),
        ("ann", "apes", "pause", f"job {first}", "accepted", 200),
        ("ann", "apes", "resume", f"job {first}", "accepted", 204),
        ("ann", "apes", "set_weight", f"job {second}: weight 2.5", "accepted", 204),
        ("ann", "apes", "cancel", f"job {third}", "accepted", 204),
        ("ann", "apes", "resume", f"job {second}", "refused", 409),
        ("admin", "", "set_policy", "policy fifo", "accepted", 204),
        ("admin", "", "add_user", "user bob: user of tenant bees", "accepted", 201),
        ("admin", "", "remove_user", "user bob", "accepted", 204),
        ("admin", "", "backup", "", "accepted", 200),
        ("admin", "", "drain", "node nowhere", "refused", 404),
    ]  # fmt: skip
    for one in found:
        assert one.source == "127.0.0.1"
        by_ann = one.user == "ann"
        assert one.token_kind == ("user" if by_ann else "admin")
        assert one.token_id == named(ann if by_ann else front.admin)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one.time)
    assert "paused" in found[5].reason
    text = (front.server.directory / NAME).read_text()
    assert ann not in text
    assert front.admin not in text


def test_an_array_that_is_cancelled_is_written_and_so_is_a_strangers_try(
    front: Served, ann: str
) -> None:
    array = msgspec.structs.replace(SPEC, array="0-2")
    with front.client(ann) as client, front.client() as admin:
        (first, *_) = client.submit([array])
        stranger = admin.add_user("eve", "eels", "user")
        began = time.time()
        client.cancel_array(first)
    assert ask(front, "POST", f"/v1/arrays/{first}/cancel", stranger).status_code == 404
    found = entries(front, since=began)
    assert [(one.user, one.action, one.object, one.outcome, one.status) for one in found] == [
        ("ann", "cancel_array", f"array {first}", "accepted", 200),
        ("eve", "cancel_array", f"array {first}", "refused", 404),
    ]


def test_what_only_asks_is_not_written(front: Served, ann: str) -> None:
    began = time.time()
    with front.client(ann) as client:
        client.status()
        client.jobs()
        with pytest.raises(InputError, match="there is none"):
            client.job(10**9)
    assert entries(front, since=began) == []


def test_refusals_for_lack_of_rights_are_written(front: Served, ann: str) -> None:
    began = time.time()
    assert ask(front, "POST", "/v1/nodes/n/drain", ann).status_code == 403
    assert ask(front, "GET", "/v1/users", ann).status_code == 403
    assert ask(front, "GET", "/v1/audit", ann).status_code == 403
    assert ask(front, "POST", "/v1/jobs/1/cancel", "fl_guess").status_code == 401
    assert ask(front, "GET", "/v1/status", front.agent).status_code == 403
    found = entries(front, since=began)
    assert [(one.user, one.token_kind, one.action, one.object, one.status) for one in found] == [
        ("ann", "user", "drain", "/v1/nodes/n/drain", 403),
        ("ann", "user", "users", "/v1/users", 403),
        ("ann", "user", "audit", "/v1/audit", 403),
        ("", "unknown", "cancel", "/v1/jobs/1/cancel", 401),
        ("agent", "agent", "status", "/v1/status", 403),
    ]
    assert {one.outcome for one in found} == {"refused"}
    assert "fl_guess" not in (front.server.directory / NAME).read_text()


def test_what_a_request_says_of_its_source_is_kept_apart_from_the_source(
    front: Served, ann: str
) -> None:
    began = time.time()
    forged = {"X-Forwarded-For": "192.0.2.7, 198.51.100.1\x1b[2J"}
    ask(front, "POST", "/v1/nodes/n/drain", ann, headers=forged)
    (found,) = entries(front, since=began)
    assert found.source == "127.0.0.1"
    assert found.forwarded_for == "192.0.2.7, 198.51.100.1\x1b[2J"


def test_buttons_of_the_pages_are_written_too(front: Served, ann: str) -> None:
    with front.client(ann) as client:
        (job,) = client.submit([SPEC])
    began = time.time()
    port = front.url.rpartition(":")[2]
    with httpx.Client(base_url=front.url, verify=False) as browser:
        browser.cookies.set(f"fairlead-{port}", ann)
        own = {"Origin": front.url}
        assert browser.post(f"/jobs/{job}/cancel", headers=own).status_code == 303
        foreign = {"Origin": "https://elsewhere.example"}
        assert browser.post(f"/jobs/{job}/pause", headers=foreign).status_code == 403
        assert browser.post("/login", headers=own, data={"token": "fl_no"}).status_code == 403
    found = entries(front, since=began)
    assert [(one.user, one.action, one.object, one.status) for one in found] == [
        ("ann", "cancel", f"job {job}", 303),
        ("ann", "POST", f"/jobs/{job}/pause", 403),
        ("", "POST", "/login", 403),
    ]


def register(front: Served, token: str, node: str, accelerator: str = "v100") -> None:
    message = Register(
        node=node, incarnation="a.1", protocol=PROTOCOL, accelerator=accelerator, devices=1,
        host="127.0.0.1", holds=(), simulated_devices=True, version="1",
    )  # fmt: skip

    async def run() -> None:
        async with AgentClient(front.server.agent_address, token) as client:
            await client.register(message)

    asyncio.run(run())


def test_enrolments_of_nodes_are_written(front: Served, ann: str) -> None:
    began = time.time()
    for token in (ann, "fl_guess"):
        with pytest.raises(RefusedError):
            register(front, token, "n2")
    with pytest.raises(RefusedError, match="accelerator"):
        register(front, front.agent, "n2", accelerator="no name")
    register(front, front.agent, "n1")
    found = entries(front, since=began)
    assert [(one.token_kind, one.token_id, one.object, one.outcome) for one in found] == [
        ("user", named(ann), "", "refused"),
        ("unknown", "", "", "refused"),
        ("agent", named(front.agent), "node n2", "refused"),
        ("agent", named(front.agent), "node n1", "accepted"),
    ]
    assert {(one.action, one.source) for one in found} == {("enrol", "127.0.0.1")}


def test_the_tokens_of_the_first_start_are_written(front: Served) -> None:
    found = entries(front, action="add_user")[:2]
    assert [(one.user, one.source, one.object) for one in found] == [
        (f"uid {os.getuid()}", "local", "user admin"),
        (f"uid {os.getuid()}", "local", "user agent"),
    ]


def test_the_command_prints_it(
    front: Served, ann: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text(front.admin)
    token.chmod(0o600)
    given = ("audit", "--server", front.url, "--token-file", token)
    ask(front, "POST", "/v1/nodes/n/drain", ann, headers={"X-Forwarded-For": b"x\x1b[2J\x9b"})
    assert call(*given, "--user", "ann", "--action", "drain", "--since", "1h") == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert "ann of apes" in last
    assert last.endswith("refused 403")
    assert last.isprintable()
    assert call(*given, "--user", "ann", "--json") == 0
    lines = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["user"] for line in lines} == {"ann"}
    assert call(*given, "--until", "2020-01-01") == 0
    assert capsys.readouterr().out == ""
    for slip, meant in (("dran", "did you mean drain?"), ("xyz", "actions are submit, cancel")):
        assert call(*given, "--action", slip) == 2
        said = capsys.readouterr().err
        assert f"--action: the log has none of this name, got {slip!r}; {meant}" in said
    assert call(*given, "--action", "pause", "--until", "2020-01-01") == 0, "nobody has done that"
    assert capsys.readouterr().out == ""
    assert call(*given, "--since", "yesterday") == 2
    assert "--since" in capsys.readouterr().err


def test_nothing_is_done_that_cannot_be_written(tmp_path: Path) -> None:
    with served(tmp_path / "s") as front, front.client() as admin:
        path = front.server.directory / NAME
        kept = path.with_name("kept")
        path.rename(kept)
        path.mkdir()
        for policy in ("fifo", "las"):
            with pytest.raises(FairleadError, match="nothing was done"):
                admin.set_policy(policy)
        path.rmdir()
        kept.rename(path)
        admin.set_policy("las_aware")
        found = admin.audit(action="set_policy").entries
        assert [one.object for one in found if one.status == 204] == ["policy las_aware"]


def test_what_the_disk_does_not_take_is_not_acknowledged(tmp_path: Path) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(_: object, __: object, answer: Any) -> None:
        record = audit._record.get()
        assert record is not None
        record.action = "set_policy"
        await answer({"type": "http.response.start", "status": 204, "headers": []})
        await answer({"type": "http.response.body", "body": b""})

    trail = audit.AuditTrail(app, AuditWriter(AuditLog(tmp_path / "missing")))
    scope = {"type": "http", "path": "/v1/policy", "method": "PUT", "headers": []}
    asyncio.run(trail(scope, SimpleNamespace(), send))  # type: ignore[arg-type]
    start, body = sent
    assert start["status"] == 503
    assert b"done, but not in the audit log" in body["body"]


def test_a_start_says_that_the_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: AuditLog) -> None:
        raise StoreError("audit.jsonl: cannot be written (Is a directory)")

    monkeypatch.setattr(AuditLog, "check", refuse)
    with served(tmp_path / "s"):
        told = "cannot be written (Is a directory): whatever is asked to be changed is refused"
        assert told in caplog.text


def test_a_log_that_cannot_be_opened_is_found_beforehand(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        AuditLog(tmp_path).check()
    (tmp_path / NAME).rmdir()
    AuditLog(tmp_path).check()
    assert (tmp_path / NAME).read_bytes() == b""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def refusal(source: str, number: int = 0) -> AuditEntry:
    return AuditEntry(time="", action="x", object=str(number), outcome="refused", source=source)


def test_who_is_refused_over_and_over_does_not_fill_the_log() -> None:
    clock = Clock()
    limiter = RefusalLimiter(clock)
    written = [one for n in range(100) for one in limiter.admit(refusal("a", n))]
    assert len(written) == MAX_REFUSALS
    assert limiter.admit(refusal("b")) == [refusal("b")]
    assert limiter.summaries() == []
    clock.now = 60.0
    (summary,) = limiter.summaries()
    assert (summary.object, summary.left_out) == ("99", 100 - MAX_REFUSALS)
    assert limiter.admit(refusal("a")) == [refusal("a")]


def test_many_sources_together_do_not_either() -> None:
    clock = Clock()
    limiter = RefusalLimiter(clock)
    written = [one for n in range(20_000) for one in limiter.admit(refusal(str(n)))]
    assert len(written) == MAX_REFUSALS_OF_ALL
    clock.now = 61.0
    assert sum(one.left_out for one in limiter.summaries()) == 20_000 - MAX_REFUSALS_OF_ALL


def test_entries_that_could_not_be_written_are_written_before_the_next(tmp_path: Path) -> None:
    writer = AuditWriter(AuditLog(tmp_path / "state"))
    with pytest.raises(StoreError):
        writer.write(refusal("a")).result()
    with pytest.raises(StoreError, match="nothing was done"):
        writer.check()
    (tmp_path / "state").mkdir()
    writer.check()
    writer.write(refusal("b")).result()
    writer.close()
    lines = (tmp_path / "state" / NAME).read_text().splitlines()
    assert [msgspec.json.decode(line)["source"] for line in lines] == ["a", "b"]


@pytest.mark.parametrize(
    ("ids", "text"), [([4], "job 4"), ([4, 5], "jobs 4-5"), ([1, 2, 3, 7], "jobs 1-3, 7")]
)
def test_jobs_are_named_in_ranges(ids: list[int], text: str) -> None:
    assert jobs_text(ids) == text


def test_a_search_is_noted_with_its_id() -> None:
    """Lines on it that follow have the id alone."""
    record = RequestRecord()
    token = audit._record.set(record)
    try:
        inner: Any = SimpleNamespace(submit_search=lambda *_: 9)
        writer: Any = SimpleNamespace(check=lambda: None)
        study: Any = SimpleNamespace(name="lr")
        facade: Any = AuditedFacade(inner, writer)
        assert facade.submit_search(None, study, "apes") == 9
        assert record.object == "search 9 'lr' for tenant apes"
    finally:
        audit._record.reset(token)
