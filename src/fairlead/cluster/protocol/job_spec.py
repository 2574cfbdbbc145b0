"""The specification of a job, which a person submits as a TOML file or as JSON."""

from typing import Literal

import msgspec

from fairlead.cluster.protocol.runtime import Runtime

SPEEDUP_POWER = 0.9  # of the ratio of numbers of devices, where no speedup is stated


class JobSpec(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    gc=False,
    omit_defaults=True,
):
    """A job for the live cluster. ``read_spec`` and ``check_spec`` say what is wrong with one."""

    command: tuple[str, ...]
    total_steps: (
        int  # of an unmanaged job that tells of none: seconds of work on a device of rate 1
    )
    family: str = (
        ""  # key of the throughput table; "" = its rates are given below, or equal everywhere
    )
    name: str = ""
    scale_factor: int = 1  # devices; one rank each
    devices: tuple[int, ...] = ()  # scale factors that an elastic job may have, ascending
    speedups: dict[str, float] = {}  # of these: the speed, over that on ``scale_factor`` devices
    weight: float = 1.0
    slo_s: float | None = None  # seconds from submission to deadline
    rates: dict[
        str, float
    ] = {}  # accelerator type -> steps/s, for a family without a row in the table
    colocated_fraction: float | None = (
        None  # of its rate that it keeps beside another job on its devices; None = not known
    )
    colocated_fractions: dict[str, float] = {}  # the same beside jobs of this family, or name
    unmanaged: bool = (
        False  # no iterator in it: progress as it says, or by time; stopped by SIGTERM
    )
    keeps_progress: bool = (
        False  # an unmanaged job that goes on where it was stopped, by its own means
    )
    progress_url: str = ""  # where it answers how far it is, http on 127.0.0.1; {port} = a free one
    env: dict[str, str] = {}
    python: str = ""  # path of the interpreter on the node; at most one of this and the next three
    venv: str = ""  # directory of a virtual environment there
    conda: str = ""  # name or prefix of a conda environment there
    container: tuple[str, ...] = ()  # command of a container engine: podman run {options} IMAGE
    cwd: str = ""  # "" = where it was submitted from
    checkpoint_dir: str = ""  # "" = chosen by the agent
    grace_s: float = 30.0
    finish_grace_s: float | None = None  # the same once all steps are done; None = grace_s
    prefork: bool | Literal["auto"] = (
        False  # from the agent's prepared process; auto: by its imports
    )
    park: bool | Literal["stop"] = (
        True  # is its process kept in the memory of its node when it is preempted? stop: also without the
        # iterator, stopped as it is
    )
    standby: bool = False  # when it moves, may its code up to the loop run while it still trains?
    log_bytes: int = 10_000_000
    max_retries: int = 5  # failures in a row after which it is tried again
    retry_on: tuple[int, ...] = ()  # exit codes after which it is; () = all; 128 + n for signal n
    no_retry_on: tuple[int, ...] = ()  # exit codes after which it is not
    start_timeout_s: float | None = None  # to the first step; None = by what is usual, 0 = none
    stall_timeout_s: float | None = None  # without a step; the same
    on_stall: Literal["restart", "report"] = "restart"
    after: tuple[str, ...] = ()  # jobs that it waits for: "ok:12", "any:12" (``dependencies``)
    array: str = ""  # one job for each of these indices: "0-99%10" (``arrays``)

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """Return the numbers of devices that it may have, ascending."""
        return self.devices or (self.scale_factor,)

    def speedup(self, scale_factor: int) -> float:
        """Return the speed on so many devices over that on those of its rates, as its owner states it; else
        the 0.9th power of the ratio of the numbers."""
        stated = self.speedups.get(str(scale_factor))
        if stated is not None:
            return stated
        return float((scale_factor / self.scale_factor) ** SPEEDUP_POWER)

    @property
    def starts_over(self) -> bool:
        """Return whether each attempt starts from zero."""
        return self.unmanaged and not self.keeps_progress

    @property
    def is_suspended(self) -> bool:
        """Whether its program, which has no iterator, is stopped as it is when it is preempted."""
        return self.unmanaged and self.park == "stop"

    @property
    def longest_grace_s(self) -> float:
        """So long after an order to stop something of it may still run."""
        return max(self.grace_s, self.finish_grace_s or 0.0)

    @property
    def runtime(self) -> Runtime:
        """Runtime of the job's command."""
        return Runtime(
            python=self.python, venv=self.venv, conda=self.conda, container=self.container
        )
