"""The input of a simulation as plain values, as people write it: commands, files and experiments hold it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fairlead.errors import ConfigError
from fairlead.model.limits import MAX_JOBS, MAX_SECONDS, is_duration
from fairlead.model.option_text import split_option

if TYPE_CHECKING:
    from fairlead.model.job import RestartCosts
    from fairlead.simulator.ground_truth import GroundTruth
    from fairlead.simulator.simulation_run import SimulationRun


@dataclass(frozen=True, kw_only=True)
class PluginNames:
    """Built-in rules and entry points that a run uses, by name: as it remembers them."""

    placement: str | None = None
    admission: str | None = None
    observers: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulationInput:
    """The input of ``simulate``, ``compare`` and every point of an experiment.
    Plain values, so that ``run.json`` can hold them; the command's options say what each field means."""

    trace: str | None = None
    generate: str | None = None
    throughputs: str = "builtin"
    cluster: str = "v100=8,p100=8,k80=8"
    devices_per_server: str | None = None
    prices: str | None = None
    round_s: float | Literal["auto"] | None = None
    seed: int = 0
    window: str | None = None
    stop_at_s: float | None = None
    restart_cost: list[str] | None = None
    resume_cost: list[str] | None = None
    rate_noise: float = 0.0
    rate_bias: float = 0.0
    mtbf_h: float | None = None
    mttr_h: float = 1.0
    early_termination: float = 0.0
    solve_time_s: float = 0.0
    preemption_hysteresis: float | None = None
    estimator: str | None = None
    user_estimates: str | None = None
    ideal: bool = False
    solve_interval_s: float | None = None

    def prepare(self, policy: str, profile: str) -> "SimulationRun":
        """A run with everything read and checked."""
        from fairlead.simulator.generate import generate
        from fairlead.simulator.options import SimulationOptions
        from fairlead.simulator.simulation_run import SimulationRun
        from fairlead.simulator.traces.cluster_files import parse_cluster, parse_prices
        from fairlead.simulator.traces.throughput_tables import read_throughputs
        from fairlead.simulator.user_estimates import UserEstimates

        rates = read_throughputs(self.throughputs)
        prices = None if self.prices is None else parse_prices(self.prices)
        cluster = parse_cluster(self.cluster, self.devices_per_server, prices)
        options = SimulationOptions(
            throughputs=rates,
            profile=profile,
            round_s=self.round_s,
            seed=self.seed,
            measured_jobs=_window(self.window),
            stop_at_s=self.stop_at_s,
            ground_truth=self._ground_truth(),
            solve_s=self.solve_time_s,
            preemption_hysteresis=self.preemption_hysteresis,
            estimator=self._estimator(),
            user_estimates=None
            if self.user_estimates is None
            else UserEstimates.of(self.user_estimates, self.seed),
            ideal=self.ideal,
            solve_interval_s=self.solve_interval_s,
        )
        if (self.trace is None) == (self.generate is None):
            raise ConfigError("give the jobs: either --trace FILE or --generate SPEC")
        if self.trace is not None:
            return SimulationRun.of(self.trace, cluster, policy, options)
        assert self.generate is not None
        arrivals, jobs = generate(self.generate, rates.columns(cluster.slots), cluster, self.seed)
        if jobs is None and self.window is None and self.stop_at_s is None:
            raise ConfigError("an endless stream of jobs needs --window, --stop-at or jobs=N")
        source = list(arrivals) if jobs is not None else arrivals
        return SimulationRun.of(
            source, cluster, policy, options, name=f"generated: {self.generate}"
        )

    def _estimator(self) -> str:
        """Without one the scheduler believes the users, where these say something, or else the table."""
        if self.estimator is not None:
            return self.estimator
        return "oracle" if self.user_estimates is None else "users"

    def _ground_truth(self) -> "GroundTruth":
        from fairlead.simulator.ground_truth import GroundTruth

        resume = None if self.resume_cost is None else _costs("--resume-cost", self.resume_cost)
        return GroundTruth(
            restart_costs=_costs("--restart-cost", self.restart_cost or ()),
            resume_costs=resume,
            rate_noise=self.rate_noise,
            rate_bias=self.rate_bias,
            mtbf_s=None if self.mtbf_h is None else _hours_as_s("--mtbf-hours", self.mtbf_h),
            mttr_s=_hours_as_s("--mttr-hours", self.mttr_h),
            early_termination=self.early_termination,
            seed=self.seed,
        )


def _costs(option: str, texts: Sequence[str]) -> "RestartCosts":
    """Costs from texts ``SECONDS`` and ``FAMILY=SECONDS``."""
    from fairlead.model.job import RestartCosts

    default, by_family = None, dict[str, float]()
    for text in texts:
        first, second = split_option(text)
        value = _seconds(option, first if second is None else second)
        if (default is not None) if second is None else (first in by_family):
            whose = "that of all families" if second is None else repr(first)
            raise ConfigError(f"{option}: {whose} is given twice, got {text!r}")
        if second is None:
            default = value
        else:
            by_family[first] = value
    return RestartCosts(default or 0.0, by_family)


def _seconds(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not is_duration(value):
        raise ConfigError(
            f"{option}: expected a number of seconds from 0 to {MAX_SECONDS:g}, got {text!r}"
        )
    return value


def _hours_as_s(option: str, hours: float) -> float:
    """Hours that are at least a second, in seconds."""
    if not 1 <= hours * 3600 <= MAX_SECONDS:
        raise ConfigError(
            f"{option}: must be from {1 / 3600:.6f} (a second) to {MAX_SECONDS / 3600:g} hours, got {hours:g}"
        )
    return hours * 3600


def _window(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, found, stop = text.partition(":")
    if not (found and first.isdecimal() and stop.isdecimal()):
        raise ConfigError(f"--window: expected S:E, two whole numbers, got {text!r}")
    if max(len(first), len(stop)) > 18:
        from fairlead.model.argument_checks import brief_repr

        # Python reads no number of thousands of digits.
        raise ConfigError(f"--window: at most {MAX_JOBS} jobs, got {brief_repr(text)}")
    return int(first), int(stop)
