"""The operator's webhook: notices of jobs are sent there, each at least once.

Only the operator names it, on the command line of the server: a URL of a user's would have the server send
requests to whatever it can reach.
"""

import hashlib
import hmac
import logging
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx
import msgspec

from fairlead.cluster.protocol.notices import Notice
from fairlead.errors import ConfigError, FairleadError
from fairlead.model.argument_checks import check_both_or_none

POLL_S = 0.5  # between two looks for notices
LOOK_S = 5.0  # between two looks at what time alone brings
TIMEOUT_S = 10.0  # of a request
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0  # after a request that failed, doubled each time
MAX_AGE_S = 3 * 86_400.0  # of a notice; then it is given up
MIN_SECRET = 16  # bytes
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Webhook:
    """The address to which notices are sent, and what they are signed with."""

    url: str
    secret: bytes


def read_webhook(url: str | None, secret: Path | None) -> Webhook | None:
    """The webhook that options name; None = none. Raises ConfigError for what cannot be used."""
    check_both_or_none({"--webhook": url, "--webhook-secret": secret})
    if url is None or secret is None:
        return None
    if not _is_address(url):
        raise ConfigError(f"--webhook: must be an http:// or https:// URL, got {url!r}")
    try:
        content = secret.read_bytes().strip()
    except OSError as problem:
        raise ConfigError(
            f"--webhook-secret {secret}: cannot be read: {problem.strerror}"
        ) from None
    if len(content) < MIN_SECRET:
        raise ConfigError(
            f"--webhook-secret {secret}: must hold at least {MIN_SECRET} bytes, got {len(content)}"
        )
    return Webhook(url, content)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what the receiver compares, in hex: HMAC-SHA256 of the request's time, a dot, and the body."""
    return hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class NoticeSource(Protocol):
    """The source of notices. Called on the sender's thread."""

    def waiting(self) -> list[tuple[str, str]]:
        """Keys and texts of the oldest notices."""

    def delivered(self, keys: list[str]) -> None:
        """Delete those of these keys; returns when that is durable. Raises StoreError where it cannot be."""

    def look(self) -> None:
        """Have noted what time alone brings."""


class WebhookSender:
    """Sends what is noted, on a thread of its own: oldest first, one after the other."""

    def __init__(self, webhook: Webhook, source: NoticeSource) -> None:
        self._webhook = webhook
        self._source = source
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._failures = 0  # in a row
        self._looked_s = 0.0  # monotonic

    def start(self) -> None:
        """Once the server drives."""
        self._thread.start()

    def close(self) -> None:
        """Send nothing any more; what waits is sent after the next start."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        verify: ssl.SSLContext | bool = False  # nothing to verify
        if self._webhook.url.startswith("https:"):
            verify = ssl.create_default_context()
        with httpx.Client(
            timeout=TIMEOUT_S, follow_redirects=False, trust_env=False, verify=verify
        ) as client:
            while not self._closed.wait(self._wait_s()):
                try:
                    self._look()
                    self._send_batch(client)
                except FairleadError as problem:  # nothing can be written now, or the server ends
                    _log.debug("notices wait: %s", problem)
                except Exception:
                    _log.exception("notices could not be sent")
                    self._failures += 1

    def _wait_s(self) -> float:
        if not self._failures:
            return POLL_S
        return min(FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 16), LONGEST_WAIT_S)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_s >= LOOK_S:
            self._looked_s = now
            self._source.look()

    def _send_batch(self, client: httpx.Client) -> None:
        """Send those that wait, until one is not taken."""
        done: list[str] = []
        try:
            for key, text in self._source.waiting():
                if self._closed.is_set() or not self._send(client, text):
                    break
                done.append(key)
        finally:
            if done:
                self._source.delivered(done)

    def _send(self, client: httpx.Client, text: str) -> bool:
        """Return whether the receiver has taken it, or it is too old."""
        notice, body = msgspec.json.decode(text, type=Notice), text.encode()
        if time.time() - notice.time_s > MAX_AGE_S:
            _log.error("webhook: notice %s of job %d is given up", notice.id, notice.job.id)
            return True
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "fairlead-webhook",
            "X-Fairlead-Notice": notice.id,
            "X-Fairlead-Timestamp": timestamp,
            "X-Fairlead-Signature": f"sha256={signature(self._webhook.secret, timestamp, body)}",
        }
        try:
            with client.stream(
                "POST", self._webhook.url, content=body, headers=headers
            ) as answer:  # whose body nobody reads
                problem = "" if answer.is_success else f"it answered {answer.status_code}"
        except httpx.HTTPError as error:
            problem = str(error) or type(error).__name__
        if problem:
            if not self._failures:
                _log.error("webhook: a notice was not taken (%s); it is sent again", problem)
            self._failures += 1
            return False
        if self._failures:
            _log.warning("webhook: notices are taken again")
        self._failures = 0
        return True
