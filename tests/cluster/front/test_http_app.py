"""The HTTP API of a real server: who gets what, and what is refused."""

import asyncio
import socket
import time
from contextlib import ExitStack
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from tests.cluster.served import Served

from fairlead.cluster.front import http_app
from fairlead.cluster.front.api.dependencies import LARGEST_BODY
from fairlead.cluster.front.body_limit import OF_ONE_USER
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.http_app import create_app
from fairlead.cluster.front.metrics import FrontCounters
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.tenant_limits import TenantLimits
from fairlead.errors import InputError

SPEC = {"command": ["true"], "total_steps": 10, "rates": {"v100": 2.0}}


@pytest.fixture(scope="module")
def bob(front: Served) -> str:
    with front.client() as admin:
        return admin.add_user("bob", "bees", "user")


def ask(
    front: Served, method: str, path: str, token: str | None = None, **named: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {front.admin if token is None else token}"}
    headers |= named.pop("headers", {})
    url = front.url + path  # no TLS: reading certificates would take longer than the request
    return httpx.request(method, url, headers=headers, timeout=120, verify=False, **named)


def described(front: Served) -> dict[str, Any]:
    found: dict[str, Any] = ask(front, "GET", "/openapi.json").json()
    return found


def test_a_stranger_gets_health_and_nothing_else(front: Served) -> None:
    assert httpx.get(f"{front.url}/health").json()["status"] == "ok"
    for path, operations in described(front)["paths"].items():
        if path == "/health":
            continue
        for method in operations:
            filled = path.format(job=0, array=0, search=0, name="n")
            for headers in ({}, {"Authorization": "Bearer fl_guess"}, {"Authorization": "Basic x"}):
                found = httpx.request(method, front.url + filled, headers=headers, verify=False)
                assert found.status_code == 401, (method, path)
                assert found.headers["WWW-Authenticate"] == "Bearer"
                assert set(found.json()) == {"error"}


def test_an_agents_token_opens_no_door_for_people(front: Served) -> None:
    found = ask(front, "GET", "/v1/status", front.agent)
    assert found.status_code == 403
    assert "agent" in found.json()["error"]


def test_a_user_cannot_tell_anothers_job_from_none(front: Served, ann: str, bob: str) -> None:
    with front.client(ann) as client:
        (job,) = client.submit([msgspec.convert(SPEC, JobSpec)])
    for method, path in (
        ("GET", ""),
        ("GET", "/attempts"),
        ("GET", "/explain"),
        ("GET", "/log"),
        ("GET", "/metrics"),
        ("POST", "/cancel"),
        ("POST", "/pause"),
        ("POST", "/resume"),
    ):
        of_ann = ask(front, method, f"/v1/jobs/{job}{path}", bob)
        of_none = ask(front, method, f"/v1/jobs/{10**9}{path}", bob)
        assert (of_ann.status_code, of_none.status_code) == (404, 404)
        assert of_ann.text.replace(str(job), "") == of_none.text.replace(str(10**9), "")
    assert ask(front, "GET", "/v1/jobs", bob).json() == []
    assert ask(front, "GET", "/v1/jobs?tenant=apes", bob).json() == []
    assert ask(front, "GET", f"/v1/jobs/{job}", ann).json()["state"] == "waiting"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/nodes/n/drain", None),
        ("POST", "/v1/nodes/n/undrain", None),
        ("DELETE", "/v1/nodes/n", None),
        ("PUT", "/v1/policy", {"policy": "fifo"}),
        ("GET", "/v1/users", None),
        ("POST", "/v1/users", {"user": "eve", "tenant": "apes", "role": "admin"}),
        ("DELETE", "/v1/users/bob", None),
        ("POST", "/v1/jobs?tenant=bees", SPEC),
        ("GET", "/metrics", None),
    ],
)
def test_what_is_for_admins_is_refused_to_users(
    front: Served, ann: str, method: str, path: str, body: Any
) -> None:
    found = ask(front, method, path, ann, json=body)
    assert found.status_code == 403
    assert set(found.json()) == {"error"}


