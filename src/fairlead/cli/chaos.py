"""``fairlead chaos``."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.errors import CheckError, ConfigError

if TYPE_CHECKING:
    from fairlead.cluster.chaos.run import TrialSummary


def chaos(
    trials: Annotated[int, typer.Option(help="Faults in all.")] = 200,
    seed: Annotated[int, typer.Option(help="Of what is hurt and when.")] = 0,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="If something is wrong, leave logs, state and ledgers in this directory."
        ),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="KIND,...", help="These kinds of faults only; see --kinds.")
    ] = "",
    lease: Annotated[
        float, typer.Option(help="Seconds of a lease; the default of a server is 30.")
    ] = 3.0,
    resizing: Annotated[
        bool,
        typer.Option("--resizing", help="All jobs are elastic, and the policy resizes them."),
    ] = False,
    show_kinds: Annotated[bool, typer.Option("--kinds", help="List the kinds, and end.")] = False,
) -> None:
    """Inject faults into a cluster at random, and prove that nothing is lost.

    Starts a server and three agents with simulated devices as processes of this machine, keeps jobs coming,
    and in half of the clusters a search, and kills, freezes, cuts off and fills up parts of it, at times two
    at once. A trial is one fault; up to 20 trials share a cluster. In the end every job must have done
    exactly its steps, as written down by the job itself; see docs/chaos.md for all that is checked. Exits
    with 1 and says what is wrong, if anything.
    """
    from fairlead.cluster.chaos.fault_kinds import FAULTS
    from fairlead.cluster.chaos.run import run_trials

    if show_kinds:
        for kind in FAULTS.values():
            print(f"{kind.name:18} {kind.about}")
        return
    if trials < 1:
        raise ConfigError(f"--trials: must be at least 1, got {trials}")
    kinds = only.split(",") if only else list(FAULTS)
    for name in kinds:
        if name not in FAULTS:
            raise ConfigError(f"--only: no kind {name!r}; there are {', '.join(FAULTS)}")
    if not 1.0 <= lease <= 120.0:
        raise ConfigError(f"--lease: must be from 1 to 120 seconds, got {lease:g}")
    outcome = run_trials(
        trials, seed, kinds, keep, lambda line: print(line, flush=True), lease, resizing=resizing
    )
    _report(outcome)
    if outcome.violations:
        more = f" (and {len(outcome.violations) - 1} more)" if len(outcome.violations) > 1 else ""
        raise CheckError(f"seed {seed}: {outcome.violations[0]}{more}")


def _report(outcome: "TrialSummary") -> None:
    """Print what was done, by kind of fault, and what is wrong."""
    count = Counter(trial.kind for trial in outcome.trials)
    print(f"\n{'fault':18} {'trials':>6} {'whole again after, at most':>28}")
    for kind in sorted(count):
        worst = max(trial.healed_s for trial in outcome.trials if trial.kind == kind)
        print(f"{kind:18} {count[kind]:6} {worst:26.1f} s")
    for kind, why in outcome.skipped.items():
        print(f"{kind:18} skipped: {why}")
    print(
        f"{len(outcome.trials)} trials, {outcome.jobs} jobs in {outcome.starts} starts ("
        f"{outcome.resumed} of them resumed, {outcome.prepared} prepared, {outcome.resized} resized), "
        f"{outcome.searches} searches, {outcome.refused} submissions sent again"
    )
    for violation in outcome.violations:
        print(f"WRONG: {violation}")
    if not outcome.violations:
        print(
            "every job did exactly its steps, each counted once, and every trial of a search ran once; "
            "nothing was lost, nothing is left"
        )
