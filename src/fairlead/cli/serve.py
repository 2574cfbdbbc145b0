"""``fairlead serve``."""

import asyncio
import socket
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from fairlead.cli.announcements import announce
from fairlead.cli.inside_job import InsideJob
from fairlead.cli.option_records import takes_records
from fairlead.cli.round_option import LiveRoundOption
from fairlead.cli.server_config import ConfigOption, ServerConfig
from fairlead.errors import ConfigError
from fairlead.model.argument_checks import check_both_or_none
from fairlead.model.limits import MAX_SEED

if TYPE_CHECKING:
    from fairlead.cluster.autoscaling.engine_config import EngineConfig
    from fairlead.cluster.server.options import LiveOptions
    from fairlead.cluster.server.runtime_options import RereadOptions
    from fairlead.cluster.server.server import Listening, Server


@dataclass(frozen=True, kw_only=True)
class SchedulingOptions:
    """The options of scheduling: cluster, policy, profile, round and rates."""

    cluster: Annotated[
        Path | None,
        typer.Option(help="TOML file of the nodes; without it every agent that registers is one."),
    ] = None
    policy: Annotated[str, typer.Option(help="See `fairlead policies`.")] = ""
    profile: Annotated[str, typer.Option(help="default, gavel or shockwave.")] = "default"
    round_s: LiveRoundOption = None
    throughputs: Annotated[str, typer.Option(help="Table of rates: a file, or `builtin`.")] = (
        "builtin"
    )


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Addresses on which the server listens."""

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="For people and tools (HTTP); 0 = any.")] = 8470
    agent_port: Annotated[int, typer.Option(help="For agents (gRPC); 0 = any.")] = 8471
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate, for both ports.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="PEM key, for both ports.")] = None
    users: Annotated[
        str,
        typer.Option(
            metavar="USER=TENANT,...",
            help="Add those of these users that there are not yet, and write the token of each to "
            "USER.token in --state.",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class TimingOptions:
    """Times that the server keeps, and what it believes."""

    lease: Annotated[float, typer.Option(help="Seconds of a lease.")] = 30.0
    heartbeat: Annotated[
        float,
        typer.Option(help="Seconds between reports of an agent; longer with very many nodes."),
    ] = 2.0
    solve_limit: Annotated[float, typer.Option(help="Seconds that a solve may take.")] = 60.0
    mtbf_hours: Annotated[
        float,
        typer.Option(
            metavar="HOURS",
            help="Mean time between failures of a node: decides how often jobs save.",
        ),
    ] = 24.0
    restart_cost: Annotated[
        float,
        typer.Option(
            help="Seconds that a start costs, until it is measured; 0 = a guess by round."
        ),
    ] = 0.0
    no_early_round_end: Annotated[
        bool,
        typer.Option(
            "--no-early-round-end",
            help="Let every round run to its end, as `fairlead simulate` always does. Default: a round of "
            "which a 36th has passed ends as soon as devices are free and jobs wait for them.",
        ),
    ] = False
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the checkpoints of new jobs, the same on all nodes; jobs submitted before "
            "keep theirs. Default: the one it had, at first checkpoints below --state."
        ),
    ] = None
    estimator: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Where believed rates come from: oracle (the catalogue, and what jobs bring along; "
            "default), fairlead (also what was measured) or gavel, then options, as in `fairlead "
            "simulate`.",
        ),
    ] = "oracle"


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limits on jobs that each tenant may submit, and on changes of them."""

    tenant_jobs: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Jobs that a tenant may have which have not ended; 0 = as many as it likes.",
        ),
    ] = 10_000
    tenant_jobs_per_minute: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Jobs that a tenant may submit in a minute, or at once; 0 = as many as it likes.",
        ),
    ] = 2_000
    tenant_bytes_per_minute: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Bytes of descriptions (command, env and so on; of each task of an array) that a tenant may "
            "submit in a minute, or at once; 0 = as many as it likes.",
        ),
    ] = 10_000_000
    tenant_output_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Bytes of output that are kept of all jobs of a tenant; that of its oldest jobs that have "
            "ended goes first; 0 = as many as there are.",
        ),
    ] = 20_000_000_000
    tenant_grace: Annotated[
        float,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="The longest --grace of a tenant's job: so long it may keep its devices from others once it "
            "is told to end; 0 = a day.",
        ),
    ] = 3_600.0
    user_changes_per_minute: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Changes (weights, pauses, cancels and so on) that a user may ask for in a minute, or at "
            "once; 0 = as many as they like.",
        ),
    ] = 1_200


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The options of prices, the server's log and its audit log, and how long ended jobs are kept."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="What the server writes to its log (stderr)."),
    ] = "warning"

    prices: Annotated[
        str,
        typer.Option(
            metavar="TYPE=DOLLARS,...",
            help="Dollars per device-hour, by accelerator type: for `fairlead accounting`, and for policies "
            "that weigh costs. Over those of --cluster.",
        ),
    ] = ""
    keep_ended_jobs: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="DAYS",
            help="Remove jobs that ended so long ago, with their attempts and output; accounting keeps sums. "
            "0 = keep them for ever.",
        ),
    ] = 0.0
    keep_logs: Annotated[
        float,
        typer.Option(min=0, metavar="DAYS", help="Likewise their output; 0 = as long as the jobs."),
    ] = 0.0
    keep_checkpoints: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="DAYS",
            help="Likewise their checkpoints, of jobs that name no directory of their own; 0 = keep them for "
            "ever.",
        ),
    ] = 0.0
    audit_size: Annotated[
        int,
        typer.Option(
            min=1,
            max=1 << 20,
            metavar="MB",
            help="Size of a file of the audit log, after which the next is begun.",
        ),
    ] = 64
    audit_files: Annotated[
        int, typer.Option(min=2, max=10_000, metavar="N", help="Files of it that are kept.")
    ] = 16


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """Who is told of what becomes of jobs."""

    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where notices of jobs are posted that end, fail or are late."
        ),
    ] = None
    webhook_secret: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --webhook: what the notices are signed with (HMAC-SHA256)."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Who starts the nodes."""

    engine: Annotated[
        str | None,
        typer.Option(
            metavar="local|slurm|ray|command",
            help="What starts nodes when jobs want them, and ends them when none does. Default: agents are "
            "started by hand.",
        ),
    ] = None
    engine_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --engine: TOML file of the nodes that it may start."
        ),
    ] = None


