"""Asks Ray, in a process of its own: ``python -m fairlead.cluster.autoscaling.ray_nodes``.

It reads a request (JSON) from standard input and prints its answer, a line per node. Each call is a driver of
its own that comes and goes; nodes are detached actors with names, which Ray itself remembers. Imports nothing
of Fairlead, so that the actors need only Python and Ray.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

LOOK_S = 2.0  # for actors that run to answer
STOP_S = 10.0  # for one to take the order to stop


class NodeAgent:
    """An actor that runs the agent of a node, and ends with it."""

    def __init__(
        self, command: list[str], environment: dict[str, str], state: str, walltime_s: float
    ) -> None:
        """state: directory of the agent, which goes with it."""
        self._ends_s, self._state = time.time() + walltime_s, state
        words = [*command, "--ends-in", f"{max(round(walltime_s), 1)}s"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _END_WITH_PARENT, str(os.getpid()), *words],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._follow, daemon=True).start()

    def left_s(self) -> float:
        """Return the seconds until the node is taken away."""
        return max(self._ends_s - time.time(), 0.0)

    def stop(self) -> None:
        """Tell the agent to end: jobs save."""
        self._process.terminate()

    def _follow(self) -> None:
        self._process.wait()
        shutil.rmtree(self._state, ignore_errors=True)
        os._exit(0)  # and the actor with it: Ray has what it held back


# The agent gets SIGTERM when its actor is killed; PR_SET_PDEATHSIG is 1.
_END_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read())
    import ray

    ray.init(
        address=request["address"],
        namespace=request["namespace"],
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    answer = {"list": _list, "start": _start, "stop": _stop}[request["do"]](ray, request)
    for line in answer:
        print(json.dumps(line))


def _list(ray: Any, _: dict[str, Any]) -> list[dict[str, Any]]:
    """The actors that wait or run: those that answer run."""
    names = ray.util.list_named_actors()
    asked = {}
    for name in names:
        try:
            asked[name] = ray.get_actor(name).left_s.remote()
        except ValueError:  # it has ended since
            continue
    done, _ = (
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=LOOK_S)
        if asked
        else ([], [])
    )
    found = []
    for name, reference in asked.items():
        left_s = None
        if reference in done:
            try:
                left_s = ray.get(reference)
            except ray.exceptions.RayError:  # it has ended
                continue
        found.append({"node": name, "running": reference in done, "left_s": left_s})
    return found


def _start(ray: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    agent = ray.remote(NodeAgent).options(
        name=request["node"],
        lifetime="detached",
        max_restarts=0,
        max_concurrency=4,
        scheduling_strategy="SPREAD",
        num_cpus=request["num_cpus"],
        num_gpus=request["num_gpus"],
        resources=request["resources"],
    )
    names = ("command", "environment", "state", "walltime_s")
    agent.remote(*(request[name] for name in names))
    return []


def _stop(ray: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    """End one in order where it runs; one that waits is asked for no longer."""
    try:
        actor = ray.get_actor(request["node"])
        ray.get(actor.stop.remote(), timeout=STOP_S)
    except ray.exceptions.GetTimeoutError:
        ray.kill(actor)
    except (ValueError, ray.exceptions.RayError):
        pass  # it has ended
    return []


if __name__ == "__main__":
    main()
