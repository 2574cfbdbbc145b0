"""What starts cost: in truth, and as the scheduler believes."""

import pytest
from tests.small import TABLE, core, jct, job, run

from fairlead import GroundTruth, RestartCosts
from fairlead.model.cluster import Cluster
from fairlead.model.commands import StartRound
from fairlead.model.events import JobsSubmitted


def test_first_starts_are_free_unless_the_world_says_otherwise() -> None:
    for costs, end_s in ((False, 10.0), (True, 13.0)):
        ground_truth = GroundTruth(restart_costs=RestartCosts(3.0), first_starts_cost=costs)
        assert jct(run([job(0, 0.0, 100.0)], ground_truth=ground_truth)) == {
            0: pytest.approx(end_s)
        }


def test_the_scheduler_may_believe_what_is_not_true() -> None:
    """Two jobs on one device: who takes starts for costly changes less often."""
    ground_truth = GroundTruth(restart_costs=RestartCosts(1.0))
    jobs = [job(0, 0.0, 2e4), job(1, 0.0, 2e4)]
    starts = []
    for believed in (None, RestartCosts(1.0), RestartCosts(30.0)):
        result = run(jobs, ground_truth=ground_truth, round_s=60.0, assumed_costs=believed)
        starts.append(len(result.placement_intervals))
    assert starts[0] == starts[1] > starts[2]


@pytest.mark.parametrize(("overlap", "starts"), [(True, 1), (False, 0)])
def test_a_job_that_comes_during_a_solve(overlap: bool, starts: int) -> None:
    """Where solves overlap rounds it starts at once, else it waits for the answer."""
    scheduler = core(Cluster.of({"fast": 1}), TABLE, "las_aware", overlap_solves=overlap)
    scheduler.handle(JobsSubmitted(0.0, ()))
    assert scheduler.data.planning.solving
    commands = scheduler.handle(JobsSubmitted(1.0, (job(0, 1.0, 100.0).job,)))
    rounds = [c for c in commands if isinstance(c, StartRound)]
    assert sum(len(c.job_groups) for c in rounds) == starts
