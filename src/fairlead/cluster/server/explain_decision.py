"""Explanations of the policy's decision on a job: its share of the time, and with whom it is paired."""

from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.read_job_spec import colocates
from fairlead.cluster.server.explanation_source import ExplanationSource, Reader
from fairlead.cluster.server.pairing import why_unpaired
from fairlead.model.job import JobId
from fairlead.policies import registry


def share_sentence(source: ExplanationSource, job: JobView) -> str:
    """Its share of the time, or why it has none."""
    decided, solve = source.state.decided, source.solves.state
    shares = decided.shares(job.id)
    failed = f" (the last solve {solve})" if solve.startswith("failed") else ""
    if shares:
        given = ", ".join(
            f"{share:.2f} of the time on {name}{_cannot_run(job, name)}"
            for name, share in shares.items()
        )
        return f"Policy {_policy(source)} gives it {given}{_until_next(source)}{failed}."
    if failed:
        return f"It has no share of the time yet: the solve {solve}."
    if source.solves.began_s is not None:
        return f"It has no share of the time yet: a solve is {solve}."
    if decided.at(job.id) is None and job.state in ("running", "finishing"):
        return ""  # it has been decided on before the server was started
    if decided.at(job.id) is None:
        return _undecided(source, job)
    if decided.answered(job.id):
        return f"Policy {_policy(source)} gives it no share of the time now{_until_next(source)}."
    if not decided.allocated.any():
        return ""  # a policy without shares, or one that has not answered yet
    return "It joined after the last solve, and is part of the next."


def _cannot_run(job: JobView, accelerator: str) -> str:
    """Policies that take all types for equal give shares of those too on which a job has no rate."""
    none = bool(job.rates) and job.rates.get(accelerator, 0.0) <= 0
    return ", where it cannot run" * none


def _policy(source: ExplanationSource) -> str:
    """Return the listed name of the policy that has decided."""
    return registry.listed_name(source.state.decided.policy or source.state.policy)


def _until_next(source: ExplanationSource) -> str:
    """Return a clause on the policy that was chosen since; "" if it is the one that has decided."""
    decided, chosen = source.state.decided.policy, source.state.policy
    if decided in ("", chosen):
        return ""
    return f", until policy {registry.listed_name(chosen)} has decided"


def _undecided(source: ExplanationSource, job: JobView) -> str:
    """Return a sentence on a job that was not part of the last decision."""
    core = source.state.scheduler
    if core is not None and JobId(job.id) in core.data.paused_jobs:
        return ""  # it is left out on purpose; why has been said
    if job.starts:
        return "It took no part in the last decision, and takes part in the next."
    return "It joined after the last decision, and takes part in the next."


def pair_sentence(reader: Reader, job: JobView) -> str:
    """Return a sentence on the job with which it shares devices, or why there is none."""
    decided = reader.source.state.decided
    partners = decided.partners(job.id)
    if partners:
        return f"It has a share of the time on the same devices as {reader.names(partners)}."
    row = reader.source.state.registry.jobs.get(job.id)
    states = row is not None and colocates(row.spec)
    without = reader.source.solves.without_pairs
    if without and decided.space_sharing:
        return f"It is in no pair: shares are without pairs, {without}."
    return why_unpaired(decided, job.id, _policy(reader.source), states)
