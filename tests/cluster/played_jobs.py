"""What jobs of an engine do whose nodes a test plays."""

from tests.cluster.server_nodes import EngineNodes, PlayedNode

from fairlead.model.job import JobId


def in_core(cluster: EngineNodes, job: int) -> bool:
    """Whether the core knows a job."""
    state = cluster.service.engine.state

    def look() -> bool:
        core = state.scheduler
        assert core is not None
        return JobId(job) in core.data.ledger or JobId(job) in core.data.paused_jobs

    return cluster.do(look)


def run(cluster: EngineNodes, node: PlayedNode, job: int) -> int:
    """Let a job begin; returns its attempt."""
    cluster.begin(node, job)
    cluster.until(lambda: cluster.job(job).state == "running", f"job {job} to run")
    return cluster.job(job).attempt


def complete(cluster: EngineNodes, node: PlayedNode, job: int) -> None:
    attempt = run(cluster, node, job)
    node.end(job, attempt, completed=True, exit_code=0, step=1_000_000, loaded_step=0)
    cluster.until(lambda: cluster.job(job).state == "completed", f"the end of job {job}")


def fail(cluster: EngineNodes, node: PlayedNode, job: int) -> None:
    attempt = run(cluster, node, job)
    node.end(job, attempt, exit_code=3, loaded_step=0, step=5)
    cluster.until(lambda: cluster.job(job).state == "dropped", f"the end of job {job}")
