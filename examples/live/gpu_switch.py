"""The cost of taking a GPU from one PyTorch job and giving it to another. Run it on your own GPU:

    python examples/live/gpu_switch.py

It suspends and resumes a transformer, hands the GPU from one job to a second and back, and runs both at once,
and prints a table. ``--device cpu`` tries all of it without a GPU.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

import fairlead
from fairlead.client.messages import Hello, Loaded
from fairlead.cluster.measure import (
    ScriptTimings,
    measure,
    start,
)

LENGTH, BATCH, WORDS = 128, 16, 8_000  # tokens of a sequence, sequences of a step, vocabulary


def main() -> None:
    """The parent measures; with --train this process is one of its jobs."""
    options = parse()
    if options.train:
        train(options)
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "no GPU is at hand, so nothing was measured (--device cpu tries it without)",
            file=sys.stderr,
        )
        raise SystemExit(2)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(
        f"{name}, torch {torch.__version__}, transformer of width {options.width}, {options.layers} layers"
    )
    command = [sys.executable, __file__, "--train"]
    command += [f"--{key}={getattr(options, key)}" for key in ("device", "width", "layers", "seed")]
    kind = name.replace(" ", "-").lower()
    runs = [measure(command, kind, 1, options.seconds) for _ in range(options.times)]
    show_alone(runs)
    show_switch(command, kind, options.times)
    show_packed(command, kind, options.seconds, statistics.median(run.steps_per_s for run in runs))


def show_alone(runs: list[ScriptTimings]) -> None:
    """A job alone: its rate, and what it loses when it is suspended and resumed."""
    print(f"\nsuspend and resume, {len(runs)} times     median       worst")
    for name in asdict(runs[0]):
        if name.endswith("_s") and name != "steps_per_s":
            show(name.removesuffix("_s"), [getattr(run, name) for run in runs])
    show("lost per preemption", [run.restart_s for run in runs])
    rates = [run.steps_per_s for run in runs]
    print(f"{'rate alone':24}{statistics.median(rates):10.2f} steps/s")


def show_switch(command: list[str], kind: str, times: int) -> None:
    """Two jobs take turns: from the order to stop one until the other has loaded its state."""
    took: list[float] = []
    asked = 0.0
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        folders = [Path(first), Path(second)]
        for turn in range(times + 1):
            with start(command, kind, 1, folders[turn % 2]) as run:
                run.wait_for(Hello)
                at, loaded = run.wait_for(Loaded)
                if turn:
                    took.append(at - asked)
                at, _ = run.train_for(at + 1.0, loaded.step)
                asked = time.monotonic()
                run.stop()
    print(f"\nswitch to another job, {len(took)} times  median       worst")
    show("order to loaded", took)


def show_packed(command: list[str], kind: str, seconds: float, alone: float) -> None:
    """Both on the device at once."""
    rates = []
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        start(command, kind, 1, Path(first)) as a,
        start(command, kind, 1, Path(second)) as b,
    ):
        for run in (a, b):
            run.wait_for(Loaded)
        begin = [run.train_for(time.monotonic() + 2.0, 0) for run in (a, b)]
        end = [run.train_for(time.monotonic() + seconds, 0) for run in (a, b)]
        for run in (a, b):
            run.stop()
    for (t0, s0), (t1, s1) in zip(begin, end, strict=True):
        rates.append((s1 - s0) / (t1 - t0))
    print("\ntwo jobs packed on the device")
    for name, rate in zip(("first", "second", "both"), (*rates, sum(rates)), strict=True):
        print(f"{name:24}{rate:10.2f} steps/s, {rate / alone:.0%} of alone")


def show(name: str, seconds: list[float]) -> None:
    """A row of a table."""
    print(f"{name:24}{statistics.median(seconds):10.3f} s{max(seconds):10.3f} s")


def train(options: argparse.Namespace) -> None:
    """One job."""
    torch.manual_seed(options.seed)
    layer = nn.TransformerEncoderLayer(options.width, 8, 4 * options.width, 0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(WORDS, options.width),
        nn.TransformerEncoder(layer, options.layers),
        nn.Linear(options.width, WORDS),
    ).to(options.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def save(path: Path) -> None:
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, path)

    def load(path: Path) -> None:
        state = torch.load(path, weights_only=True, map_location=options.device)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])

    with fairlead.Lease(load=load, save=save) as lease:
        while lease.next():
            words = torch.randint(WORDS, (BATCH, LENGTH), device=options.device)
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            loss.item()  # the step is done when the GPU is


def parse() -> argparse.Namespace:
    """The command line."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = about.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--times", type=int, default=5, help="switches of each sort")
    add("--seconds", type=float, default=5.0, help="to measure a rate")
    add("--width", type=int, default=512)
    add("--layers", type=int, default=6)
    add("--seed", type=int, default=0)
    add("--train", action="store_true", help=argparse.SUPPRESS)
    return about.parse_args()


if __name__ == "__main__":
    main()