def test_a_removed_users_token_ends_and_a_new_one_replaces_the_old(front: Served) -> None:
    with front.client() as admin:
        old = admin.add_user("zoe", "zebras", "user")
        new = admin.add_user("zoe", "zebras", "user")
        assert ask(front, "GET", "/v1/status", old).status_code == 401
        assert ask(front, "GET", "/v1/status", new).status_code == 200
        assert "zoe" in {one.user for one in admin.users()}
        admin.add_user("zoe", "zebras", "user", lasts_s=3600.0)
        (zoe,) = [one for one in admin.users() if one.user == "zoe"]
        assert zoe.expires_s is not None
        assert 0 < zoe.expires_s - time.time() <= 3600
        with pytest.raises(InputError, match="lasts_s: must be above 0"):
            admin.add_user("zoe", "zebras", "user", lasts_s=-1.0)
        new = admin.add_user("zoe", "zebras", "user", lasts_s=1e9)
        admin.remove_user("zoe")
        assert ask(front, "GET", "/v1/status", new).status_code == 401
        with pytest.raises(InputError, match="zoe"):
            admin.remove_user("zoe")


def test_a_user_is_told_when_their_token_ends(front: Served, ann: str) -> None:
    with front.client() as admin:
        assert admin.me().expires_s is None
        before = time.time()
        lent = admin.add_user("guest", "apes", "user", lasts_s=3600.0)
        after = time.time()
        (listed,) = [one for one in admin.users() if one.user == "guest"]
    with front.client(lent) as guest, front.client(ann) as client:
        assert client.me().expires_s is None
        told = guest.me()
    assert told == listed
    assert told.expires_s is not None
    assert before + 3600.0 <= told.expires_s <= after + 3600.0


def test_first_users_keep_their_roles_and_no_tenant_is_called_as_all_others_are(
    front: Served, ann: str
) -> None:
    with front.client() as admin:
        for user, role in (("agent", "user"), ("agent", "admin"), ("admin", "user")):
            with pytest.raises(InputError, match=f"user '{user}': always has the role {user}, got"):
                admin.add_user(user, "apes", role)  # type: ignore[arg-type]
        assert {one.user: one.role for one in admin.users()}["agent"] == "agent"
        why = "tenant 'others': is what a user is shown of all other tenants; choose another name"
        for taken in (
            lambda: admin.add_user("zed", "others", "user"),
            lambda: admin.submit([msgspec.convert(SPEC, JobSpec)], tenant="others"),
        ):
            with pytest.raises(InputError, match=why):
                taken()
        assert "zed" not in {one.user for one in admin.users()}


def test_jobs_are_submitted_steered_and_listed_page_by_page(front: Served, ann: str) -> None:
    with front.client(ann) as client:
        ids = client.submit([msgspec.convert(SPEC | {"name": f"j{i}"}, JobSpec) for i in range(5)])
        assert ids == sorted(set(ids))
        page = client.jobs(after=ids[0], limit=2)
        assert [job.id for job in page] == ids[1:3]
        assert [job.name for job in page] == ["j1", "j2"]
        client.pause(ids[0])
        assert client.job(ids[0]).state == "paused"
        client.resume(ids[0])
        assert client.job(ids[0]).state == "waiting"
        client.set_weight(ids[1], 3.5)
        assert client.job(ids[1]).weight == 3.5
        client.cancel(ids[2])
        assert client.job(ids[2]).state == "cancelled"
        assert ids[2] not in {job.id for job in client.all_jobs("open")}
        assert ids[2] in {job.id for job in client.all_jobs("cancelled")}
        with pytest.raises(InputError, match=f"job {ids[2]}"):
            client.pause(ids[2])
        assert client.explain(ids[3]).job.id == ids[3]
        assert client.attempts(ids[3]) == []
        assert client.log(ids[3])[0] == ""


