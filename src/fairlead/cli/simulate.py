"""``fairlead simulate``: one policy on one trace."""

import hashlib
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli import options as o
from fairlead.cli import simulate_pollux
from fairlead.errors import ConfigError, FairleadError, InputError, ResumeError, RunError
from fairlead.simulator.simulation_input import PluginNames, SimulationInput

if TYPE_CHECKING:
    from fairlead.simulator.plugins import Plugins
    from fairlead.simulator.recording.metrics import Result
    from fairlead.simulator.simulation_run import SimulationRun

PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME[:ARG]",
        help="A policy of 'fairlead policies'; recorded:LOG plays allocations from a file.",
    ),
]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="default|gavel|shockwave|pollux",
        help="How shares become rounds: as Fairlead recommends, or as in Gavel's or Shockwave's release; or "
        "pollux: elastic jobs in the world of Pollux's release (docs/elastic.md).",
    ),
]


@o.takes_input
def simulate(
    given: SimulationInput,
    policy: PolicyOption = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE|default|released",
            help="Options of --policy shockwave: a TOML file, or a JSON file of the release.",
        ),
    ] = None,
    profile: ProfileOption = "default",
    expect_rounds: Annotated[
        Path | None,
        typer.Option(
            "--expect-rounds",
            metavar="LOG",
            help="Exit with 1 at the first round that differs from those recorded in this file.",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            metavar="NAME",
            help="The rule that chooses devices, in place of the profile's: fewest_servers, by_device_id, or "
            "an entry point in the group fairlead.placement.",
        ),
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            "--admission",
            metavar="NAME",
            help="The rule that lets arrivals in: an entry point in the group fairlead.admission.",
        ),
    ] = None,
    observers: Annotated[
        list[str] | None,
        typer.Option(
            "--observer",
            metavar="NAME",
            help="An observer of the run: an entry point in the group fairlead.observers. Repeatable.",
        ),
    ] = None,
    out: o.OutOption = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Go on with an interrupted run."),
    ] = None,
    json: o.JsonOption = False,
) -> None:
    """Simulate a cluster under one policy.

    Writes a folder: run.json (configuration and metrics), jobs, rounds and placement intervals as
    Parquet, the journal, and report.html.
    """
    if resume is not None:
        other_options = (policy, config, expect_rounds, placement, admission, observers, out)
        if any(one is not None for one in other_options) or given != SimulationInput():
            raise ConfigError(
                "--resume goes on as the run began: it takes no other option but --json"
            )
        _resume(resume, json)
        return
    if policy is None:
        raise ConfigError("give a policy: --policy NAME ('fairlead policies' lists them)")
    if config is not None:
        policy = _configured(policy, config)
    if profile == simulate_pollux.PROFILE:
        for option, value in {
            "--expect-rounds": expect_rounds,
            "--placement": placement,
            "--admission": admission,
            "--observer": observers,
        }.items():
            if value is not None:
                raise ConfigError(f"{option}: --profile {profile} does not have it")
        simulate_pollux.simulate_pollux(given, policy, out, json=json)
        return
    from fairlead.simulator.plugins import find_plugins

    names = PluginNames(placement=placement, admission=admission, observers=tuple(observers or ()))
    plugins = find_plugins(names)
    run = given.prepare(policy, profile)
    if given.round_s == "auto":
        print(f"fairlead: --round auto: rounds of {run.profile.round_s:g} s", file=sys.stderr)
    name = f"{Path(run.jobs.name).stem}-{policy.partition(':')[0]}-{profile}"
    folder = o.new_folder(out, name)
    arguments = run_arguments(given, policy, profile, expect_rounds) | {"plugins": asdict(names)}
    execute(run, folder, arguments, json=json, expect=expect_rounds, plugins=plugins)


def _configured(policy: str, config: str) -> str:
    """The policy with its configuration after the colon."""
    if policy != "shockwave":
        raise ConfigError(f"--config is for --policy shockwave, got --policy {policy}")
    return f"{policy}:{config}"


