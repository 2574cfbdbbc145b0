"""Whole runs with policies that solve for a level, against Gavel's, in the mean."""

from pathlib import Path

import pytest
from tests.golden.test_gavel_runs import Reference, references

pytestmark = pytest.mark.shared

POLICIES = {
    "max_min_fairness_packed",
    "finish_time_fairness_perf",
    "finish_time_fairness_packed",
    "min_total_duration_perf",
}
# Any shares that meet the release's makespan, bisected to 5 %, will do for it, so its average JCT is
# arbitrary: 7 % higher than here where 40 jobs start at once, with a makespan 0.3 % lower.
ONLY_MAKESPAN = ("static_lam0__min_total_duration_perf__12-12-12__lam0__s0",)
SHORT = 100  # rounds; in a short run one round more is a large part of the makespan


@pytest.mark.parametrize("reference", references(POLICIES, logged=False))
def test_runs_are_close(reference: Reference, shared: Path) -> None:
    """Within 2 % in average JCT and makespan; the makespan of a short run within two rounds."""
    result = reference.play(shared, reference.result["config"]["policy"])
    if reference.path.stem not in ONLY_MAKESPAN:
        ratio = result.metrics["avg_jct_s"] / reference.result["avg_jct"]
        assert ratio == pytest.approx(1.0, abs=0.02)
    theirs = reference.result["makespan"]
    short = reference.result["n_rounds"] < SHORT
    allowed = 2 * 360.0 if short else 0.02 * theirs
    assert result.metrics["makespan_s"] == pytest.approx(theirs, abs=allowed)
    assert result.metrics["solve_gap"] < 1e-6
