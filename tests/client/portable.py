"""What a training process does, for any Python from 3.9 on, without a test runner. Prints "ok" at the end.

``python portable.py DIR``: by hand, under an agent, and as one of two ranks; stopped on the way each time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import fairlead
import fairlead.client
from fairlead.client import run_call
from fairlead.client.call_files import CallFolder
from fairlead.client.futures import JobExecutor
from fairlead.client.messages import (
    Hello,
    Loaded,
    Progress,
    RankEnded,
    StopRank,
)
from fairlead.client.open_loop import OPEN_LOOP
from fairlead.client.stub_agent import StubAgent
from fairlead.errors import ConfigError

STEPS = 60
FRAMEWORKS = ("torch", "torchdata", "numpy", "lightning", "pytorch_lightning", "transformers")


class Script:
    """Its state is the list of all batches that it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: list[int] = []

    def load(self, path: Path) -> None:
        self.batches = json.loads(path.read_text())

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.batches))

    def run(
        self, stop_at: int = -1, pause_s: float = 0.0, **more: object
    ) -> fairlead.Iterator[int]:
        loop = fairlead.Iterator(
            range(10),
            load=self.load,
            save=self.save,
            total_steps=STEPS,
            checkpoint_dir=self.folder,
            on_stop="return",
            **more,  # type: ignore[arg-type]
        )
        for batch in loop:
            self.batches.append(batch)
            time.sleep(pause_s)
            if loop.step == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
        return loop

    def check(self) -> None:
        assert self.batches == [step % 10 for step in range(STEPS)], self.batches


def import_all() -> None:
    for found in pkgutil.walk_packages(fairlead.client.__path__, "fairlead.client."):
        import_one(found.name)


def import_one(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name not in FRAMEWORKS:  # what is for a framework needs it
            raise
    except ConfigError:  # as a sentence
        if module.rpartition(".")[2] not in FRAMEWORKS:
            raise


def by_hand(folder: Path) -> None:
    first = Script(folder).run(stop_at=25)
    assert first.preempted, "SIGTERM stops the loop"
    script = Script(folder)
    assert script.run().completed
    script.check()


def under_an_agent(folder: Path) -> None:
    host = StubAgent(folder.with_suffix(".sock"), lease_s=0.4)
    host.open()
    over = threading.Event()

    def serve() -> None:
        told = False
        while not over.is_set():
            host.poll(0.02)
            if not told and any(isinstance(m, Progress) and m.step > 5 for m in host.received):
                host.send(StopRank("preempted"))
                told = True

    thread = threading.Thread(target=serve)
    thread.start()
    os.environ.update(host.environment())
    try:
        first = Script(folder).run(pause_s=0.03)  # longer than the lease, which is renewed
        assert first.preempted, "the agent has said so"
        assert 5 < first.step < STEPS, first.step
        OPEN_LOOP._begun = None  # as in another process
        script = Script(folder)
        assert script.run().completed
        script.check()
    finally:
        over.set()
        thread.join()
        host.close()
        for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
            del os.environ[name]
    kinds = [type(message) for message in host.received]
    assert kinds.count(Hello) == kinds.count(Loaded) == kinds.count(RankEnded) == 2, kinds


def two_ranks(folder: Path) -> None:
    for stop_at in (25, -1):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        children = [start_rank(folder, rank, port, stop_at) for rank in range(2)]
        codes = [os.waitpid(child, 0)[1] for child in children]
        assert codes == [0, 0], codes


def start_rank(folder: Path, rank: int, port: int, stop_at: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", FAIRLEAD_RANK_SYNC=f"127.0.0.1:{port}")
        script = Script(folder)
        loop = script.run(stop_at if rank == 1 else -1, save_ranks="all")
        assert loop.preempted if stop_at >= 0 else loop.completed
        if stop_at < 0:
            script.check()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def raised(kind: type[Exception], do: Callable[[], object]) -> Exception:
    """What a function raises, which has to be of this kind."""
    try:
        do()
    except kind as problem:
        return problem
    raise AssertionError("nothing was raised")


def calls(folder: Path) -> None:
    """Functions called in jobs, but for the jobs."""
    calls = CallFolder(folder / "calls")
    calls.write_calls(json.dumps, [(([1, 2],), {"indent": None}), ((calls,), {})])
    os.environ["FAIRLEAD_ATTEMPT"] = "2"
    for index, code in enumerate((0, run_call.EXIT_RAISED)):
        os.environ["FAIRLEAD_ARRAY_INDEX"] = str(index)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            assert run_call.main([str(calls.path)]) == code
    good, bad = calls.read_result(0, 2), calls.read_result(1, 2)
    assert good is not None
    assert good.value() == "[1, 2]"
    assert bad is not None
    assert "json" in str(raised(TypeError, bad.value).__cause__)
    refused = raised(ConfigError, lambda: calls.write_calls(main, []))
    assert "defined in the script" in str(refused)
    with JobExecutor("http://127.0.0.1:9", directory=folder) as executor:
        assert executor.map_array(json.dumps, []) == []
        assert list(executor.map(json.dumps, [])) == []


def metrics(folder: Path) -> None:
    """Reports of metrics, and the parameters of a trial."""
    os.environ["FAIRLEAD_METRICS_FILE"] = str(folder / "metrics")
    os.environ["FAIRLEAD_PARAMETERS"] = '{"lr": 0.5}'
    assert fairlead.parameters(lr=1.0, layers=2) == {"lr": 0.5, "layers": 2}
    fairlead.report(step=3, loss=0.25)
    report = json.loads((folder / "metrics").read_text())
    assert (report["step"], report["metrics"]) == (3, {"loss": 0.25})
    refused = raised(ConfigError, lambda: fairlead.report(step=1, loss="low"))
    assert "expected a number" in str(refused)


def main() -> None:
    folder = Path(sys.argv[1])
    import_all()
    by_hand(folder / "by_hand")
    under_an_agent(folder / "agent")
    two_ranks(folder / "ranks")
    calls(folder)
    metrics(folder)
    print("ok")


if __name__ == "__main__":
    main()