@takes_records
def serve(
    context: typer.Context,
    state: Annotated[Path, typer.Option(help="Directory of the cluster's state; made if absent.")],
    scheduling: SchedulingOptions,
    listen: ListenOptions,
    timing: TimingOptions,
    limits: LimitOptions,
    record: RecordOptions,
    notices: WebhookOptions,
    nodes: EngineOptions,
    ignore_witness: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE",
            help="Not to heed this node where it knows of a later state than DIR has; may be repeated.",
        ),
    ] = None,
    new_tokens: Annotated[
        bool, typer.Option("--new-tokens", help="New tokens for the users admin and agent.")
    ] = False,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="/metrics without a token.")
    ] = False,
    compile_in_background: Annotated[
        bool,
        typer.Option(
            "--compile-in-background",
            help="Listen at once after an installation, and run kernels as Python until they are compiled: "
            "for a few devices and jobs.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of policies that draw lots.")] = 0,
    config: ConfigOption = None,
    inside_job: InsideJob = False,
    ready_fd: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="File descriptor on which to write one line of JSON (url, agents, state) once it listens.",
        ),
    ] = None,
) -> None:
    """Run the scheduler of a live cluster until SIGTERM. Started again on the same directory, it goes on
    where it was, however it ended; running jobs do not notice.

    Without --policy it goes on with the policy it had, at first las_aware. The first
    start writes the token of user `admin` to DIR/admin.token, and one for agents to DIR/agent.token.
    """
    from fairlead.cluster.agent.inside_job import check_outside_jobs
    from fairlead.cluster.readiness import check_ready_fd
    from fairlead.cluster.server.kernel_compiler import compile_in_child, compiled_in_background
    from fairlead.cluster.server.options import tls_of
    from fairlead.cluster.server.server import Listening
    from fairlead.cluster.server.server import serve as run
    from fairlead.cluster.server.user_accounts import read_users
    from fairlead.cluster.store.audit_log import AuditLimits
    from fairlead.cluster.store.store import check_unused
    from fairlead.model import jit

    file = cast(ServerConfig | None, context.obj) if config is not None else None
    records = (scheduling, timing, limits, record, notices, nodes)
    given = {name: value for one in records for name, value in vars(one).items()}
    given |= {"seed": seed, "ignore_witness": ignore_witness}
    with nullcontext() if file is None else file.naming_fields():
        options = _options(given)
        for name, number in (("port", listen.port), ("agent-port", listen.agent_port)):
            if not 0 <= number <= 65535:
                raise ConfigError(f"--{name}: must be from 0 to 65535, got {number}")
        tls = tls_of(listen.tls_cert, listen.tls_key)
        _check_host(listen.host)
        users = read_users(listen.users)
    listening = Listening(
        host=listen.host,
        http_port=listen.port,
        agent_port=listen.agent_port,
        tls=tls,
        open_metrics=open_metrics,
        new_tokens=new_tokens,
        users=users,
        audit=AuditLimits(file_bytes=record.audit_size << 20, files=record.audit_files),
    )
    if options.engine is not None:
        options.engine.check(listening.host)
    if ready_fd is not None:
        check_ready_fd(ready_fd)
    check_outside_jobs("serve", inside_job)

    def check_free() -> None:
        _check_ports(listening)
        check_unused(state)

    def before_compilation() -> None:
        check_free()
        if jit.needs_compilation():  # else nothing can be kept, and it is so at each start
            _say("compiling kernels, once after an installation: this takes minutes")

    ready = partial(_ready, ready_fd=ready_fd)
    reread = None if file is None else Rereader(file)
    kernels = jit.modules_with_kernels()
    if not compile_in_background:
        compile_in_child(kernels, before_compilation)  # no solve and no round shall wait for it
    with compiled_in_background(kernels, check_free) if compile_in_background else nullcontext():
        asyncio.run(run(state, options, listening, ready, partial(_say, "starting"), reread))


