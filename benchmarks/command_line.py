"""The command line that all benchmarks share: ``--help`` says what one measures, and what cannot be used is
refused in a sentence, with exit code 2."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from fairlead.errors import FairleadError, InputError
from fairlead.model.cluster import Cluster
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import PROFILES
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the benchmark."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(main: Callable[[], int | None]) -> None:
    """Run a benchmark and exit with its code; errors that Fairlead raises on purpose are one line."""
    try:
        sys.exit(main() or 0)
    except FairleadError as problem:
        print(f"{Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, InputError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)


def whole(least: int = 1) -> Callable[[str], int]:
    """The type of an argument that is a whole number from ``least`` on."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, got {text!r}")
        return int(text)

    return read


def finite(least: float = 0.0, *, above: bool = False) -> Callable[[str], float]:
    """The type of an argument that is a finite number from ``least`` on, or above it."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value < float("inf") or (above and value == least):
            sign = ">" if above else ">="
            raise argparse.ArgumentTypeError(f"expected a number {sign} {least:g}, got {text!r}")
        return value

    return read


def numbers(count: int) -> Callable[[str], list[float]]:
    """The type of an argument that is so many numbers >= 0, or inf, with commas between them."""

    def read(text: str) -> list[float]:
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) != count or not all(value >= 0 for value in values):
            raise argparse.ArgumentTypeError(
                f"expected {count} numbers with commas between them, got {text!r}"
            )
        return values

    return read


def measured_jobs(text: str) -> tuple[int, int]:
    """The type of ``S:E``: jobs S to E-1 are measured."""
    first, colon, stop = text.partition(":")
    if not colon or not first.isdecimal() or not stop.isdecimal() or int(first) >= int(stop):
        raise argparse.ArgumentTypeError(f"expected S:E with S < E, got {text!r}")
    return int(first), int(stop)


def _checked(read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except InputError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def trace_file(text: str) -> str:
    """The type of a trace: a file that is there."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return text


def rate_table(text: str) -> Throughputs:
    """The type of a throughput table: a file, or ``builtin``."""
    found = _checked(read_throughputs, text)
    assert isinstance(found, Throughputs)
    return found


def cluster_spec(text: str) -> str:
    """The type of a cluster, as ``v100=8,k80=16`` or a TOML file."""
    found = _checked(parse_cluster, text)
    assert isinstance(found, Cluster)
    return text


def profile_name(text: str) -> str:
    """The type of a profile."""
    if text not in PROFILES:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(PROFILES)}, got {text!r}")
    return text


def add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments of a benchmark that runs a trace: trace, table, cluster and measured jobs."""
    parser.add_argument("trace", metavar="TRACE", type=trace_file, help="jobs")
    parser.add_argument("table", metavar="TABLE", type=rate_table, help="rates: a file, or builtin")
    parser.add_argument("cluster", metavar="CLUSTER", type=cluster_spec, help="as v100=8,k80=16")
    parser.add_argument("window", metavar="S:E", type=measured_jobs, help="jobs that are measured")