def test_the_same_key_submits_once(front: Served, ann: str) -> None:
    spec = msgspec.convert(SPEC, JobSpec)
    with front.client(ann) as client:
        first = client.submit([spec, spec], key="monday")
        assert client.submit([spec, spec], key="monday") == first
        assert client.submit([spec, spec], key="tuesday") != first


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is cut off"),
        (b"\xff", "JSON is malformed"),
        (b'{"command": ["\xff"]}', "body: is not UTF-8"),
        (b"[]", "from 1 to 1,000 jobs at once, got 0"),
        (b"[" * 100_000, "expected object, got array"),
        (b'{"command":["a"],"total_steps":"x"}', "total_steps: expected int, got 'x'"),
        (b'[{"command":["a"],"total_steps":1,"weight":0}]', "body[0]: weight: must be from"),
        (b'[{"command":["a"],"total_steps":1,"weight":true}]', "body[0]: weight: expected"),
        (b'[{"command":["a"],"total_steps":1,"weight":1e999}]', "body[0]: weight: number out of"),
        (b'[{"command":["a"]}]', "body[0]: total_steps: is missing"),
        (b'{"command":["a"],"total_steps":1,"name":"\\ud800"}', "body: name: is not valid Unicode"),
        (b'{"command":["a"],"total_steps":1' + b"0" * 3000 + b"}", "total_steps: must be from 1"),
        (b'{"command":["a"],"total_steps":1,"weight":1e999}', "weight: number out of range"),
        (b'{"command":["a\\u0000"],"total_steps":1}', "NUL"),
        (b'{"command":["a"],"total_steps":1,"name":"\\u001b[2J"}', "must be printable"),
        (b'{"command":["a"],"total_steps":1,"cwd":"../x"}', "must be an absolute path"),
        (b'{"command":["a"],"total_steps":1,"cwd":"/a/../x"}', "'..'"),
        (b'{"command":["a"],"total_steps":1,"x":1}', "x: unknown field"),
        (b'{"command":["a"],"total_steps":1,"total_steps":2}', "body: total_steps: is given twice"),
        (b'[{"command":["a"],"total_steps":1,"env":{"A":"1","A":"2"}}]', "body: A: is given twice"),
        (b'{"command":["a"],"total_steps":1,"env":{"\\n":"1","\\n":"2"}}', r"body: '\n': is given"),
    ],
)
def test_bad_bodies_get_one_sentence(front: Served, body: bytes, message: str) -> None:
    found = ask(
        front, "POST", "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert found.status_code == 400
    assert message in found.json()["error"]
    assert len(found.text) < 300


def test_bodies_that_are_too_large_or_not_json_are_not_read(front: Served) -> None:
    kind = {"Content-Type": "application/json"}
    large = ask(front, "POST", "/v1/jobs", content=b" " * (LARGEST_BODY + 1), headers=kind)
    assert large.status_code == 413

    in_chunks = iter([b"[]"])
    assert ask(front, "POST", "/v1/jobs", content=in_chunks, headers=kind).status_code == 400
    assert ask(front, "POST", "/v1/jobs", data={"command": "a"}).status_code == 415
    many = [{"command": ["a"], "total_steps": 1}] * 1001
    assert "1,001" in ask(front, "POST", "/v1/jobs", json=many).json()["error"]


def test_half_sent_bodies_of_one_user_are_refused_beyond_a_limit(
    front: Served, ann: str, bob: str
) -> None:
    where = urlsplit(front.url)
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ann}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {LARGEST_BODY}\r\n\r\n"
    )
    with ExitStack() as stack:
        for _ in range(OF_ONE_USER // LARGEST_BODY + 1):
            one = stack.enter_context(socket.create_connection((where.hostname, where.port), 60))
            one.sendall(head.encode() + b" " * (LARGEST_BODY - 1))
        # All are full by then, or refused
        kind = {"Content-Type": "application/json"}
        body = b" " * 700_000 + msgspec.json.encode(SPEC)
        end = time.monotonic() + 60
        while True:
            found = ask(front, "POST", "/v1/jobs", ann, content=body, headers=kind)
            if found.status_code == 429 or time.monotonic() > end:
                break
        assert found.status_code == 429
        assert found.headers["Retry-After"]
        assert "other requests of yours" in found.json()["error"]
        assert ask(front, "POST", "/v1/jobs", ann, json=SPEC).status_code == 201
        other = ask(front, "POST", "/v1/jobs", bob, content=body, headers=kind)
        assert other.status_code == 201


def test_a_refusal_says_in_its_header_what_its_sentence_says(
    front: Served, ann: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = front.server.service
    monkeypatch.setattr(service._tenants, "_monotonic", lambda: 0.0)
    monkeypatch.setattr(
        service._tenants, "limits", TenantLimits(jobs_per_minute=1, changes_per_minute=2)
    )
    found = ask(front, "POST", "/v1/jobs", ann, json=SPEC)
    (job,) = found.json()["ids"]
    found = ask(front, "POST", "/v1/jobs", ann, json=SPEC)
    assert found.json()["error"].endswith("may submit 1 jobs a minute; 1 more in 60 s")
    assert (found.status_code, found.headers["Retry-After"]) == (429, "60")
    for _ in range(2):
        found = ask(front, "PUT", f"/v1/jobs/{job}/weight", ann, json={"weight": 2.0})
        assert found.status_code == 204
    found = ask(front, "POST", f"/v1/jobs/{job}/cancel", ann)
    assert found.json()["error"] == "user 'ann': may ask for 2 changes a minute; 1 more in 30 s"
    assert (found.status_code, found.headers["Retry-After"]) == (429, "30")


@pytest.mark.parametrize("path", ["/v1/jobs", "/login", "/health"])
def test_a_request_with_two_ends_is_refused_and_nothing_behind_it_is_answered(
    front: Served, path: str
) -> None:
    where = urlsplit(front.url)
    both = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port), 60) as connection:
        connection.sendall(both.encode())
        answer = b""
        while data := connection.recv(1 << 16):
            answer += data
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"Transfer-Encoding: a body is taken with its Content-Length only" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?limit=0",
        "/v1/jobs?limit=100001",
        "/v1/jobs?after=x",
        "/v1/jobs?state=asleep",
        "/v1/jobs?tenant=../x",
        f"/v1/jobs/{2**64}",
        "/v1/jobs/-1",
        "/v1/accounting?since=2026-01-02&until=2026-01-02",
        "/v1/audit?since=5&until=5",
        "/v1/samples?since_s=nan",
        "/v1/samples?since_s=inf",
        "/v1/jobs/0/log?limit=99999999",
        "/v1/jobs/0/log?cursor=%00",
    ],
)
def test_bad_parameters_are_named_with_their_value(front: Served, path: str) -> None:
    found = ask(front, "GET", path)
    assert found.status_code == 400
    assert ", got '" in found.json()["error"]
    assert found.json()["error"].partition(":")[0] in path


