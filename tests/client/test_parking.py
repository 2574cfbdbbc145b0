"""A rank that is parked: what it gives back, and that it goes on as if nothing had happened."""

import importlib.util
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.client.messages import Hello, Loaded, Progress, RankEnded, StopRank
from fairlead.client.parking import (
    PARKED,
    RELEASED,
    VARIABLE,
    Parking,
    ParkingDescriptors,
    ParkingHooks,
    resume_order,
)
from fairlead.client.stub_agent import StubAgent

LIMIT_S = 120.0
PLAIN = """
import hashlib, sys
import fairlead
state = {"digest": ""}
def save(path):
    path.write_text(state["digest"])
def load(path):
    state["digest"] = path.read_text()
with fairlead.Lease(load=load, save=save, total_steps=int(sys.argv[2])) as lease:
    while lease.next():
        state["digest"] = hashlib.sha256(f"{state['digest']} {lease.step}".encode()).hexdigest()
open(sys.argv[1], "w").write(state["digest"])
"""
TORCH = """
import hashlib, io, sys
import torch
from torch import nn
from fairlead.client.torch import TrainingState
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
state = TrainingState(model=model, optimizer=optimizer)
for x, y in state.iterator(loader, total_steps=int(sys.argv[2])):
    optimizer.zero_grad(set_to_none=True)
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
file = io.BytesIO()
torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()], file)
open(sys.argv[1], "w").write(hashlib.sha256(file.getvalue()).hexdigest())
"""
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


@dataclass
class Rank:
    """A process that can be parked, and what its agent has."""

    process: "subprocess.Popen[bytes]"
    agent: StubAgent
    parking: socket.socket
    log: Path
    inbox: list[object] = field(default_factory=list)

    def wait_for(self, kind: type) -> object:
        """The next message of this kind; those before it are passed over."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            while self.inbox:
                if isinstance(message := self.inbox.pop(0), kind):
                    return message
            ended = self.process.poll() is not None
            self.inbox += self.agent.poll(0.01)
            assert self.inbox or not ended, self.log.read_text()
        raise AssertionError(f"no {kind.__name__}")

    def word(self) -> bytes:
        """What it says next of parking."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            self.inbox += self.agent.poll(0.005)
            try:
                return self.parking.recv(64)
            except BlockingIOError:
                continue
        raise AssertionError("it says nothing of parking")

    def park(self) -> RankEnded:
        """Returns its last word."""
        self.agent.send(StopRank("preempted", park=True))
        assert self.word() == RELEASED
        ended = self.wait_for(RankEnded)
        assert self.word() == PARKED
        assert isinstance(ended, RankEnded)
        return ended

    def resume(self) -> Loaded:
        """Let it go on as the next attempt. Returns from where it does."""
        self.agent.drop()
        self.agent.attempt += 1
        with self.log.open("ab") as log, open(os.devnull) as lock:
            order = resume_order(self.agent.environment(), job_locks=1)
            socket.send_fds(self.parking, [order], [log.fileno(), lock.fileno(), lock.fileno()])
        assert isinstance(self.wait_for(Hello), Hello)
        loaded = self.wait_for(Loaded)
        assert isinstance(loaded, Loaded)
        assert loaded.attempt == self.agent.attempt
        return loaded


@contextmanager
def rank_of(folder: Path, script: str, *words: str, **more: str) -> Iterator[Rank]:
    """A process of a script."""
    folder.mkdir(exist_ok=True)
    agent = StubAgent(folder / "socket")
    agent.open()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    env = {**os.environ, **agent.environment(checkpoint_dir=str(folder / "checkpoints")), **more}
    env[VARIABLE] = str(ParkingDescriptors(theirs.fileno(), (), ()))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            (sys.executable, "-c", script, str(folder / "result"), *words),
            env=env, stdout=log, stderr=log, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    theirs.close()
    try:
        yield Rank(process, agent, ours, folder / "log")
    finally:
        ours.close()
        process.kill()
        process.wait()
        agent.close()


def _result(rank: Rank) -> str:
    until = time.monotonic() + LIMIT_S
    while rank.process.poll() is None and time.monotonic() < until:
        rank.agent.poll(0.01)
    assert rank.process.returncode == 0, rank.log.read_text()
    return rank.log.with_name("result").read_text()


def _uninterrupted(folder: Path, script: str, steps: int) -> str:
    folder.mkdir()
    result = folder / "result"
    command = (sys.executable, "-c", script, str(result), str(steps))
    subprocess.run(command, check=True, cwd=folder, timeout=LIMIT_S)
    return result.read_text()


@pytest.mark.parametrize(
    ("script", "steps", "parkings"),
    [
        (PLAIN, 400_000, 8),
        pytest.param(TORCH, 3_000, 8, marks=[pytest.mark.torch, needs_torch]),
        pytest.param(TORCH, 60_000, 200, marks=[pytest.mark.torch, pytest.mark.long, needs_torch]),
    ],
)
def test_a_run_that_is_parked_at_random_steps_is_the_same_to_the_bit(
    tmp_path: Path, script: str, steps: int, parkings: int
) -> None:
    seeded, parked_at = random.Random(3), set[int]()
    with rank_of(tmp_path / "parked", script, str(steps)) as rank:
        assert isinstance(rank.wait_for(Loaded), Loaded)
        last = 0
        for _ in range(parkings):
            until = time.monotonic() + seeded.uniform(0.0, 0.05)
            while time.monotonic() < until:
                rank.agent.poll(0.002)
            ended = rank.park()
            assert (ended.saved_step, ended.completed) == (ended.step, False)
            loaded = rank.resume()
            assert loaded.step == ended.step >= last
            assert loaded.lost_steps == 0
            last = loaded.step
            parked_at.add(last)
        found = _result(rank)
    assert 0 < last < steps
    assert len(parked_at) > parkings // 2, "at different steps"
    assert found == _uninterrupted(tmp_path / "whole", script, steps)


