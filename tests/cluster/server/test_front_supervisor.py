"""Fronts that die before they listen."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.cluster.front.messages import Configure, UserList
from fairlead.cluster.server import front_supervisor
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.front_supervisor import (
    MAX_FIRST_STARTS,
    FrontError,
    FrontSupervisor,
)
from fairlead.cluster.store.audit_log import DEFAULT_LIMITS
from fairlead.cluster.store.store import Store

WAIT_S = 60.0


@contextmanager
def prepared(directory: Path) -> Iterator[tuple[FrontSupervisor, Configure]]:
    """A supervisor whose first front has been started, and what it is to be told."""
    fleet = Fleet(lease_s=30.0, rate_bound=0.0, monotonic=time.monotonic, on_change=lambda _: None)
    with Store(directory), socket.create_server(("127.0.0.1", 0)) as http:
        front = FrontSupervisor(directory, fleet, lambda _: None)
        front.send(UserList(rows=()))
        front.prepare(http)
        try:
            yield (
                front,
                Configure(
                    directory=str(directory),
                    host="127.0.0.1",
                    agent_port=0,
                    http_fd=http.fileno(),
                    tls_key="",
                    tls_certificate="",
                    open_metrics=False,
                    lease_s=30.0,
                    rate_bound=0.0,
                    heartbeat_s=2.0,
                    policies=(),
                    audit=DEFAULT_LIMITS,
                ),
            )
        finally:
            front.stop()


def test_a_front_that_is_killed_before_it_listens_is_started_anew(tmp_path: Path) -> None:
    with prepared(tmp_path) as (front, configure):
        deadline = time.monotonic() + WAIT_S
        while front.process is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        first = front.process.pid
        os.kill(first, signal.SIGKILL)
        assert front.begin(configure).result(WAIT_S) > 0
        assert front.process.pid != first


def test_fronts_that_never_listen_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(front_supervisor, "FRONT", ("this",))
    monkeypatch.setattr(front_supervisor, "RESTART_DELAY_S", 0.0)
    with (
        prepared(tmp_path) as (front, configure),
        pytest.raises(FrontError, match="does not start"),
    ):
        front.begin(configure).result(WAIT_S)
    assert caplog.text.count("before it listened") == MAX_FIRST_STARTS - 1
