"""Rank 0 of a job that trains nothing: it speaks to its agent, and prints what it hears."""

import contextlib
import os
import signal
import socket
import sys
import time

from fairlead.client.messages import (
    FromAgent,
    Grant,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    RankFrames,
    StopRank,
    frame,
)

attempt = int(os.environ["FAIRLEAD_ATTEMPT"])
total = int(os.environ["FAIRLEAD_TOTAL_STEPS"])
stubborn = "stubborn" in sys.argv
peer = socket.socket(socket.AF_UNIX)
peer.connect(os.environ["FAIRLEAD_SOCKET"])
peer.sendall(
    frame(Hello(int(os.environ["FAIRLEAD_JOB"]), attempt, os.environ["FAIRLEAD_TOKEN"], 0))
)
frames: RankFrames[FromAgent] = RankFrames(FromAgent)


def leave(step: int, completed: bool) -> None:
    with open("last-step", "w") as file:
        file.write(str(step))
    with contextlib.suppress(OSError):
        peer.sendall(frame(RankEnded(attempt, step, step, 0.5, completed)))
    print(f"leaves after step {step}", flush=True)
    sys.exit(0)


def train() -> None:
    step, begun = 0, False
    signal.signal(signal.SIGTERM, lambda *_: None if stubborn else leave(step, False))
    peer.settimeout(0.02)
    while True:
        try:
            data = peer.recv(1 << 16)
            if not data:
                time.sleep(0.02)
        except OSError:  # nothing to hear, or nobody there
            data = b""
        for message in frames.feed(data):
            print(message, flush=True)
            if isinstance(message, Grant) and not begun:
                begun = True
                peer.sendall(frame(Loaded(attempt, 5, 0.25)))
                step = 5
            if isinstance(message, StopRank) and not stubborn:
                leave(step, completed=False)
        if not begun:
            continue
        step += 1
        if step >= total:
            leave(step, completed=True)
        with contextlib.suppress(OSError):
            peer.sendall(frame(Progress(attempt, step, 5, 0.5, renew=step % 10 == 0)))


train()
