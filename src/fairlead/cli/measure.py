"""fairlead measure: rates and restart costs of a training script, by running it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.options import JsonOption
from fairlead.cluster.agent.devices import find_devices
from fairlead.cluster.measure import ScriptTimings
from fairlead.cluster.measure import measure as measure_script
from fairlead.errors import ConfigError
from fairlead.model.option_text import parse_options
from fairlead.simulator.traces.merge_rates import merge_rates
from fairlead.simulator.traces.throughput_tables import read_throughputs

CommandArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="-- COMMAND", help="The script, as it would be submitted.", show_default=False
    ),
]
DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices",
        metavar="TYPE=N,...",
        help="Accelerator types to measure on, and how many devices (ranks) of each. A script that "
        "simulates its speed reads FAIRLEAD_ACCELERATOR. Default: one of the devices that are here (NVML).",
    ),
]
SecondsOption = Annotated[
    float,
    typer.Option("--seconds", min=1.0, help="Time to measure on each type, after the warm-up."),
]
StepsOption = Annotated[
    int | None, typer.Option("--steps", min=1, help="Steps to measure instead of a time.")
]
FamilyOption = Annotated[
    str | None,
    typer.Option("--family", help="Name in the throughput table. Default: that of the script."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Put the rates into this throughput table (CSV), which other commands take as --throughputs.",
    ),
]


def measure(
    command: CommandArgument,
    devices: DevicesOption = "",
    seconds: SecondsOption = 10.0,
    steps: StepsOption = None,
    family: FamilyOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a training script's rate and restart cost.

    Runs it on each accelerator type, stops it, and starts it again from its checkpoint.
    """
    devices_by_type = _devices(devices) if devices else {find_devices("").accelerator: 1}
    name = _family(command) if family is None else family
    if not name.strip():
        raise ConfigError("--family: must not be empty")
    if out is not None and out.exists():
        read_throughputs(out)  # before the minutes of measuring
    found = [
        measure_script(command, kind, count, seconds, steps)
        for kind, count in devices_by_type.items()
    ]
    if out is not None:
        merge_rates(out, [_row(name, one) for one in found])
    if json:
        rows = [asdict(one) | {"family": name, "restart_s": one.restart_s} for one in found]
        print(msgspec.json.encode(rows).decode())
        return
    _print(name, found)
    if out is not None:
        print(f"rates are in {out}")


def _print(family: str, found: list[ScriptTimings]) -> None:
    print(f"{family}")
    print(
        f"{'devices':>12}{'steps/s':>10}{'+-':>8}{'intervals':>11}{'save':>9}{'stop':>9}{'start':>9}"
        f"{'load':>9}{'warm-up':>9}{'restart_s':>11}"
    )
    for one in found:
        print(
            f"{f'{one.accelerator}={one.devices}':>12}{one.steps_per_s:10.3f}"
            f"{one.stderr / one.steps_per_s:8.2%}{one.intervals:11}{one.save_s:9.3f}{one.stop_s:9.3f}"
            f"{one.start_s:9.3f}{one.load_s:9.3f}{one.warm_s:9.3f}{one.restart_s:11.3f}"
        )


def _row(family: str, one: ScriptTimings) -> dict[str, str]:
    """A row of the throughput table (docs/formats.md)."""
    return {
        "family": family,
        "scale_factor": str(one.devices),
        "accelerator": one.accelerator,
        "locality": "consolidated",
        "steps_per_s": f"{one.steps_per_s:.6g}",
        "source": f"fairlead measure: +- {one.stderr:.2g} over {one.intervals} intervals",
    }


def _devices(text: str) -> dict[str, int]:
    expected = "TYPE=N,... with each type once"
    devices_by_type = parse_options(text, "--devices", expected=expected)
    if any(not count.isdecimal() or int(count) < 1 for count in devices_by_type.values()):
        raise ConfigError(f"--devices: expected {expected}, got {text!r}")
    return {kind: int(count) for kind, count in devices_by_type.items()}


def _family(command: list[str]) -> str:
    """The name of the first file of a script in the command, without its suffix."""
    scripts = [Path(word).stem for word in command if word.endswith(".py")]
    return scripts[0] if scripts else Path(command[0]).name
