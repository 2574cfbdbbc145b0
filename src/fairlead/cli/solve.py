"""``fairlead solve``: allocation problems in, shares and certificates out."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.errors import ConfigError
from fairlead.model.limits import MAX_SEED

if TYPE_CHECKING:
    from fairlead.model.allocation import Allocation
    from fairlead.model.plan import Policy
    from fairlead.model.snapshot import Snapshot


def solve(
    instances: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Allocation problems, one JSON object per line (docs/policies.md), gzip or not.",
        ),
    ],
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="The policy; `fairlead policies` lists them.")
    ],
    throughputs: Annotated[
        str,
        typer.Option(
            metavar="FILE|builtin",
            help="Rates of each job family: Gavel's JSON, our CSV, or the built-in catalogue.",
        ),
    ] = "builtin",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of policies that draw.")] = 0,
    shares: Annotated[bool, typer.Option("--shares", help="Print the shares too.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per problem instead of tables.")
    ] = False,
) -> None:
    """Solve allocation problems from a file.

    Shows the objective, the largest violation of a constraint, and the proven gap.

    The gap is the distance between the objective and a bound that is computed from the problem itself,
    relative to the objective; 1e-9 means that no shares can be better by more than that.
    """
    from fairlead.simulator.traces.instances import read_instances
    from fairlead.simulator.traces.throughput_tables import read_throughputs

    chosen = _policy(policy, seed)
    problems = list(read_instances(instances, read_throughputs(throughputs)))
    answers = _answers(chosen, problems, shares)
    if json:
        for answer in answers:
            sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        _show(chosen.name, list(answers))


def _policy(spec: str, seed: int) -> "Policy":
    from fairlead.model.plan import Policy
    from fairlead.policies import registry
    from fairlead.scheduler.mechanism.settings import GAVEL

    made = registry.make(spec, seed=seed, profile=GAVEL.name)  # the form that has shares
    if not isinstance(made, Policy):
        raise ConfigError(f"policy {spec!r}: it plans rounds itself and has no shares to solve for")
    return made


def _answers(
    policy: "Policy", problems: Sequence[tuple[int, "Snapshot"]], shares: bool
) -> Iterator[dict[str, Any]]:
    from fairlead.analysis.report.progress_bar import progress
    from fairlead.model import jit
    from fairlead.scheduler.mechanism.checking import ask

    with progress(f"solving, {policy.name}", len(problems)) as update:
        for done, (k, snapshot) in enumerate(problems):
            begun, loading_s = time.perf_counter(), jit.loading_s
            allocation = ask(policy, snapshot)
            seconds = time.perf_counter() - begun - (jit.loading_s - loading_s)
            report = allocation.report
            answer: dict[str, Any] = {
                "k": k,
                "objective": report.objective,
                "violation": report.violation,
                "gap": report.gap,
                "seconds": seconds,
            }
            if report.unmet:
                answer["unmet"] = list(report.unmet)
            if shares:
                answer["shares"] = _shares(snapshot, allocation)
            yield answer
            update(done + 1)


def _shares(snapshot: "Snapshot", allocation: "Allocation") -> dict[str, dict[str, float]]:
    """{job group: {accelerator type: share}}, zeros left out; job groups as "7", or "(3, 7)" for a pair."""
    names = [slot.accelerator for slot in snapshot.slots]
    out: dict[str, dict[str, float]] = {}
    for group, row in zip(allocation.job_groups.tolist(), allocation.share.tolist(), strict=True):
        shares = {name: share for name, share in zip(names, row, strict=True) if share > 0}
        if shares:
            jobs = [job for job in group if job >= 0]
            out[str(jobs[0]) if len(jobs) == 1 else str(tuple(jobs))] = shares
    return out


def _show(policy: str, answers: Sequence[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table(
        title=f"{policy}: {len(answers)} problem{'' if len(answers) == 1 else 's'}",
        box=SIMPLE_HEAD,
        title_justify="left",
    )
    for name in ("k", "objective", "violation", "gap", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for answer in answers:
        cells = (_figure(answer[name]) for name in ("objective", "violation", "gap"))
        table.add_row(str(answer["k"]), *cells, f"{answer['seconds'] * 1e3:.2f}")
    console.print(table)
    for answer in answers:
        if "unmet" in answer:
            late = ", ".join(map(str, answer["unmet"]))
            console.print(f"{answer['k']}: deadlines that cannot be met: jobs {late}", markup=False)
        for job, shares in answer.get("shares", {}).items():
            text = "  ".join(f"{name} {share:.4f}" for name, share in shares.items())
            word = "jobs" if job.startswith("(") else "job"
            console.print(f"{answer['k']}: {word} {job}: {text}", markup=False)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
