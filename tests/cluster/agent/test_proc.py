"""Processes as the kernel tells of them."""

import signal
import subprocess
import sys

from tests.cluster.cluster import until

from fairlead.cluster.agent import proc

CHILD = "import subprocess, sys, time; print(flush=True); time.sleep(10_000)"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}], start_new_session=True)
"""


def test_what_a_session_has_started_is_below_it_in_whatever_session() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], start_new_session=True, stdout=subprocess.PIPE
    )
    stranger = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.DEVNULL)
    try:
        assert parent.stdout is not None
        parent.stdout.readline()  # the child runs
        found = {one.pid: one for one in proc.below({parent.pid})}
        assert parent.pid in found
        assert [one.parent for pid, one in found.items() if pid != parent.pid] == [parent.pid]
        assert len({one.session for one in found.values()}) == 2
    finally:
        for one in proc.below({parent.pid}):
            proc.kill_exactly(one, signal.SIGKILL)
        stranger.kill()
        parent.communicate()
        stranger.wait()
    until(lambda: not proc.below({parent.pid}))
