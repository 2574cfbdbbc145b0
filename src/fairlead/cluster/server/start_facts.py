"""Facts about attempts, for judging why they failed."""

import re

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.failures import FailureRecord, Program, program_of
from fairlead.cluster.store.rows import JobRow

# What an agent says at the end of a reason of a folder above that of a job's checkpoints.
_CLOSED_FOLDER = re.compile(r"\(([^()]* does not let its user through: chmod o\+x)\)$")
NOT_FOUND = 127  # exit code of a command that the node cannot start


def is_node_fault(failure: Failure, spec: JobSpec) -> bool:
    """Return whether the node could not start one of its own commands, found on the agent's PATH, which the
    job's owner cannot bring about."""
    if failure.exit_code not in (None, NOT_FOUND):  # the job printed that itself
        return False
    if (
        failure.kind != "not_started"
        or failure.directory
        or "/" in spec.command[0]
        or "PATH" in spec.env
    ):
        return False
    elsewhere = spec.python or spec.venv or spec.conda or spec.container
    named = filter(None, (spec.cwd, spec.checkpoint_dir))
    return not elsewhere and not any(path in failure.message for path in named)


def public_reason(record: FailureRecord, row: JobRow | None) -> str:
    """Return why an attempt failed as far as all may be told: nothing that a job says of itself or names, and
    no folder of a job; "" = nothing. row: of the job, None = it is not known any more."""
    if not record.forgeable:
        return record.reason
    is_clusters = row is not None and not row.spec.checkpoint_dir
    by_agent = record.kind == "not_started" and record.directory and is_clusters
    found = _CLOSED_FOLDER.search(record.reason) if by_agent else None
    return found[1] if found else ""


def reached(attempt: Attempt) -> float:
    """The last step that an attempt has reported, -1 = none."""
    leader = attempt.leader
    return float(leader.step) if leader is not None and leader.loaded_step >= 0 else -1.0


def waited_s(attempt: Attempt) -> float:
    """Seconds that an attempt waited for its devices, as far as is known."""
    return 0.0 if attempt.leader is None else max(attempt.leader.wait_s, 0.0)


def program_run(row: JobRow) -> Program:
    """Return the program that a job runs, and where."""
    spec = row.spec
    environment = spec.python or spec.venv or spec.conda or spec.container
    words = " ".join(environment) if isinstance(environment, tuple) else environment
    return program_of(row.user, spec.command, spec.cwd and f"cwd {spec.cwd}", words)