def test_parameters_that_nobody_knows_are_refused(front: Served) -> None:
    typo = ask(front, "GET", "/v1/jobs?staet=open")
    assert typo.status_code == 400
    assert "'staet' is not a parameter here (this address takes state, " in typo.json()["error"]
    assert "takes none" in ask(front, "GET", "/v1/nodes?x=1").json()["error"]


def test_answers_are_json_and_safe_to_look_at(front: Served) -> None:
    for path, status in (("/health", 200), ("/nothing", 404), ("/v1/jobs/99999999", 404)):
        found = ask(front, "GET", path)
        assert found.status_code == status
        assert found.headers["Content-Type"] == "application/json"
        assert found.headers["X-Content-Type-Options"] == "nosniff"
        assert found.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in found.headers["Content-Security-Policy"]
        assert "server" not in found.headers
    assert ask(front, "PATCH", "/v1/jobs").status_code == 405


def test_the_description_has_every_struct_and_its_bounds(front: Served) -> None:
    schemas = described(front)["components"]["schemas"]
    assert set(schemas["JobView"]["properties"]) == set(JobView.__struct_fields__)
    assert set(schemas["JobSpec"]["properties"]) == set(JobSpec.__struct_fields__)
    assert schemas["JobSpec"]["properties"]["scale_factor"]["minimum"] == 1
    for path, operations in described(front)["paths"].items():
        for method, operation in operations.items():
            assert operation["tags"], path
            assert operation["summary"], path
            assert operation["description"], path
            assert "422" not in operation["responses"]
            assert bool(operation.get("security")) == (path != "/health"), (method, path)


@pytest.mark.parametrize("day", ["0", "1e9", "2026-1-1", "2026-02-30", "x"])
def test_a_day_is_written_as_one(front: Served, day: str) -> None:
    found = ask(front, "GET", f"/v1/accounting?since={day}")
    assert found.status_code == 400
    assert found.json()["error"].startswith("since: ")
    assert ask(front, "GET", "/v1/accounting?since=2026-01-31&by=day").status_code == 200


def test_the_description_is_made_once() -> None:
    class Anybody:
        def authenticate(self, _token: str) -> Caller:
            return Caller("eve", "apes", "user")

    app = create_app(cast(Facade, Anybody()), FrontCounters())
    token = {"Authorization": "Bearer x"}
    described = []

    def counting(given: Any) -> dict[str, Any]:
        described.append(given)
        return {"paths": {}}

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/openapi.json", headers=token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_app, "describe", counting)
        assert [asyncio.run(get()).json() for _ in range(3)] == [{"paths": {}}] * 3
    assert len(described) == 1