def _options(given: Mapping[str, Any]) -> "LiveOptions":
    """The options of the server. given: values by the names of the command's parameters."""
    from fairlead.cluster.server.options import check_prices, live_options
    from fairlead.cluster.server.runtime_options import RuntimeOptions
    from fairlead.cluster.server.webhook import read_webhook

    cluster, checkpoints = given["cluster"], given["checkpoints"]
    secret = given["webhook_secret"]
    return live_options(
        cluster=None if cluster is None else Path(cluster),
        policy=given["policy"],
        profile=given["profile"],
        round_s=given["round_s"],
        throughputs=given["throughputs"],
        seed=given["seed"],
        lease_s=given["lease"],
        heartbeat_s=given["heartbeat"],
        solve_limit_s=given["solve_limit"],
        mtbf_h=given["mtbf_hours"],
        restart_s=given["restart_cost"],
        early_round_end=not given["no_early_round_end"],
        checkpoints=None if checkpoints is None else Path(checkpoints),
        estimator=given["estimator"],
        ignored_witnesses=given["ignore_witness"] or (),
        runtime=RuntimeOptions(
            tenant_jobs=given["tenant_jobs"],
            tenant_jobs_per_minute=given["tenant_jobs_per_minute"],
            tenant_bytes_per_minute=given["tenant_bytes_per_minute"],
            tenant_output_bytes=given["tenant_output_bytes"],
            tenant_grace=given["tenant_grace"],
            user_changes_per_minute=given["user_changes_per_minute"],
            prices=check_prices(given["prices"]),
            log_level=given["log_level"],
            keep_ended_jobs=given["keep_ended_jobs"],
            keep_logs=given["keep_logs"],
            keep_checkpoints=given["keep_checkpoints"],
        ),
        webhook=read_webhook(given["webhook"], None if secret is None else Path(secret)),
        engine=_engine(given["engine"], given["engine_config"]),
    )


def _engine(name: str | None, path: Path | str | None) -> "EngineConfig | None":
    """The engine of the options; None = there is none. Raises ConfigError."""
    from fairlead.cluster.autoscaling.engine_config import ENGINES, read_engine_config

    check_both_or_none({"--engine": name, "--engine-config": path})
    if name is None or path is None:
        return None
    if name not in ENGINES:
        raise ConfigError(f"--engine: must be one of {', '.join(ENGINES)}, got {name!r}")
    return read_engine_config(Path(path), name)


class Rereader:
    """Reads the configuration file of a running server again."""

    def __init__(self, file: ServerConfig) -> None:
        self._file = file
        self._at_start = file.values()

    def __call__(self) -> "RereadOptions":
        """Return the options that the file gives now, all checked as at a start. Raises InputError."""
        from fairlead.cluster.server.runtime_options import RUNTIME_NAMES, RereadOptions
        from fairlead.cluster.server.user_accounts import read_users

        values = self._file.values()
        with self._file.naming_fields():
            options = _options(values)
            read_users(values["users"])
        others = {
            name: value
            for name, value in values.items()
            if name not in RUNTIME_NAMES and value != self._at_start[name]
        }
        return RereadOptions(
            runtime=options.runtime, needs_restart=tuple(self._file.field_names(others))
        )


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _check_host(host: str) -> None:
    """Raises ConfigError for a host that is not known here."""
    try:
        socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        why = getattr(problem, "strerror", None) or "no name of a host"
        raise ConfigError(f"--host: {host!r} cannot be listened on ({why})") from None


def _check_ports(listening: "Listening") -> None:
    """Raises ConfigError where another process has one of the ports. Not at each start: the front of a server
    that was killed may have them for a moment longer."""
    for port in filter(None, (listening.http_port, listening.agent_port)):
        try:
            family, _, _, _, address = socket.getaddrinfo(
                listening.host, port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
                tried.listen()
        except OSError as problem:
            where = f"[{listening.host}]" if ":" in listening.host else listening.host
            raise ConfigError(f"{where}:{port}: cannot listen there ({problem.strerror})") from None


def _ready(server: "Server", ready_fd: int | None) -> None:
    """Say where it listens: to people, and to whoever started it."""
    from fairlead.cli.token_files import write_token
    from fairlead.cluster.readiness import ReadyServer, report_ready

    for name, token in server.new_tokens.items():
        path = server.directory / f"{name}.token"
        write_token(path, token)
        announce(f"token of user {name}: {path}")
    announce(f"people and tools: {server.url}")
    announce(f"agents: {server.agent_address}")
    if ready_fd is not None:
        ready = ReadyServer(
            url=server.url, agents=server.agent_address, state=str(server.directory)
        )
        report_ready(ready_fd, ready)