ENDING = """
import atexit, sys
import fairlead
def say(word):
    with open(sys.argv[1], "a") as file:
        file.write(word)
atexit.register(say, "atexit")
kept = open(sys.argv[2], "w")
kept.write("not lost")
try:
    with fairlead.Lease(load=lambda path: None, save=lambda path: path.write_text("x")) as lease:
        while lease.next():
            pass
finally:
    say("finally")
"""


def test_nothing_of_a_script_runs_when_nobody_has_a_use_for_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with rank_of(tmp_path / "job", ENDING, str(kept)) as rank:
        rank.wait_for(Loaded)
        rank.park()
        assert kept.read_text() == "not lost", "files are flushed before it stands still"
        rank.parking.close()
        assert rank.process.wait(LIMIT_S) == 0
        assert not rank.log.with_name("result").exists()


def test_sigterm_ends_it_at_once_while_it_is_parked(tmp_path: Path) -> None:
    script = ENDING.replace(
        "try:", "import signal; signal.signal(signal.SIGTERM, lambda *_: say('term'))\ntry:"
    )
    with rank_of(tmp_path / "job", script, str(tmp_path / "kept")) as rank:
        rank.wait_for(Loaded)
        rank.park()
        rank.process.terminate()
        assert rank.process.wait(LIMIT_S) == -signal.SIGTERM
        assert not rank.log.with_name("result").exists()


def test_it_does_not_go_on_beside_other_checkpoints(tmp_path: Path) -> None:
    with rank_of(tmp_path / "job", PLAIN, "1000000000") as rank:
        rank.wait_for(Loaded)
        while rank.park().step == 0:
            rank.resume()
        (newest,) = (tmp_path / "job" / "checkpoints").glob("step-*")
        newest.rename(newest.with_name("step-999999999999"))
        manifest = newest.with_name("step-999999999999") / "manifest.json"
        mine = f'"attempt": {rank.agent.attempt}'
        assert mine in manifest.read_text()
        manifest.write_text(manifest.read_text().replace(mine, '"attempt": 77'))
        rank.agent.drop()
        rank.agent.attempt += 1
        with rank.log.open("ab") as log, open(os.devnull) as lock:
            order = resume_order(rank.agent.environment(), job_locks=1)
            socket.send_fds(rank.parking, [order], [log.fileno(), lock.fileno()])
        until = time.monotonic() + LIMIT_S
        while rank.process.poll() is None and time.monotonic() < until:
            rank.agent.poll(0.01)
        assert rank.process.returncode == 75
        assert "another one has changed its checkpoints" in rank.log.read_text()


HOOKED = """
import sys
import fairlead
def on_park():
    print("parks", flush=True)
    if sys.argv[2] == "fails":
        raise RuntimeError("no memory")
options = {"load": lambda path: None, "save": lambda path: path.write_text("x")}
if sys.argv[2] == "returns":
    options["on_stop"] = "return"
with fairlead.Lease(**options, on_park=on_park, on_resume=lambda: print("resumes", flush=True)) as lease:
    while lease.next():
        pass
"""


def test_its_own_functions_are_called(tmp_path: Path) -> None:
    with rank_of(tmp_path / "job", HOOKED, "works") as rank:
        rank.wait_for(Loaded)
        rank.park()
        rank.resume()
        assert isinstance(rank.wait_for(Progress), Progress)
        assert rank.log.read_text().split() == ["parks", "resumes"]


@pytest.mark.parametrize("how", ["fails", "returns"])
def test_one_that_cannot_be_parked_ends(tmp_path: Path, how: str) -> None:
    with rank_of(tmp_path / "job", HOOKED, how) as rank:
        rank.wait_for(Loaded)
        rank.agent.send(StopRank("preempted", park=True))
        ended = rank.wait_for(RankEnded)
        assert isinstance(ended, RankEnded)
        assert ended.saved_step == ended.step
        assert rank.process.wait(LIMIT_S) == 0
        assert ("cannot be parked, and ends: no memory" in rank.log.read_text()) == (how == "fails")


@pytest.mark.parametrize("text", ["", "x", "1;2", "a;b;c", "99999;;", "0;;"])
def test_what_names_no_socket_of_this_process_is_left_alone(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    parking = Parking(ParkingHooks())
    parking.open()
    assert not parking.release()


def test_one_that_has_a_device_open_and_no_function_for_it_is_not_parked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setenv(VARIABLE, str(ParkingDescriptors(theirs.detach(), (), ())))
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    bare, hooked = Parking(ParkingHooks()), Parking(ParkingHooks(on_park=lambda: None))
    bare.open()
    monkeypatch.setattr("fairlead.client.parking.holds_device", lambda: True)
    assert not bare.release()
    hooked._socket = bare._socket
    assert hooked.release()
    assert ours.recv(64) == RELEASED
    for one in (ours, bare._socket):
        assert one is not None
        one.close()


def test_another_socket_of_that_number_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    monkeypatch.setenv(VARIABLE, str(ParkingDescriptors(theirs.fileno(), (), ())))
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    parking = Parking(ParkingHooks())
    parking.open()
    assert not parking.release()
    theirs.send(b"still open")
    assert ours.recv(64) == b"still open"
    ours.close()
    theirs.close()
