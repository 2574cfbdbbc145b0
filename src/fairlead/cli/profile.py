"""``fairlead profile``: throughputs of the papers' workloads, by running them."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.announcements import announce
from fairlead.cli.options import JsonOption
from fairlead.cluster.agent.devices import find_devices
from fairlead.cluster.measure import measure, measure_pair
from fairlead.errors import ConfigError
from fairlead.simulator.traces.merge_rates import merge_rates
from fairlead.simulator.traces.throughput_tables import read_throughputs
from fairlead.workloads.registry import WORKLOADS

profile = typer.Typer(
    no_args_is_help=True, help="Measure the throughputs of the papers' workloads."
)


@profile.callback()
def _group() -> None:
    """Measure the throughputs of the papers' workloads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """A workload with a batch size, on so many devices."""

    workload: str
    batch_size: int
    devices: int
    small: bool

    @property
    def family(self) -> str:
        """Name of the job type, as traces and the catalogue have it."""
        family, sizes = WORKLOADS[self.workload].family, WORKLOADS[self.workload].batch_sizes
        return f"{family} (batch size {self.batch_size})" if len(sizes) > 1 else family

    @property
    def command(self) -> tuple[str, ...]:
        """Words that run it."""
        words = (sys.executable, "-m", "fairlead.workloads", self.workload)
        small = ("--small",) if self.small else ()
        return (*words, "--batch-size", str(self.batch_size), *small)


class MeasuredRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of a job type, alone or beside another."""

    family: str
    scale_factor: int
    accelerator: str
    steps_per_s: float
    beside: str = ""
    stderr: float | None = None
    capped: bool = False  # it was faster beside the other than alone, as far as could be measured

    @property
    def sentence(self) -> str:
        """The rate in words."""
        beside = f" beside {self.beside}" if self.beside else ""
        what = f"{self.family}, {self.scale_factor} x {self.accelerator}{beside}"
        return f"{what}: {self.steps_per_s:.4g} steps/s"

    @property
    def row(self) -> dict[str, str]:
        """A row of the throughput table (docs/formats.md)."""
        error = "" if self.stderr is None else f": +- {self.stderr:.2g}"
        error += ": not above the rate alone" if self.capped else ""
        return {
            "family": self.family,
            "scale_factor": str(self.scale_factor),
            "accelerator": self.accelerator,
            "locality": "consolidated",
            "steps_per_s": f"{self.steps_per_s:.6g}",
            "source": f"fairlead profile{error}",
            "beside": self.beside,
        }


@profile.command("workloads")
def workloads(
    only: Annotated[
        str,
        typer.Option("--only", metavar="NAME,...", help="These workloads. Default: all seven."),
    ] = "",
    all_sizes: Annotated[
        bool,
        typer.Option("--all-sizes", help="All batch sizes of the papers. Default: the smallest."),
    ] = False,
    accelerator: Annotated[
        str,
        typer.Option(
            "--accelerator", metavar="TYPE", help="Name of the devices. Default: what NVML finds."
        ),
    ] = "",
    devices: Annotated[
        str, typer.Option("--devices", metavar="N,...", help="Numbers of devices (ranks).")
    ] = "1",
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Also each two of them on the same device at once."),
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1.0, help="Time to measure each, after the warm-up.")
    ] = 10.0,
    small: Annotated[
        bool, typer.Option("--small", help="Small models and little data, as for a CPU.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Put the rates into this throughput table (CSV), one by one.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the papers' workloads: alone, by the number of devices, and in pairs.

    Each is run, stopped, and started again from its checkpoint.
    """
    chosen = list(_configurations(_names(only), _counts(devices), all_sizes=all_sizes, small=small))
    kind = accelerator or _accelerator_here()
    if out is not None and out.exists():
        read_throughputs(out)  # before the minutes of measuring
    found: list[MeasuredRate] = []
    for rates in _rates(chosen, kind, seconds, pairs=pairs):
        found += rates
        if out is not None:
            merge_rates(out, [one.row for one in rates])
        for one in () if json else rates:
            announce(one.sentence)
    if json:
        print(msgspec.json.encode(found).decode())
    elif out is not None:
        announce(f"rates are in {out}")


def _rates(
    chosen: list[Configuration], kind: str, seconds: float, *, pairs: bool
) -> Iterator[list[MeasuredRate]]:
    """Measure one after the other. Nothing is faster beside another than alone, but for noise: a table with
    such a rate would be refused."""
    rate_alone: dict[Configuration, float] = {}
    for one in chosen:
        alone = measure(one.command, kind, one.devices, seconds)
        rate_alone[one] = alone.steps_per_s
        yield [
            MeasuredRate(
                family=one.family,
                scale_factor=one.devices,
                accelerator=kind,
                steps_per_s=alone.steps_per_s,
                stderr=alone.stderr,
            )
        ]
    single = [one for one in chosen if one.devices == 1]
    for first, second in combinations_with_replacement(single, 2) if pairs else ():
        rates = measure_pair((first.command, second.command), kind, 1, seconds)
        sides = ((first, second, rates[0]), (second, first, rates[1]))
        yield [
            MeasuredRate(
                family=one.family,
                scale_factor=1,
                accelerator=kind,
                steps_per_s=min(rate, rate_alone[one]),
                beside=other.family,
                capped=rate > rate_alone[one],
            )
            for one, other, rate in (sides if first != second else sides[:1])
        ]


def _configurations(
    names: Iterable[str], counts: list[int], *, all_sizes: bool, small: bool
) -> Iterator[Configuration]:
    for name in names:
        sizes = WORKLOADS[name].batch_sizes
        for size in sizes if all_sizes else sizes[:1]:
            for count in counts:
                yield Configuration(workload=name, batch_size=size, devices=count, small=small)


def _accelerator_here() -> str:
    try:
        return find_devices("").accelerator
    except ConfigError:
        raise ConfigError("--accelerator: NVML finds no devices here; name them") from None


def _names(text: str) -> list[str]:
    names = text.split(",") if text else list(WORKLOADS)
    for name in names:
        if name not in WORKLOADS:
            raise ConfigError(f"--only: expected some of {', '.join(WORKLOADS)}, got {name!r}")
    return list(dict.fromkeys(names))


def _counts(text: str) -> list[int]:
    counts = text.split(",")
    if any(not one.isdecimal() or not 1 <= int(one) <= 1024 for one in counts):
        raise ConfigError(f"--devices: expected numbers from 1 to 1024 as 1,2,4, got {text!r}")
    return list(dict.fromkeys(map(int, counts)))
