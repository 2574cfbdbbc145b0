"""A process that starts a server hears of it on a pipe."""

import os
import subprocess
import sys
import time

import pytest

from fairlead.cluster.readiness import ReadyPipe, ReadyServer, check_ready_fd
from fairlead.errors import ConfigError

TOLD = ReadyServer(url="http://h:1", agents="h:2", state="state")
SAY = (
    "import sys, time; from fairlead.cluster import readiness as r; "
    "fd = int(sys.argv[2]); r.check_ready_fd(fd); time.sleep(float(sys.argv[3])); "
    "r.report_ready(fd, r.ReadyServer(url='http://h:1', agents='h:2', state='state'))"
)


def _start(code: str, pipe: ReadyPipe, *more: str) -> "subprocess.Popen[bytes]":
    call = (sys.executable, "-c", code, *pipe.arguments, *more)
    return subprocess.Popen(call, pass_fds=pipe.fds)


def test_what_is_told_is_heard() -> None:
    pipe = ReadyPipe()
    with _start(SAY, pipe, "0.1") as process:
        assert pipe.wait(process, 60.0) == TOLD


def test_a_process_that_ends_or_is_late_is_not_ready() -> None:
    pipe = ReadyPipe()
    with _start("", pipe) as process:
        assert pipe.wait(process, 60.0) is None
    pipe, began = ReadyPipe(), time.monotonic()
    with _start("import time; time.sleep(600)", pipe) as process:
        assert pipe.wait(process, 0.3) is None
        assert time.monotonic() - began < 300.0
        process.kill()


def test_who_waits_for_a_process_that_ends_knows_how_it_ended() -> None:
    code = "import os, sys, time; os.close(int(sys.argv[2])); time.sleep(0.3); sys.exit(2)"
    pipe = ReadyPipe()
    with _start(code, pipe) as process:
        assert pipe.wait(process, 60.0) is None
        assert process.poll() == 2


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    for fd in (write, 1 << 40):
        with pytest.raises(ConfigError, match=f"--ready-fd: {fd} is not an open file descriptor"):
            check_ready_fd(fd)
