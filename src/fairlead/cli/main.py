"""The ``fairlead`` command. Exit codes: 0 ok, 1 a check failed, 2 bad input or usage, 130 interrupted."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import fairlead
from fairlead.cli import bench, trace
from fairlead.cli.compare import compare
from fairlead.cli.policies import policies
from fairlead.cli.replay import replay
from fairlead.cli.simulate import simulate
from fairlead.cli.solve import solve
from fairlead.cli.window import solve_window
from fairlead.errors import FairleadError, InputError

app = typer.Typer(
    name="fairlead",
    help="Schedule deep-learning jobs on clusters whose accelerators differ. Start with: "
    "fairlead compare",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(compare)
app.command()(simulate)
app.add_typer(trace.app, name="trace")
app.command()(policies)
app.command()(solve)
app.command()(solve_window)
app.command()(replay)
app.add_typer(bench.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fairlead {fairlead.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error that Fairlead raises on purpose is one line on stderr."""
    try:
        app(args=None if arguments is None else list(arguments))
    except FairleadError as problem:
        print(f"fairlead: {problem}", file=sys.stderr)
        raise SystemExit(2 if isinstance(problem, InputError) else 1) from None
    except BrokenPipeError:  # the reader of our output has gone, for example `| head`
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as problem:
        print(f"fairlead: {problem.filename or 'system'}: {problem.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
