"""Requests that nobody should send, to a real server: does any bring an error of the server, or tell somebody
what is not for them?

    python benchmarks/live_fuzz.py [--requests 100000 --seed 0]

A server and an agent; jobs of two tenants. Requests are drawn from the API's own description and from the
pages, with parameters and bodies that are right, nearly right or nothing at all, by admins, users, the token
that enrols nodes, a node's own, and strangers; beside them raw bytes on both ports and calls of agents with
random or damaged messages. Printed are the answers by kind of caller and status. The exit code is 1 where
an answer has a status of 500 or more, a call of an agent ends with an internal error, the server's log has a
traceback, an answer to a user names anything of the other tenant, or the server does not serve afterwards.
"""

import argparse
import asyncio
import contextlib
import copy
import json
import random
import string
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import grpc
import httpx
import msgspec
from command_line import parser_of, run, whole

from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    SERVICE,
    LogChunk,
    NodeReport,
    Register,
    WatchRequest,
)

AT_ONCE = 16  # requests
TIMEOUT_S = 120.0  # of one; the machine may be busy
SECRET = "quetzalcoatl"  # in whatever the other tenant has
PAGES = (
    "/",
    "/jobs",
    "/jobs/0",
    "/jobs/1",
    "/nodes",
    "/what-if",
    "/submit",
    "/login",
    "/logout",
    "/health",
    "/metrics",
    "/openapi.json",
    "/docs",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW")
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    -(2**63),
    1e308,
    -0.0,
    "",
    " ",
    "0",
    "-1",
    "1e999",
    "NaN",
    "null",
    "\x00",
    "\x1b[2J",
    "é",
    "\ud7ff",
    "\u202e",
    "💥",
    "../../etc/passwd",
    "%2e%2e%2f",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "a" * 300,
    "a" * 10_000,
    [],
    {},
    [[]],
    [None],
    {"a": {"b": []}},
    ["x"] * 100,
)
GRPC_BAD = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS}


