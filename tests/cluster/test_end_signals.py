"""A terminal that is closed ends an agent or a server in order, unless that signal is ignored."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, os, signal
from fairlead.cluster.agent.stop_signals import StopSignals

async def run():
    signals = StopSignals(lambda: None)
    signals.watch()
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    print(signals.leave.is_set())

asyncio.run(run())
"""


@pytest.mark.parametrize(("ignored", "leaves"), [(False, "True"), (True, "False")])
def test_a_hangup_ends_in_order_unless_it_is_ignored(ignored: bool, leaves: str) -> None:
    def prepare() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)

    done = subprocess.run(
        (sys.executable, "-c", SCRIPT), preexec_fn=prepare, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, leaves), done.stderr
