"""All commands of ``fairlead``, each imported when it is called."""

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer

import fairlead
from fairlead.cli.lazy_commands import LazyCommand, group_of
from fairlead.cli.option_errors import by_option
from fairlead.errors import FairleadError, FairleadWarning, InputError
from fairlead.model import jit

COMMANDS = (
    LazyCommand(
        "compare", "compare:compare", "Compare several policies on the same jobs and cluster."
    ),
    LazyCommand("simulate", "simulate:simulate", "Simulate a cluster under one policy."),
    LazyCommand("report", "report:report", "Write a page about runs or sweeps."),
    LazyCommand("figure", "figure:figure", "Write the figures of runs or sweeps as files."),
    LazyCommand("trace", "trace:app", "Describe, convert or generate a trace of jobs."),
    LazyCommand("policies", "policies:policies", "List the policies and what each optimises."),
    LazyCommand("solve", "solve:solve", "Solve allocation problems from a file."),
    LazyCommand(
        "solve-window",
        "solve_horizon:solve_window",
        "Solve Shockwave's window problems from a file.",
    ),
    LazyCommand("play", "play:play", "Play a trace on a live cluster."),
    LazyCommand("replay", "replay:replay", "Check a run's journal against a fresh scheduler."),
    LazyCommand(
        "up", "up:up", "Start a server and an agent for this machine, and run them until Ctrl-C."
    ),
    LazyCommand("serve", "serve:serve", "Run the scheduler of a live cluster."),
    LazyCommand(
        "agent", "agent:agent", "Hold the devices of this node and run the ranks of jobs on them."
    ),
    LazyCommand(
        "compile",
        "compile:compile_kernels",
        "Compile what is compiled once per installation, ahead of its first use.",
    ),
    LazyCommand(
        "chaos",
        "chaos:chaos",
        "Inject faults into a cluster at random, and prove that nothing is lost.",
    ),
    LazyCommand("measure", "measure:measure", "Measure a training script's rate and restart cost."),
    LazyCommand("profile", "profile:profile", "Measure the throughputs of the papers' workloads."),
    LazyCommand("sweep", "sweep:sweep", "Run policies against loads and seeds."),
    LazyCommand("reproduce", "reproduce:reproduce", "Reproduce published results."),
    LazyCommand("bench", "bench:app", "Measure how fast Fairlead is on this machine."),
    LazyCommand("login", "login:login", "Write down which server to use, and as whom."),
    LazyCommand("logout", "login:logout", "Forget the server and the token of the last login."),
    LazyCommand("submit", "submit:submit", "Submit jobs."),
    LazyCommand("status", "cluster:status", "Show the cluster in one screen."),
    LazyCommand("jobs", "jobs:jobs", "List jobs that have not ended."),
    LazyCommand("logs", "jobs:logs", "Print a job's output."),
    LazyCommand("search", "searches:search", "Search for good parameters of a job."),
    LazyCommand("searches", "searches:searches", "List searches and their best trials."),
    LazyCommand("search-status", "searches:search_status", "Show a search with its trials."),
    LazyCommand("metrics", "job_metrics:metrics", "Show what a job has reported of its training."),
    LazyCommand("explain", "jobs:explain", "Tell a job's story."),
    LazyCommand("cancel", "jobs:cancel", "End jobs for good."),
    LazyCommand("pause", "jobs:pause", "Take jobs off their devices until they are resumed."),
    LazyCommand("resume", "jobs:resume", "Let paused jobs run again."),
    LazyCommand(
        "set", "cluster:change", "Change a job's weight or the policy of the live cluster."
    ),
    LazyCommand("nodes", "cluster:nodes", "List the nodes and who holds their devices."),
    LazyCommand(
        "drain", "cluster:drain", "Start nothing more on nodes; their jobs move elsewhere."
    ),
    LazyCommand("undrain", "cluster:undrain", "Take drained or unhealthy nodes back into use."),
    LazyCommand(
        "remove-node",
        "cluster:remove_node",
        "Forget nodes that are drained, offline or lost and will not come back.",
    ),
    LazyCommand(
        "revoke-node",
        "cluster:revoke_node",
        "Refuse a node's token: its agent may hold nothing once its leases are over.",
    ),
    LazyCommand(
        "what-if", "cluster:what_if", "Ask when the jobs would end, as it is and with changes."
    ),
    LazyCommand("backup", "backup:backup", "Write the state of a live cluster to one file."),
    LazyCommand("restore", "backup:restore", "Begin a live cluster from a backup."),
    LazyCommand("check", "backup:check", "Check that the state of a live cluster is whole."),
    LazyCommand(
        "reload",
        "cluster:reload",
        "Have the server read its configuration file again.",
    ),
    LazyCommand(
        "accounting",
        "accounting:accounting",
        "Show device time and what it costs, by tenant, user, device type and period.",
    ),
    LazyCommand(
        "audit",
        "audit:audit",
        "Print the audit log: who changed what, when and from where, and who was refused.",
    ),
    LazyCommand("engine", "engine:engine", "Show the engine that starts nodes. For admins."),
    LazyCommand("user", "cluster:user", "Add, remove and list users. For admins."),
)

