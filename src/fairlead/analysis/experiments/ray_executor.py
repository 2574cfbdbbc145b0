"""Running points on a Ray cluster: an actor for each of its cores, each with a worker as on this machine.

Fairlead, of the same version, has to be installed on every node, and files that points name have to be
there under the same names.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from fairlead.analysis.experiments.executor import (
    POLL_S,
    Done,
    Limits,
    SweepProgress,
    Worker,
    label,
)
from fairlead.analysis.experiments.point import Point, Status
from fairlead.analysis.experiments.ray_address import check_ray_address
from fairlead.analysis.experiments.result_store import PointAnswer, code_version
from fairlead.errors import ConfigError, RunError

MAX_TRIES = 3  # of a point whose node is lost


class Remote:
    """The actor on a node: it has a worker process, so that time and memory are limited as everywhere."""

    def __init__(self, limits: bytes) -> None:
        self.worker = Worker(msgspec.msgpack.decode(limits, type=Limits))

    def version(self) -> str:
        """Return the version of the code on this node."""
        return code_version()

    def run(self, point: bytes) -> bytes:
        """The answer for a point."""
        answer = self.worker.run(
            msgspec.msgpack.decode(point, type=Point), lambda _done, _note: None
        )
        return msgspec.msgpack.encode(answer)


class RayExecutor:
    """An executor: the cores of a Ray cluster."""

    def __init__(self, count: int | None = None, address: str | None = None) -> None:
        """count: points at once; None = one for each core. address: of the cluster; None = as Ray finds
        it, which starts one on this machine where there is none."""
        self.count = count
        self.address = address

    def run(
        self, points: Sequence[Point], limits: Limits, done: Done, progress: SweepProgress
    ) -> None:
        """Run all points, the first ones first."""
        ray = _ray()
        with _connected(ray, self.address):
            cores = int(ray.cluster_resources().get("CPU", 1))
            count = min(self.count or cores, cores, len(points))
            _Crew(ray, limits, count).run(points, done, progress)


class _Crew:
    """The actors of a run, and what each is at."""

    def __init__(self, ray: Any, limits: Limits, count: int) -> None:
        self.ray = ray
        self.limits = msgspec.msgpack.encode(limits.shared_by(count))
        self.count = count
        self.remote = ray.remote(num_cpus=1, max_restarts=0)(Remote)
        self.busy: dict[Any, tuple[Any, int]] = {}  # by the answer to come: actor and point
        self.tries: dict[int, int] = {}

    def run(self, points: Sequence[Point], done: Done, progress: SweepProgress) -> None:
        """Give each actor a point, and another when it has answered."""
        todo = list(range(len(points)))[::-1]
        idle = [self._start_workers() for _ in range(self.count)]
        self._same_version(idle[0])
        try:
            while todo or self.busy:
                while idle and todo:
                    self._assign(idle.pop(), todo.pop(), points, progress)
                ready, _ = self.ray.wait(list(self.busy), timeout=POLL_S * 5)
                progress.show()
                for answer in ready:
                    actor, number = self.busy.pop(answer)
                    progress.end(_name(points, number))
                    try:
                        content = self.ray.get(answer)
                    except self.ray.exceptions.RayActorError as problem:
                        idle.append(self._start_workers())
                        self._retry(number, problem, todo, done)
                        continue
                    idle.append(actor)
                    done(number, msgspec.msgpack.decode(content, type=PointAnswer))
        finally:
            for actor in [*idle, *(actor for actor, _ in self.busy.values())]:
                self.ray.kill(actor)

    def _start_workers(self) -> Any:
        return self.remote.remote(self.limits)

    def _same_version(self, actor: Any) -> None:
        there = self.ray.get(actor.version.remote())
        if there != code_version():
            raise RunError(
                f"the Ray cluster has version {there} of Fairlead, this is {code_version()}: results "
                "would differ"
            )

    def _assign(
        self, actor: Any, number: int, points: Sequence[Point], progress: SweepProgress
    ) -> None:
        self.tries[number] = self.tries.get(number, 0) + 1
        progress.part(_name(points, number), 0.0, "")
        answer = actor.run.remote(msgspec.msgpack.encode(points[number]))
        self.busy[answer] = actor, number

    def _retry(self, number: int, problem: Exception, todo: list[int], done: Done) -> None:
        """The node is lost, or the actor on it: the point is not to blame."""
        if self.tries[number] < MAX_TRIES:
            todo.append(number)
            return
        text = str(problem).strip().partition("\n")[0]
        done(
            number,
            PointAnswer(Status.FAILED, reason=f"its node was lost {MAX_TRIES} times: {text}"),
        )


def _name(points: Sequence[Point], number: int) -> str:
    return f"{label(points[number])} [{number + 1}]"


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "--executor ray: Ray is not installed; 'pip install fairlead[ray]' brings it"
        ) from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to the cluster; one that is there already is used and left open."""
    if ray.is_initialized():
        yield
        return
    check_ray_address(address or os.environ.get("RAY_ADDRESS", ""))
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as problem:
        text = " ".join(str(problem).split())
        where = "--executor ray" if address is None else f"--ray-address {address}"
        raise ConfigError(f"{where}: {text}") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)  # Ray has put its own in the place of ours
    try:
        yield
    finally:
        ray.shutdown()
