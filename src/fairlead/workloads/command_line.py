"""The command line of the workloads. Exit codes: 0 trained, or stopped and saved; 2 bad input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fairlead.errors import ConfigError, InputError
from fairlead.workloads.registry import WORKLOADS, Workload, missing_library

if TYPE_CHECKING:
    import torch

MODES = ("static", "accordion", "gns")


class SentenceParser(argparse.ArgumentParser):
    """Raises ConfigError with one sentence where an option cannot be used."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument ").removeprefix("NAME: "))


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the workload that the arguments name; None = those of the process."""
    try:
        options = _parser().parse_args(arguments)
        _run(WORKLOADS[options.name], options)
    except InputError as problem:
        print(f"fairlead: {problem}", file=sys.stderr)
        raise SystemExit(2) from None


def _run(workload: Workload, options: argparse.Namespace) -> None:
    if find_spec("torch") is None:
        raise ConfigError(missing_library(workload.name, "torch"))
    from fairlead.workloads import training

    training.make_deterministic()
    run = training.TrainingRun(
        workload,
        training.TrainingOptions(
            batch_size=options.batch_size or workload.batch_sizes[0],
            mode=options.mode,
            steps=options.steps,
            data=options.data,
            small=options.small,
            seed=options.seed,
            accordion_interval=options.accordion_interval,
            checkpoint_dir=options.checkpoint_dir,
        ),
    )
    is_first = run.environment.rank == 0

    def watch(step: int, rows: torch.Tensor, loss: torch.Tensor) -> None:
        if is_first and step % options.log_every == 0:
            print(f"step {step} batch {len(rows)} loss {loss:.4f}", flush=True)

    result = run.run(watch)
    if is_first:
        print(f"done: {result.steps} steps, weights {result.weights}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m fairlead.workloads",
        description="Train one of the workloads of Gavel's and Shockwave's papers.",
        epilog="names and batch sizes of the papers (others are accepted too): " + _names(),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", metavar="NAME", choices=list(WORKLOADS), help=", ".join(WORKLOADS))
    add("--batch-size", type=_whole(1), metavar="N", help="samples per step, all ranks together")
    add("--data", type=_folder, metavar="DIR", help="the data set; without it one is generated")
    add("--mode", choices=MODES, default="static", help="how the batch size changes")
    add("--steps", type=_whole(1), metavar="N", help="without a scheduler; default: one pass")
    add("--small", action="store_true", help="a model and data for seconds on a CPU")
    add("--seed", type=_whole(0), default=0, metavar="N", help="of weights, data and order")
    add("--accordion-interval", type=_whole(1), default=10, metavar="PASSES", help="default: 10")
    add("--log-every", type=_whole(1), default=50, metavar="STEPS", help="default: 50")
    add("--checkpoint-dir", type=Path, metavar="DIR", help="unless the scheduler says")
    return parser


def _names() -> str:
    sizes = {one.name: ", ".join(map(str, one.batch_sizes)) for one in WORKLOADS.values()}
    return "; ".join(f"{name}: {text}" for name, text in sizes.items())


def _whole(least: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, got {text!r}")
        return int(text)

    return parse


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, there is none at {text!r}")
    return path
