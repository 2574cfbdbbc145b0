"""The PyTorch examples: suspended and resumed they end as if nothing had happened, to the last bit."""

import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_port import free_port

from fairlead.client.messages import (
    Adapt,
    Loaded,
    StopRank,
)
from fairlead.client.stub_agent import StubAgent

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "live"
IMAGES = [
    "images_torch.py",
    "--epochs",
    "8",
    "--images",
    "1024",
    "--batch",
    "16",
    "--critical",
    "9",
]
LANGUAGE = ["language_torch.py", "--steps", "120", "--sentences", "256", "--batch", "16"]


class Starter:
    """Ranks out of a process that has PyTorch in memory already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = StubAgent(folder / "agent.sock")
        self.process: subprocess.Popen[str] | None = None
        self.starts = 0

    def open(self) -> None:
        self.host.open()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def run(self, command: list[str], name: str, ranks: int = 1, stop: bool = False) -> str:
        """One start of a job, told to stop when it has trained for a moment; its output."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.host.received.clear()
        self.starts += 1
        logs = [self.folder / f"{name}-{self.starts}-{rank}.log" for rank in range(ranks)]
        self.process.stdin.write(json.dumps(self._ranks(command, name, logs)) + "\n")
        self.process.stdin.flush()
        end = time.monotonic() + 120
        while not select.select([self.process.stdout], [], [], 0)[0]:
            self.host.poll(0.005)
            assert time.monotonic() < end
            if stop and any(isinstance(message, Loaded) for message in self.host.received):
                time.sleep(0.1)
                self.host.send(StopRank("preempted"))
                stop = False
        codes = json.loads(self.process.stdout.readline())
        while self.host.poll(0.0):
            pass
        assert codes == [0] * ranks, logs[0].read_text()
        return logs[0].read_text()

    def close(self) -> None:
        self.host.close()
        if self.process is not None:
            self.process.communicate()

    def _ranks(self, command: list[str], name: str, logs: list[Path]) -> list[object]:
        env = self.host.environment(
            checkpoint_dir=str(self.folder / name), rank_sync=f"127.0.0.1:{free_port()}"
        )
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        arguments = [str(EXAMPLES / command[0]), *command[1:]]
        return [
            [env | {"RANK": str(rank), "WORLD_SIZE": str(len(logs))}, arguments, str(log)]
            for rank, log in enumerate(logs)
        ]


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    starter = Starter(tmp_path_factory.mktemp("torch"))
    starter.open()
    yield starter
    starter.close()


def last(output: str) -> str:
    line = output.strip().splitlines()[-1]
    assert line.startswith("done: ")
    return line


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("command", [IMAGES, LANGUAGE], ids=["images", "language"])
def test_suspended_and_resumed_it_ends_bit_equal(
    starter: Starter, command: list[str], ranks: int
) -> None:
    kind = f"{command[0]}-{ranks}"
    whole = last(starter.run(command, f"whole-{kind}", ranks))
    adapted = [message for message in starter.host.received if isinstance(message, Adapt)]
    assert bool(adapted) == (command is IMAGES)
    first = starter.run(command, f"parts-{kind}", ranks, stop=True)
    assert "done" not in first
    resumed = last(starter.run(command, f"parts-{kind}", ranks))
    [loaded] = [message for message in starter.host.received if isinstance(message, Loaded)]
    assert loaded.step > 0
    assert resumed == whole


@pytest.mark.parametrize("command", [IMAGES, LANGUAGE], ids=["images", "language"])
def test_begun_on_two_ranks_and_ended_on_one_it_agrees_to_1e_8(
    starter: Starter, command: list[str]
) -> None:
    import torch

    exact = [*command, "--dtype", "float64"]
    exact += ["--dropout", "0"] if command is LANGUAGE else []
    kind = command[0]
    starter.run(exact, f"one-{kind}")
    starter.run(exact, f"fewer-{kind}", 2, stop=True)
    starter.run(exact, f"fewer-{kind}", 1)
    assert any(isinstance(m, Loaded) and m.step > 0 for m in starter.host.received)
    states = []
    for name in ("one", "fewer"):
        newest = max((starter.folder / f"{name}-{kind}").glob("step-*"))
        state = torch.load(newest / "rank-0", weights_only=True)["model"]
        states.append(torch.cat([state[key].flatten() for key in sorted(state)]))
    distance = float((states[0] - states[1]).norm() / states[0].norm())
    assert distance < 1e-8


def test_the_elastic_job_ends_alike_after_each_number_of_ranks(starter: Starter) -> None:
    command = ["elastic_torch.py", "--epochs", "40", "--dtype", "float64"]
    whole = last(starter.run(command, "elastic-whole"))
    small = [*command, "--max-local-batch", "10"]  # of 32, so that each number accumulates
    for ranks in (3, 1, 2):
        assert "done" not in starter.run(small, "elastic-parts", ranks, stop=True)
    moved = last(starter.run(small, "elastic-parts", 4))
    [loaded] = [message for message in starter.host.received if isinstance(message, Loaded)]
    steps, norm = moved.split()[1], float(moved.split()[4])
    assert 0 < loaded.step < int(steps) == 40 * 16
    assert norm == pytest.approx(float(whole.split()[4]), rel=1e-9)