def run_arguments(
    given: SimulationInput, policy: str, profile: str, expect: Path | None = None
) -> dict[str, Any]:
    """Return the record that ``--resume`` needs: the options, and a digest of each file that they name.
    The files that a policy is made of are among these where it is not a built-in one."""
    from fairlead.policies.registry import code_files

    name, _, argument = policy.partition(":")
    files = [given.trace, given.throughputs, given.cluster, argument or None, expect]
    digest = {}
    for text in files:
        if text is not None and Path(text).is_file():
            digest[str(Path(text).resolve())] = _digest(Path(text))

    def absolute(text: str | None) -> str | None:
        known = text is not None and str(Path(text).resolve()) in digest
        return str(Path(text).resolve()) if known and text is not None else text

    options = asdict(given)
    for option in ("trace", "throughputs", "cluster"):
        options[option] = absolute(options[option])
    return {
        "input": options,
        "policy": f"{name}:{absolute(argument)}" if argument else policy,
        "profile": profile,
        "expect_rounds": absolute(None if expect is None else str(expect)),
        "files": digest,
        "code": {str(path.resolve()): _digest(path) for path in code_files(policy)},
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _changed(digests: dict[str, str]) -> str | None:
    """The first file that is not as it was when its digest was made; None = there is none."""
    for name, digest in digests.items():
        if not Path(name).is_file() or _digest(Path(name)) != digest:
            return name
    return None


def execute(
    run: "SimulationRun",
    folder: Path,
    arguments: dict[str, Any],
    *,
    json: bool,
    expect: Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    plugins: "Plugins | None" = None,
    resume_command: str = "",
) -> "Result":
    """Run into a folder, write everything, print the outcome. Interrupted: says how to go on, with the
    command ``resume_command`` (that of the run alone where none is given)."""
    from fairlead.analysis.experiments.divergence import DivergenceDetector
    from fairlead.analysis.report import progress_bar as progress
    from fairlead.analysis.report import terminal_tables as tables
    from fairlead.analysis.report.run_folder import (
        begin_record,
        restore_record,
        write_json,
        write_result,
    )
    from fairlead.simulator.plugins import Plugins

    plugins = plugins or Plugins()
    run = replace(run, placement=plugins.placement)
    before = (folder / "run.json").read_bytes() if resume else b""
    record = begin_record(folder, run.config(), arguments)
    total = run.n_measured
    window = run.options.measured_jobs
    resume_command = resume_command or f"fairlead simulate --resume {shlex.quote(str(folder))}"
    divergence = DivergenceDetector(int(run.cluster.capacity.sum()), window[1] if window else 0)
    try:
        with (
            o.interruptible() as stop,
            progress.progress(f"{run.policy} ({run.profile.name})", total) as update,
        ):
            result = run.execute(
                folder,
                expect,
                resume,
                stop,
                update,
                observers=[divergence, *plugins.observers],
                admission=plugins.admission,
            )
    except (InputError, ResumeError):
        if resume:
            restore_record(folder, before)
        else:  # nothing half-written is left behind
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        raise
    except FairleadError as problem:
        write_json(folder / "run.json", record | {"status": "failed", "error": str(problem)})
        raise
    except KeyboardInterrupt:
        write_json(folder / "run.json", record | {"status": "interrupted"})
        _print_resume_command(folder, resume_command)
        raise typer.Exit(130) from None
    if not quiet:
        report_skipped(result)
        report_unfinished(result, divergence.reason)
    result.config["command"] = shlex.join(["fairlead", *sys.argv[1:]])
    write_result(folder, record, result)
    if not result.complete:
        _print_resume_command(folder, resume_command)
        raise typer.Exit(130)
    if quiet:
        return result
    if json:
        o.print_json(json_of(result, folder))
    else:
        tables.show(tables.summary_table(result.config, result.metrics))
        print(f"Report: {folder / 'report.html'}")
    return result


def report_skipped(result: "Result") -> None:
    """Print what of the input could not be used, on stderr."""
    for line in result.skipped:
        print(f"fairlead: {line}", file=sys.stderr)


def report_unfinished(result: "Result", overload: str) -> None:
    """Print over how many jobs the averages are, where some have not ended, on stderr. overload: a
    sentence."""
    for line in (overload, *result.partial):
        if line and line not in result.skipped:
            print(f"fairlead: {line}", file=sys.stderr)


def json_of(result: "Result", folder: Path) -> dict[str, Any]:
    """The content of ``--json``: configuration, metrics, JCT and rho of every job (null = not completed)."""
    import polars as pl

    from fairlead.analysis.report.fairness import metrics_for_json, rho_of_jobs

    jct = dict(result.jobs.select(pl.col("job").cast(pl.String), "jct_s").iter_rows())
    rho = rho_of_jobs(result.metrics, result.jobs)
    return {
        "config": result.config,
        **metrics_for_json(result.metrics),
        "jct_s": jct,
        **({"rho": rho} if rho else {}),
        "out": str(folder),
    }


def _print_resume_command(folder: Path, command: str) -> None:
    print(
        f"fairlead: interrupted; the journal is saved in {folder}. Go on with: {command}",
        file=sys.stderr,
    )


class RunArguments(msgspec.Struct):
    """The content of ``run_arguments``, as ``run.json`` has it."""

    input: SimulationInput
    policy: str
    profile: str
    expect_rounds: str | None
    files: dict[str, str]  # SHA-256 by path
    plugins: PluginNames = PluginNames()
    code: dict[str, str] = {}  # the same of the files that a policy of the user's is made of

    @property
    def changed_code(self) -> str | None:
        """The first file of the policy that has changed since; None = there is none."""
        return _changed(self.code)

    def run(self, folder: Path) -> "SimulationRun":
        """The run that was begun in the folder. Raises RunError where a file of it has changed since."""
        if (name := _changed(self.files)) is not None:
            raise RunError(_has_changed(name, folder))
        return self.input.prepare(self.policy, self.profile)


def _has_changed(name: str, folder: Path) -> str:
    return f"{name}: has changed since the run in {folder} began, it cannot go on"


class _ResumedRun(msgspec.Struct):
    """The fields of ``run.json`` that a run goes on from."""

    arguments: RunArguments
    status: str


def _resume(folder: Path, json: bool) -> None:
    from fairlead.simulator.plugins import find_plugins

    path = folder / "run.json"
    try:
        resumed = msgspec.convert(o.read_json(path), _ResumedRun)
    except msgspec.ValidationError as problem:
        raise RunError(f"{path}: not a run that can go on ({problem})") from None
    if resumed.status == "complete":
        raise RunError(f"{folder}: this run is complete, there is nothing to go on with")
    arguments = resumed.arguments
    if (name := arguments.changed_code) is not None:
        raise RunError(_has_changed(name, folder))
    run = arguments.run(folder)
    rounds = None if arguments.expect_rounds is None else Path(arguments.expect_rounds)
    again = msgspec.to_builtins(arguments)
    plugins = find_plugins(arguments.plugins)
    execute(run, folder, again, json=json, expect=rounds, resume=True, plugins=plugins)