@dataclass
class Found:
    """The outcomes of the requests."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)  # (caller, status)
    problems: Counter[str] = field(default_factory=Counter)

    def note(self, caller: str, status: object, problem: str = "") -> None:
        """One answer. problem: what is wrong with it."""
        self.answers[caller, str(status)] += 1
        if problem:
            self.problems[problem] += 1


@dataclass(frozen=True)
class Target:
    """Where to send requests, and as whom."""

    url: str
    agents: str
    tokens: dict[str, str]  # kind of caller -> token
    operations: list[tuple[str, str, dict[str, Any]]]  # method, path, description
    own_job: int


class Fuzzer:
    """Draws requests and judges the answers."""

    def __init__(self, target: Target, found: Found, seed: int) -> None:
        self.target = target
        self.found = found
        self.random = random.Random(seed)
        self.cookie = f"fairlead-{urlsplit(target.url).port}"

    async def run(self, requests: int) -> None:
        """Send so many."""
        left = requests
        limits = httpx.Limits(max_connections=AT_ONCE)
        async with (
            httpx.AsyncClient(base_url=self.target.url, timeout=TIMEOUT_S, limits=limits) as client,
            grpc.aio.insecure_channel(self.target.agents) as channel,
        ):

            async def work() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    await self._one(client, channel)

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def _one(self, client: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        kinds: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
            lambda: self._operation(client),
            lambda: self._page(client),
            lambda: self._call(channel),
            self._raw,
        )
        (kind,) = self.random.choices(kinds, (80, 8, 10, 2))
        await kind()

    # --- HTTP ---------------------------------------------------------------------------------------
    async def _operation(self, client: httpx.AsyncClient) -> None:
        """One of those that the API describes."""
        method, path, about = self.random.choice(self.target.operations)
        query: dict[str, Any] = {}
        for parameter in about.get("parameters", ()):
            value = self._text(self._value(parameter.get("schema", {})))
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", quote(value, safe="") or "0")
            elif parameter["in"] == "query" and self.random.random() < 0.5:
                query[parameter["name"]] = value
        if self.random.random() < 0.03:
            method = self.random.choice(METHODS)
        caller = self._caller()
        if caller == "admin" and path.startswith("/v1/users/") and method == "DELETE":
            return  # who asks stays
        body, headers = b"", self._headers(caller)
        if "requestBody" in about or self.random.random() < 0.05:
            body = self._body(path)
            headers["content-type"] = self.random.choice(
                ("application/json",) * 8 + ("text/plain", "", "application/x-www-form-urlencoded")
            )
        await self._send(client, method, path, caller, params=query, content=body, headers=headers)

    async def _page(self, client: httpx.AsyncClient) -> None:
        """One of the pages, with a session or without."""
        caller = self._caller()
        path = self.random.choice(PAGES)
        headers = {"accept": "text/html", "cookie": f"{self.cookie}={self.target.tokens[caller]}"}
        names = (
            "search",
            "state",
            "sort",
            "from",
            "array",
            "mine",
            "tenant",
            "part",
            "job",
            "after",
        )
        query = {
            name: self._text(self.random.choice(JUNK))
            for name in names
            if self.random.random() < 0.2
        }
        method = self.random.choice(("GET",) * 6 + ("POST", "HEAD", "PUT"))
        body = b""
        if method == "POST":
            fields = {
                name: self._text(self.random.choice(JUNK))
                for name in ("command", "total_steps", "toml", "token", "rates", "job")
            }
            body = httpx.Request("POST", "http://x", data=fields).content
            headers |= {
                "content-type": "application/x-www-form-urlencoded",
                "origin": self.target.url,
            }
        await self._send(client, method, path, caller, params=query, content=body, headers=headers)

    async def _send(
        self, client: httpx.AsyncClient, method: str, path: str, caller: str, **request: Any
    ) -> None:
        try:
            answer = await client.request(method, path, **request)
        except (httpx.InvalidURL, httpx.LocalProtocolError):  # what the client itself does not send
            return
        except httpx.HTTPError as problem:
            self.found.note(
                caller, type(problem).__name__, f"{method} {path[:60]}: {problem!r}"[:200]
            )
            return
        wrong = ""
        if answer.status_code >= 500 and not _is_busy(answer):
            wrong = f"{caller}: {method} {path[:80]} -> {answer.status_code} {answer.text[:120]}"
        elif caller not in ("admin",) and SECRET in answer.text:
            wrong = f"{caller}: {method} {path[:80]} tells of the other tenant"
        self.found.note(caller, answer.status_code, wrong)

    def _caller(self) -> str:
        return self.random.choice(tuple(self.target.tokens))

    def _headers(self, caller: str) -> dict[str, str]:
        headers = {}
        if token := self.target.tokens[caller]:
            headers["authorization"] = f"Bearer {token}"
        if self.random.random() < 0.02:
            headers["authorization"] = self.random.choice(
                ("Bearer", "Bearer ", "Basic x", "bearer  a b")
            )
        if self.random.random() < 0.02:
            headers[
                self.random.choice(
                    (
                        "range",
                        "expect",
                        "x-forwarded-for",
                        "content-encoding",
                        "host",
                        "transfer-encoding",
                    )
                )
            ] = "gzip, 1-2, x"
        return headers

    def _value(self, schema: dict[str, Any]) -> Any:
        """Something that the schema may allow, or not."""
        if self.random.random() < 0.3:
            return self.random.choice(JUNK)
        if options := schema.get("enum"):
            return self.random.choice(options)
        if variants := schema.get("anyOf"):
            return self._value(self.random.choice(variants))
        kind = schema.get("type")
        if kind == "integer":
            return self.random.choice((self.target.own_job, 0, 1, 2, 50, 1000))
        if kind == "number":
            return self.random.choice((0.0, 1.0, 1.5, 1e9))
        if kind == "boolean":
            return self.random.choice((True, False))
        return self.random.choice(
            (
                "n1",
                "ann",
                "apes",
                "las",
                "open",
                "x",
                "".join(self.random.choices(string.printable, k=9)),
            )
        )

    @staticmethod
    def _text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    def _body(self, path: str) -> bytes:
        draw = self.random.random()
        if draw < 0.1:
            return self.random.randbytes(self.random.randrange(2000))
        if draw < 0.11:
            return b"[" * 100_000
        if draw < 0.12:
            return b'{"specs": ["' + b"x" * 2_000_000 + b'"]}'
        content = self._damaged(copy.deepcopy(_GOOD.get(path, _GOOD["/v1/jobs"])))
        data = json.dumps(content).encode()
        return data[: self.random.randrange(len(data))] if draw < 0.2 else data

    def _damaged(self, value: Any) -> Any:
        """The value with something in it that is another, twice or missing, now and then."""
        if self.random.random() < 0.12:
            return self.random.choice(JUNK)
        if isinstance(value, dict):
            found = {
                key: self._damaged(one) for key, one in value.items() if self.random.random() > 0.05
            }
            if self.random.random() < 0.05:
                found[self._text(self.random.choice(JUNK))[:50]] = self.random.choice(JUNK)
            return found
        if isinstance(value, list):
            return [self._damaged(one) for one in value]
        return value

    # --- raw bytes ----------------------------------------------------------------------------------
    async def _raw(self) -> None:
        """Bytes that are no request, or only part of one, on one of both ports."""
        url = urlsplit(self.target.url)
        host, _, agent_port = self.target.agents.rpartition(":")
        port = self.random.choice((url.port, int(agent_port)))
        begun = self.random.choice(
            (
                b"",
                b"GET / HTTP/1.1\r\n",
                b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01",
                b"POST / HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
                b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
                b"GET /" + b"a" * 70_000,
            )
        )
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host or "127.0.0.1", port)
            writer.write(begun + self.random.randbytes(self.random.randrange(3000)))
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(0.2):
                    await reader.read(1 << 16)
            writer.close()
        self.found.note("raw bytes", "sent")

    # --- calls of agents ----------------------------------------------------------------------------
    async def _call(self, channel: grpc.aio.Channel) -> None:
        """A call of an agent with a message that is damaged, or of a node that is not the caller's."""
        caller = self._caller()
        method = self.random.choice(("Register", "Report", "Log", "Watch", "Nothing"))
        message = bytearray(msgspec.msgpack.encode(_MESSAGES.get(method, _MESSAGES["Report"])))
        for _ in range(self.random.choice((0, 1, 1, 3))):
            message[self.random.randrange(len(message))] = self.random.randrange(256)
        data = bytes(message)
        if self.random.random() < 0.2:
            data = self.random.randbytes(self.random.randrange(500))
        metadata = [("authorization", f"Bearer {self.target.tokens[caller]}")]
        try:
            name = f"/{SERVICE}/{method}"
            if method == "Watch":
                stream = channel.unary_stream(name, None, None)(
                    data, metadata=metadata, timeout=1.0
                )
                await stream.read()
                stream.cancel()
            else:
                await channel.unary_unary(name, None, None)(
                    data, metadata=metadata, timeout=TIMEOUT_S
                )
            self.found.note(f"{caller}, as an agent", "OK")
        except grpc.aio.AioRpcError as refused:
            code = refused.code()
            bad = (
                f"{caller}: {method} -> {code.name} {(refused.details() or '')[:100]}"
                if code in GRPC_BAD
                else ""
            )
            self.found.note(f"{caller}, as an agent", code.name, bad)
        except asyncio.CancelledError:
            self.found.note(f"{caller}, as an agent", "CANCELLED")