_NAMES = frozenset(one.name for one in COMMANDS)

# The error of arguments that cannot be parsed; Typer does not export it.
UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="fairlead",
    cls=group_of(COMMANDS),
    help="Schedule deep-learning jobs on clusters whose accelerators differ. Start with: "
    "fairlead compare",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
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
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            ended = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        raise SystemExit(ended if isinstance(ended, int) else 0)
    except UsageError as problem:
        _say_usage(problem, words)
        raise SystemExit(2) from None
    except typer.Abort:  # no answer to a question
        print("fairlead: given up", file=sys.stderr)
        raise SystemExit(1) from None
    except FairleadError as problem:
        is_input = isinstance(problem, InputError)
        said = by_option(str(problem), words) if is_input else str(problem)
        print(f"fairlead: {_harmless(said)}", file=sys.stderr)
        raise SystemExit(2 if is_input else 1) from None
    except BrokenPipeError:  # the reader of our output has gone, for example `| head`
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as problem:
        print(f"fairlead: {problem.filename or 'system'}: {problem.strerror}", file=sys.stderr)
        raise SystemExit(2) from None


def _harmless(sentence: str) -> str:
    """The sentence with blanks for control characters: it may quote what a server has sent."""
    return re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", sentence)


def _say_usage(problem: Any, words: Sequence[str]) -> None:
    """Print what cannot be parsed, in one sentence; or the help, where no command was given. words: the
    command line."""
    if type(problem).show is not UsageError.show:
        problem.show()
        return
    param = getattr(problem, "param", None)
    if param is not None and problem.message:
        name = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar
        said = f"{problem.message[:1].lower()}{problem.message[1:]}".rstrip(".")
        source = problem.ctx.get_parameter_source(param.name) if problem.ctx else None
        if source is not None and source.name == "ENVIRONMENT":
            name, said = param.envvar, f"{said}, got {os.environ.get(param.envvar, '')!r}"
        sentence = f"{name or param.name}: {said}"
    else:
        text = problem.format_message().strip()
        sentence = text[:1].lower() + text[1:]
    sentence, called = sentence.rstrip("."), _command_of(problem.ctx)
    meant = next((word for word in words if word in _NAMES), None)
    if called == "fairlead" and meant is not None:
        # options before the command's name belong to the group
        sentence += f"; options of {meant} come after its name"
        called += f" {meant}"
    print(f"fairlead: {sentence} ({called} --help)", file=sys.stderr)


def _command_of(context: Any) -> str:
    """The command that was called, with its group."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(["fairlead", *names])


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of Fairlead on one line, as its errors; any other with its place."""
    text = f"fairlead: {message}\n"
    if not issubclass(category, FairleadWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)
