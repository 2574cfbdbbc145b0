"""All commands of ``fairlead``, each imported when it is called."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import fairlead
from fairlead.cli.lazy_commands import Deferred, group_of
from fairlead.errors import FairleadError, InputError
from fairlead.model import jit

COMMANDS = (
    Deferred(
        "compare", "compare:compare", "Compare several policies on the same jobs and cluster."
    ),
    Deferred("simulate", "simulate:simulate", "Simulate a cluster under one policy."),
    Deferred("report", "report:report", "Write a page about runs or sweeps."),
    Deferred("figure", "figure:figure", "Write the figures of runs or sweeps as files."),
    Deferred("trace", "trace:app", "Describe, convert or generate a trace of jobs."),
    Deferred("policies", "policies:policies", "List the policies and what each optimises."),
    Deferred("solve", "solve:solve", "Solve allocation problems from a file."),
    Deferred(
        "solve-window",
        "solve_horizon:solve_window",
        "Solve Shockwave's window problems from a file.",
    ),
    Deferred("replay", "replay:replay", "Check a run's journal against a fresh scheduler."),
    Deferred(
        "up", "up:up", "Start a server and an agent for this machine, and run them until Ctrl-C."
    ),
    Deferred("serve", "serve:serve", "Run the scheduler of a live cluster."),
    Deferred(
        "agent", "agent:agent", "Hold the devices of this node and run the ranks of jobs on them."
    ),
    Deferred(
        "compile",
        "compile:compile_kernels",
        "Compile what is compiled once per installation, ahead of its first use.",
    ),
    Deferred("chaos", "chaos:chaos", "Hurt a cluster at random, and prove that nothing is lost."),
    Deferred("measure", "measure:measure", "Measure a training script's rate and restart cost."),
    Deferred("sweep", "sweep:sweep", "Run policies against loads and seeds."),
    Deferred("reproduce", "reproduce:reproduce", "Reproduce published results."),
    Deferred("bench", "bench:app", "Measure how fast Fairlead is on this machine."),
    Deferred("submit", "submit:submit", "Submit jobs."),
    Deferred("status", "cluster:status", "Show the cluster in one screen."),
    Deferred("jobs", "jobs:jobs", "List jobs that have not ended."),
    Deferred("logs", "jobs:logs", "Print a job's output."),
    Deferred("explain", "jobs:explain", "Tell a job's story."),
    Deferred("cancel", "jobs:cancel", "End jobs for good."),
    Deferred("pause", "jobs:pause", "Take jobs off their devices until they are resumed."),
    Deferred("resume", "jobs:resume", "Let paused jobs run again."),
    Deferred("set", "cluster:change", "Change a job's weight or the policy of the live cluster."),
    Deferred("nodes", "cluster:nodes", "List the nodes and who holds their devices."),
    Deferred("drain", "cluster:drain", "Start nothing more on a node; its jobs move elsewhere."),
    Deferred("undrain", "cluster:undrain", "Take a drained or unhealthy node back into use."),
    Deferred(
        "remove-node",
        "cluster:remove_node",
        "Forget nodes that are drained, offline or lost and will not come back.",
    ),
    Deferred(
        "what-if", "cluster:what_if", "Ask when the jobs would end, as it is and with changes."
    ),
    Deferred("backup", "backup:backup", "Write the state of a live cluster to one file."),
    Deferred("restore", "backup:restore", "Begin a live cluster from a backup."),
    Deferred("check", "backup:check", "Check that the state of a live cluster is whole."),
    Deferred("user", "cluster:user", "Add, remove and list users. For admins."),
)

app = typer.Typer(
    name="fairlead",
    cls=group_of(COMMANDS),
    help="Schedule deep-learning jobs on clusters whose accelerators differ. Start with: "
    "fairlead compare",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command; every error that Fairlead raises on purpose is one line on stderr."""
    jit.announce()
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
