"""Interpreters that lack what others have: conda's are built against old headers, Alpine's against musl, and
some without ctypes."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fairlead.client.stacks import OFFSET
from fairlead.cluster.agent import proc, termination
from fairlead.cluster.agent.stop_agent import stop_agent
from fairlead.cluster.agent.survivors import make_token
from fairlead.errors import ConfigError
from fairlead.model import child_signals

TOKEN = make_token("a run of an agent")
HOLDER = """
import pathlib, signal, sys
from fairlead.cluster.agent.state_directory import lock_state
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
lock = lock_state(pathlib.Path(sys.argv[1]))
print("has it", flush=True)
while True:
    signal.pause()
"""
# As the client does where the C library begins to count one later.
LEASED = """
import faulthandler, signal, sys
faulthandler.register(int(sys.argv[1]), file=open("/dev/null", "w"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print("up", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("has_prlimit", [True, False])
def test_the_tag_is_read_without_prlimit(
    has_prlimit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_prlimit:
        monkeypatch.delattr(resource, "prlimit")
    with (
        subprocess.Popen(["sleep", "1000"], preexec_fn=partial(proc.tag_process, TOKEN)) as mine,
        subprocess.Popen(["sleep", "1000"], env={}) as other,
    ):
        try:
            assert proc.tag_of(mine.pid) == proc.token_tag(TOKEN)
            assert proc.tag_of(other.pid) == ""
        finally:
            mine.kill()
            other.kill()
    assert proc.tag_of(mine.pid) == "", "it has ended"


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of other users")
def test_the_tag_of_another_users_process_is_read() -> None:
    """As of ``sudo -u`` in a job of an agent that is root, but in a container may not ask for its limits."""

    def begin() -> None:
        proc.tag_process(TOKEN)
        os.setuid(65534)

    with subprocess.Popen(["sleep", "1000"], preexec_fn=begin, env={}) as other:
        try:
            assert proc.tag_of(other.pid) == proc.token_tag(TOKEN)
        finally:
            other.kill()


def test_the_tag_of_a_process_that_cannot_be_ended_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    with subprocess.Popen(["sleep", "1000"], preexec_fn=partial(proc.tag_process, TOKEN)) as other:
        try:
            with monkeypatch.context() as patch:
                patch.setattr(resource, "prlimit", refuse)
                assert proc.tag_of(other.pid) == proc.token_tag(TOKEN)
                patch.setattr(os, "kill", refuse)
                assert proc.inherited_tag(other.pid) == ""
        finally:
            other.kill()


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_exactly_one_process_is_killed_without_handles(
    has_pidfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "HAS_PIDFD", has_pidfd)
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.delattr(signal, "pidfd_send_signal")
    with subprocess.Popen(["sleep", "1000"]) as child:
        found = proc.process(child.pid)
        assert found is not None
        before = proc.Process(found.pid, found.start_time - 1, found.session, 0, "S")
        proc.kill_exactly(before, signal.SIGKILL)  # had its pid before
        assert child.poll() is None
        proc.kill_exactly(found, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    proc.kill_exactly(found, signal.SIGKILL)


def test_an_agent_is_stopped_without_handles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "HAS_PIDFD", False)
    monkeypatch.delattr(os, "pidfd_open")
    command = (sys.executable, "-c", HOLDER, str(tmp_path))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"has it\n"
        assert stop_agent(tmp_path)
        assert agent.wait() == 7
        assert not stop_agent(tmp_path)


@pytest.mark.parametrize("first", [34, 35], ids=["glibc", "musl"])
def test_a_rank_under_a_lease_is_known_whatever_its_c_library_is(first: int) -> None:
    command = (sys.executable, "-c", LEASED, str(first + OFFSET))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as rank:
        try:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"up\n"
            tree = termination.trees_of([rank.pid])[rank.pid]
            assert termination.has_begun(tree)
            assert [one.pid for one in termination.savers(tree)] == [rank.pid]
        finally:
            rank.kill()


@pytest.mark.parametrize("lacks", ["ctypes", "libc"])
def test_an_agent_without_prctl_is_refused(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks == "ctypes":
        monkeypatch.setattr(child_signals, "ctypes", None)
        monkeypatch.setattr(proc, "ctypes", None)
    else:
        monkeypatch.setattr(ctypes, "CDLL", _not_found)
    with pytest.raises(ConfigError, match="needs an interpreter that has ctypes and"):
        proc.check_subreaper()
    proc.show_token("0" * 32, TOKEN)  # needs none


def _not_found(*_: object, **__: object) -> None:
    raise OSError("Dynamic loading not supported")
