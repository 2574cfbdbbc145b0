"""The screen of ``fairlead up --demo``: a live table, and a report at the end."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.text import Text

from fairlead.cli.terminal_views import (
    console,
    show,
    table,
    where,
)
from fairlead.cluster.demo.run import PARTS, DemoSummary
from fairlead.cluster.protocol.api_models import JobView, StatusView
from fairlead.model.duration_text import DASH, duration

_BAR = 20  # cells of a full bar
_LINE_S = 5.0  # between two lines where the output is no terminal


class Screen(AbstractContextManager["Screen"]):
    """A live table on a terminal; elsewhere a line every ``_LINE_S``."""

    def __init__(self) -> None:
        self._console = console()
        self._stack = ExitStack()
        self._live: Live | None = None
        self._printed_s = 0.0

    def __enter__(self) -> "Screen":
        if self._console.is_terminal:
            self._live = self._stack.enter_context(
                Live(console=self._console, auto_refresh=False, transient=True)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()

    def watch(self, status: StatusView, jobs: list[JobView]) -> None:
        """Show the state of the cluster and its jobs."""
        if self._live is not None:
            self._live.update(_now(status, jobs), refresh=True)
        elif status.now_s >= self._printed_s:
            self._printed_s = status.now_s + _LINE_S
            print(_line(status, jobs), flush=True)


def _now(status: StatusView, jobs: list[JobView]) -> Group:
    rows = [
        (job.id, job.name, job.tenant, job.state, where(job), _bar(job), job.starts) for job in jobs
    ]
    return Group(
        Text(f"round {status.round}, ends in {duration(status.round_ends_in_s)} | {status.policy}"),
        table(">job name tenant state where progress >starts", rows),
    )


def _bar(job: JobView) -> str:
    done = job.steps / job.total_steps
    full = int(done * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {done:4.0%}"


def _line(status: StatusView, jobs: list[JobView]) -> str:
    line = " ".join(
        f"{job.id}:{_placement_of(job)}{job.steps / job.total_steps:.0%}" for job in jobs
    )
    return f"round {status.round:3} | {line}"


def _placement_of(job: JobView) -> str:
    return f"{job.accelerator}@" if job.node else ""


def report(summary: DemoSummary) -> None:
    """Print what jobs and tenants have received, and what it cost."""
    show(
        Text(f"\n{len(summary.jobs)} jobs in {duration(summary.seconds)}:"),
        table(
            ">job name tenant state >JCT_s >device_s >starts >preempted >overhead_s >lost_steps >rho",
            [_job(job) for job in summary.jobs],
        ),
        table(
            "tenant >promised >received >lost_device_s >mean_rho",
            [
                (
                    one.name,
                    f"{summary.promised.get(one.name, 0.0):.1%}",
                    f"{one.share_received:.1%}",
                    f"{one.lost_device_s:.2f}",
                    _number(one.mean_rho),
                )
                for one in summary.tenants
            ],
        ),
        *map(Text, _costs(summary)),
    )


def _job(job: JobView) -> tuple[object, ...]:
    jct_s = None if job.ended_s is None else job.ended_s - job.submitted_s
    return (
        job.id,
        job.name,
        job.tenant,
        job.state,
        _number(jct_s, 1),
        f"{job.run_s * job.scale_factor:.1f}",
        job.starts,
        job.preemptions,
        f"{job.overhead_s:.2f}",
        f"{job.lost_steps:g}",
        _number(job.rho),
    )


def _number(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


_NAMES = {"wait_s": "handover"}  # of parts with another name than their field


def _costs(summary: DemoSummary) -> list[str]:
    mean: Callable[[str], float | None] = lambda part: summary.mean_s(  # noqa: E731
        part, summary.preempted if part in ("save_s", "stop_s") else summary.attempts
    )
    parts = ", ".join(
        f"{_NAMES.get(part, part.removesuffix('_s'))} {seconds * 1e3:.0f} ms"
        for part in PARTS
        if (seconds := mean(part)) is not None
    )
    lost = sum(job.lost_steps for job in summary.jobs)
    return [
        f"{len(summary.preempted)} preemptions and moves; on average: {parts}",
        f"work lost, to be done again: {lost:g} steps",
        "rho is finish-time fairness: JCT over the JCT alone on a 1/n part of the cluster",
    ]
