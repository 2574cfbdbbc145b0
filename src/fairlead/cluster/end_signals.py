"""The signals that end an agent or a server in order."""

import signal


def end_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT and SIGHUP; the last not where it is ignored, as under nohup."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *((signal.SIGHUP,) if hangs_up else ()))