def _is_busy(answer: httpx.Response) -> bool:
    """Whether the server says that it has no answer yet, and when to ask again: no error."""
    return answer.status_code == 503 and "retry-after" in answer.headers


_JOB = {
    "command": ["true"],
    "total_steps": 5,
    "unmanaged": True,
    "rates": {"v100": 1.0},
    "name": "x",
    "env": {"A": "1"},
    "scale_factor": 1,
    "weight": 1.0,
    "slo_s": 60.0,
    "max_retries": 1,
}
_GOOD: dict[str, Any] = {
    "/v1/jobs": {"specs": [_JOB], "tenant": "apes", "key": "k"},
    "/v1/what-if": {"policy": "las", "add_nodes": [], "remove_nodes": [], "add_jobs": [_JOB]},
    "/v1/users": {"user": "x", "tenant": "apes", "role": "user"},
    "/v1/policy": {"policy": "las"},
}
_MESSAGES: dict[str, Any] = {
    "Register": Register(
        protocol=PROTOCOL,
        version="0",
        node="n9",
        incarnation="x",
        host="h",
        accelerator="v100",
        devices=1,
        simulated_devices=True,
        holds=(),
    ),
    "Report": NodeReport(node="n1", incarnation="x", seq=1, holds=()),
    "Log": LogChunk(node="n1", incarnation="x", job=1, attempt=1, rank=0, offset=0, data=b"forged"),
    "Watch": WatchRequest(node="n1", incarnation="x"),
}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--requests", metavar="REQUESTS", type=whole(1), default=100_000)
    parser.add_argument("--seed", metavar="SEED", type=whole(0), default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as folder:
        cluster = LocalCluster(
            Path(folder), {"n1": ("--devices", "v100=2", "--simulated-devices")}, ("--round", "5")
        )
        try:
            cluster.start()
            with cluster.client() as admin:
                target = prepare(admin, cluster)
            found, began = Found(), time.monotonic()
            asyncio.run(Fuzzer(target, found, given.seed).run(given.requests))
            took_s = time.monotonic() - began
            with cluster.client() as admin:
                admin.status()
            log = cluster.output("server")
        finally:
            cluster.stop()
    return report(given, found, took_s, log)


def prepare(admin: Client, cluster: LocalCluster) -> Target:
    """Users and jobs of two tenants."""
    tokens = {
        "admin": admin.token,
        "user": admin.add_user("ann", "apes", "user"),
        "stranger": "",
        "no token": "fl_x",
    }
    tokens["enrolling token"] = (cluster.state / "agent.token").read_text().strip()
    tokens["node"] = (cluster.directory / "n1" / "node.token").read_text().strip()
    other = admin.add_user(SECRET, f"{SECRET}-tenant", "user")
    with Client(cluster.url, other) as client:
        spec = JobSpec(
            command=("echo", SECRET),
            total_steps=10**6,
            name=f"{SECRET}-job",
            unmanaged=True,
            rates={"v100": 1.0},
            env={"X": SECRET},
        )
        client.submit([spec] * 3)
    with Client(cluster.url, tokens["user"]) as client:
        (own,) = client.submit(
            [JobSpec(command=("sleep", "5"), total_steps=5, unmanaged=True, rates={"v100": 1.0})]
        )
    headers = {"authorization": f"Bearer {admin.token}"}
    described = httpx.get(f"{cluster.url}/openapi.json", headers=headers).json()
    operations = [
        (method.upper(), path, about)
        for path, methods in described["paths"].items()
        for method, about in methods.items()
        if method in ("get", "post", "put", "delete", "patch")
    ]
    return Target(cluster.url, cluster.agent_address, tokens, operations, own)


def report(given: argparse.Namespace, found: Found, took_s: float, log: str) -> int:
    """Print what became of it. Returns the exit code."""
    total = sum(found.answers.values())
    print(f"{total:,} requests in {took_s:.0f} s, seed {given.seed}")
    for caller in sorted({one for one, _ in found.answers}):
        counts = {
            status: count for (one, status), count in sorted(found.answers.items()) if one == caller
        }
        print(
            f"  {caller}: " + ", ".join(f"{status} {count:,}" for status, count in counts.items())
        )
    if "Traceback" in log:
        found.problems[
            "the server's log has a traceback: " + log[log.index("Traceback") :][:2000]
        ] += 1
    for problem, count in found.problems.most_common(20):
        print(f"{count} x {problem}")
    print("nothing wrong" if not found.problems else f"{len(found.problems)} kinds of problems")
    return bool(found.problems)


if __name__ == "__main__":
    run(main)
