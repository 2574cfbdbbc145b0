"""Requests to the HTTP API of a server, of the standard library alone; see ``futures``."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
import uuid
from typing import Any
from urllib.parse import urlencode

from fairlead.errors import ConfigError, FairleadError, InputError, UnreachableError

TIMEOUT_S = 45.0  # of a request: longer than a server waits for its disk
PAGE = 1_000  # jobs asked for at once
MAX_TRIES = 3
RETRY_S = 0.5
_NO_PROXY = urllib.request.ProxyHandler({})  # no proxy of the environment gets to see the token


class JobRequests:
    """The requests of ``futures`` to a server. Used from any thread."""

    def __init__(self, url: str = "", token: str | None = None, ca: str | None = None) -> None:
        """url, token, ca: of the server; without them the variables FAIRLEAD_SERVER, FAIRLEAD_TOKEN and
        FAIRLEAD_CA."""
        url = url or os.environ.get("FAIRLEAD_SERVER", "")
        if not url:
            raise ConfigError("url: which server? Name it, or set FAIRLEAD_SERVER")
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"url: must begin with http:// or https://, got {url!r}")
        self._token = os.environ.get("FAIRLEAD_TOKEN", "").strip() if token is None else token
        ca = ca or os.environ.get("FAIRLEAD_CA") or None
        handlers: list[urllib.request.BaseHandler] = [_NO_PROXY]
        if self.url.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as problem:
                raise ConfigError(f"{ca}: cannot be used as certificates: {problem}") from None
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def submit(self, fields: dict[str, Any]) -> list[int]:
        """Submit a job or an array, once whatever happens to the connection. Returns the ids."""
        ids: list[int] = self._call(
            "POST", "/v1/jobs", fields, {"Idempotency-Key": uuid.uuid4().hex}
        )["ids"]
        return ids

    def job(self, job: int) -> dict[str, Any]:
        """The job as it is now."""
        view: dict[str, Any] = self._call("GET", f"/v1/jobs/{job:d}")
        return view

    def open_tasks(self, array: int) -> dict[int, dict[str, Any]]:
        """Id -> job, of those tasks of an array that have not ended."""
        found: dict[int, dict[str, Any]] = {}
        after = -1
        while True:
            ask = urlencode({"array": array, "state": "open", "after": after, "limit": PAGE})
            page = self._call("GET", f"/v1/jobs?{ask}")
            found.update((job["id"], job) for job in page)
            if len(page) < PAGE:
                return found
            after = page[-1]["id"]

    def cancel(self, job: int) -> None:
        """End a job for good. Raises InputError where it has ended already."""
        self._call("POST", f"/v1/jobs/{job:d}/cancel")

    def _call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        sent = dict(headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        for _ in range(MAX_TRIES - 1):
            with contextlib.suppress(UnreachableError):
                return self._send(request)
            time.sleep(RETRY_S)
        return self._send(request)

    def _send(self, request: urllib.request.Request) -> Any:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as problem:
            raise _refusal(self.url, problem) from None
        except OSError as problem:
            why = getattr(problem, "reason", problem)
            raise UnreachableError(f"server {self.url}: cannot be reached: {why}") from None
        except (ValueError, http.client.HTTPException) as problem:
            raise FairleadError(f"server {self.url}: is no Fairlead server: {problem}") from None


def _refusal(url: str, answer: urllib.error.HTTPError) -> FairleadError:
    try:
        sentence = str(json.loads(answer.read())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        sentence = f"server {url}: is no Fairlead server: it answered {answer.code}"
    if answer.code == 503:  # it cannot be asked now
        return UnreachableError(sentence)
    return FairleadError(sentence) if answer.code in (429, 500) else InputError(sentence)
