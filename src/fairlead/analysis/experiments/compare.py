"""Several policies with several seeds from Python, with the statistics and figures of sweeps."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isfunction, ismethod
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from fairlead.analysis.experiments.divergence import run_until_diverged
from fairlead.analysis.experiments.point import Point, PointResult, Status
from fairlead.analysis.experiments.sweep_charts import (
    LoadFigure,
    SweepCurve,
    difference_chart,
    load_chart,
    over_seeds,
    paired_differences,
    seed_values,
)
from fairlead.analysis.report.figure_style import SeedInterval
from fairlead.analysis.report.metric_catalogue import Metric, metrics_of
from fairlead.errors import ConfigError, PartialResultWarning, SimulationError
from fairlead.model.argument_checks import PATH, TEXT, brief_repr, is_whole, or_none
from fairlead.model.argument_checks import check_arguments as check_types
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.limits import check_seed
from fairlead.model.near_names import did_you_mean
from fairlead.model.plan import Planner, Policy
from fairlead.model.third_party import third_party_call
from fairlead.simulator.argument_types import ARGUMENTS, check_arguments, make_options
from fairlead.simulator.options import SimulationOptions
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.simulation_run import SimulationRun
from fairlead.simulator.traces.trace import Trace

OnePolicy: TypeAlias = str | Policy | Planner | Callable[[], Policy | Planner]
OneTrace: TypeAlias = Trace | Iterable[Arrival] | str | Path
AVERAGE_JCT = "avg_jct_s"
_NO_INTERVAL = (None,) * 3


@dataclass(frozen=True, slots=True, repr=False)
class PolicyComparison:
    """Runs of several policies with the same seeds.

    seeds: as they were given. results: by the label of the policy, the result of each seed, in their order;
    the tables of placement intervals are empty. A run whose queue grew without bound is not ``complete``.
    """

    seeds: tuple[int, ...]
    results: Mapping[str, tuple[Result, ...]]

    def __repr__(self) -> str:
        """One line: which policies and seeds."""
        seeds = ", ".join(map(str, self.seeds))
        return f"PolicyComparison({', '.join(self.results)}; seeds {seeds})"

    def table(self, metric: str = AVERAGE_JCT, relative_to: str | None = None) -> pl.DataFrame:
        """Return a row per policy: seeds that are complete, the mean over the seeds, low and high, the ends
        of its 95 % confidence interval (Student's t); difference, difference_low and difference_high, the
        same of the difference to another policy, paired by seed.

        metric: a number of ``Result.metrics``, as "avg_jct_s", "rho.isolated.max" or
        "jct_percentiles_s.p99". relative_to: label of that other policy; None = the first. Null where a
        seed is not complete or does not know the number, intervals also where there is one seed alone.
        """
        check_types("table", {"metric": metric, "relative_to": relative_to}, _NAMES)
        figure = _figure_of(self._metric("table", metric))
        curves = self._curves()
        reference = curves[0] if relative_to is None else self._line("table", curves, relative_to)
        rows = []
        for curve in curves:
            values = seed_values(figure, curve)
            off = paired_differences(figure, curve, reference)
            done = [one.status is Status.COMPLETE for one in curve.outcomes[0]]
            mean, difference = _interval(values), _interval(off)
            cells = (*mean, *(_NO_INTERVAL if curve is reference else difference))
            rows.append((curve.name, sum(done), *cells))
        names = ("mean", "low", "high", "difference", "difference_low", "difference_high")
        schema = {"policy": pl.String, "seeds": pl.Int64} | dict.fromkeys(names, pl.Float64)
        return pl.DataFrame(rows, schema=schema, orient="row")

    def figure(
        self, path: str | Path, metric: str = AVERAGE_JCT, *, relative_to: str | None = None
    ) -> Path:
        """Write a figure, and return its path: a bar per policy, the mean over the seeds with its 95 %
        confidence interval or, with relative_to, the paired differences to that policy.

        path: ends with .png, .svg or .pdf. metric, relative_to: as those of ``table``.
        """
        given = {"path": path, "metric": metric, "relative_to": relative_to}
        check_types("figure", given, _NAMES)
        figure = _figure_of(self._metric("figure", metric))
        curves = self._curves()
        if relative_to is None:
            chart = load_chart(figure, curves, "none", SeedInterval.CONFIDENCE)
        else:
            reference = self._line("figure", curves, relative_to)
            chart = difference_chart(figure, curves, reference, "none")
        if chart is None:
            raise ConfigError(
                f"figure(): {metric}: there is nothing to draw, it is 0 or not known in all runs"
            )
        from fairlead.analysis.report.chart_mpl import FORMATS, write_chart

        target = Path(path)
        kind = next((one for one in FORMATS if target.suffix == f".{one}"), None)
        if kind is None:
            raise ConfigError(f"figure(): {target}: its name must end with .png, .svg or .pdf")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_chart(chart, target.with_suffix(""), (kind,))
        except OSError as problem:
            raise ConfigError(
                f"figure(): {target}: cannot be written ({problem.strerror})"
            ) from None
        return target

    def _metric(self, call: str, name: str) -> Metric:
        runs = [one.metrics for results in self.results.values() for one in results]
        known = {".".join(map(str, metric.path)): metric for metric in metrics_of(runs)}
        if name in known:
            return known[name]
        choice = did_you_mean(name, known) or f" (choose from {', '.join(known)})"
        raise ConfigError(f"{call}(): metric {name!r}: there is no such number{choice}")

    def _line(self, call: str, curves: Sequence[SweepCurve], name: str) -> SweepCurve:
        for curve in curves:
            if curve.name == name:
                return curve
        raise ConfigError(
            f"{call}(): relative_to: {name!r} is not compared here (choose from "
            f"{', '.join(self.results)})"
        )

    def _curves(self) -> list[SweepCurve]:
        """The policies as lines of a sweep that has no loads."""
        return [
            SweepCurve(
                label,
                (None,),
                (tuple(map(_outcome, [label] * len(results), self.seeds, results)),),
                Path(),
            )
            for label, results in self.results.items()
        ]


def compare(
    policies: Sequence[OnePolicy] | Mapping[str, OnePolicy],
    trace: OneTrace | Callable[[int], OneTrace],
    cluster: Cluster | str,
    *,
    seeds: Iterable[int] = range(5),
    **options: Any,
) -> PolicyComparison:
    """Run every policy with every seed, one after the other in this process.

    policies: names, objects with the methods of ``Policy`` or ``Planner``, their classes, or functions
    without arguments that make them, called anew for each run; a dictionary gives them labels, which are
    their names otherwise. trace: as that of ``simulate`` (not an iterator), the same for all seeds; or a
    function of the seed that returns one, always the same for a seed, so that all policies have the same
    jobs. The seed also takes the place of those of ``ground_truth`` and ``user_estimates``, as in
    ``fairlead sweep``. The other keywords are the fields of ``SimulationOptions``, but for ``seed``.

    Raises what ``simulate`` raises. Warns with PartialResultWarning where averages of a run are of fewer
    jobs than its trace has, or where its queue grows without bound: such a run is ended.
    """
    if "seed" in options:
        raise ConfigError(f"compare(): seed: give seeds, got {brief_repr(options['seed'])}")
    chosen, every = _policies(policies), _seeds(seeds)
    fixed = {"cluster": cluster, **({} if callable(trace) else {"trace": trace})}
    check_arguments("compare", fixed)
    if isinstance(trace, Iterator):
        raise ConfigError(
            "compare(): trace: an iterator yields its arrivals once; give a list or a function of the seed"
        )
    shared = make_options("compare", options)

    def prepare(policy: OnePolicy, seed: int) -> SimulationRun:
        return SimulationRun.of(
            _trace(trace, seed), cluster, _made(policy), _with_seed(shared, seed)
        )

    # Says what is wrong with any before one is run.
    first = [prepare(policy, every[0]) for _, policy in chosen]
    labels = [label or run.policy for (label, _), run in zip(chosen, first, strict=True)]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(
                f"compare(): policies: two of them are called {label!r}; give a dictionary of labels"
            )
    results, reasons = {}, dict[str, str]()
    for label, (_, policy) in zip(labels, chosen, strict=True):
        found = []
        for seed in every:
            result, diverged = run_until_diverged(prepare(policy, seed))
            found.append(replace(result, partial=(diverged,)) if diverged else result)
            for reason in found[-1].partial:
                reasons.setdefault(reason, f"{label}, seed {seed}: {reason}")
        results[label] = tuple(found)
    for sentence in reasons.values():
        warnings.warn(sentence, PartialResultWarning, stacklevel=2)
    return PolicyComparison(every, results)


def _policies(given: object) -> list[tuple[str, OnePolicy]]:
    """The policies with their labels, "" where they have none. Raises ConfigError."""
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, list | tuple):
        pairs = [("", policy) for policy in given]
    else:
        raise ConfigError(
            "compare(): policies: expected a list of policies, or a dictionary of them by label, got "
            f"{brief_repr(given)}"
        )
    if not pairs:
        raise ConfigError("compare(): policies: expected at least one, got none")
    for label, policy in pairs:
        if not isinstance(label, str):
            raise ConfigError(
                f"compare(): policies: expected labels that are text, got {brief_repr(label)}"
            )
        if not (_is_factory(policy) or ARGUMENTS["policy"][0](policy)):
            raise ConfigError(
                "compare(): policy: expected a name, a policy, its class or a function that makes it, "
                f"got {brief_repr(policy)}"
            )
    return pairs


def _seeds(given: object) -> tuple[int, ...]:
    seeds = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(map(is_whole, seeds)):
        raise ConfigError(
            f"compare(): seeds: expected whole numbers such as range(5), got {brief_repr(given)}"
        )
    if not seeds:
        raise ConfigError("compare(): seeds: expected at least one, got none")
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise ConfigError(f"compare(): seeds: {seed} is given twice")
    return tuple(check_seed(int(seed)) for seed in seeds)


def _is_factory(policy: object) -> bool:
    return isinstance(policy, type) or isfunction(policy) or ismethod(policy)


def _made(policy: Any) -> str | Policy | Planner:
    """The policy, made anew where a class or a function of it is given."""
    if not _is_factory(policy):
        return policy  # type: ignore[no-any-return]
    with third_party_call(f"policy {policy.__name__}", ConfigError):
        made = policy()
    check_arguments("compare", {"policy": made})
    return made  # type: ignore[no-any-return]


def _trace(trace: OneTrace | Callable[[int], OneTrace], seed: int) -> OneTrace:
    if not callable(trace):
        return trace
    with third_party_call(f"trace({seed})", SimulationError):
        made = trace(seed)
    holds, expected = ARGUMENTS["trace"]
    if not holds(made):
        raise ConfigError(f"compare(): trace({seed}): expected {expected}, got {brief_repr(made)}")
    return made


def _with_seed(options: SimulationOptions, seed: int) -> SimulationOptions:
    """The options of a run: all that is random in it follows from the seed."""
    world, users = options.ground_truth, options.user_estimates
    return replace(
        options,
        seed=seed,
        ground_truth=None if world is None else replace(world, seed=seed),
        user_estimates=None if users is None else replace(users, seed=seed),
    )


def _outcome(label: str, seed: int, result: Result) -> PointResult:
    """A run as a point of a sweep."""
    status = Status.COMPLETE if result.complete else Status.DIVERGED
    return PointResult(Point(label, input=SimulationInput(seed=seed)), status, result.metrics)


def _figure_of(metric: Metric) -> LoadFigure:
    return LoadFigure(
        ".".join(map(str, metric.path)), metric.name, metric.name, metric.kind, metric.of
    )


def _interval(values: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    """Mean, low and high over the seeds of the only load; None for what is not known."""
    found = over_seeds(values, SeedInterval.CONFIDENCE)[:, 0].tolist()
    return tuple(None if one != one else one for one in found)  # nan


_NAMES = {"path": PATH, "metric": TEXT, "relative_to": or_none(TEXT)}
