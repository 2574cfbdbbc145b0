"""``python -m fairlead.cluster.front FD PARENT DIRECTORY``: started by ``supervisor`` alone.

FD: of the socket to the driver's process; PARENT: its process id; DIRECTORY: of the cluster's state, for
people who look at the list of processes.
"""

import contextlib
import os
import resource
import signal
import sys

from fairlead.model.child_signals import end_with_parent

PRIORITY = -10  # nicer than the driver by so much; only root may


def main() -> None:
    """Ends with the socket, with the parent, or when it is told to; signals are the parent's business."""
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(PermissionError):  # before the driver, where both share a core
        os.nice(PRIORITY)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection for each agent
    from fairlead.cluster.front.process import run

    run(fd)


if __name__ == "__main__":
    main()
