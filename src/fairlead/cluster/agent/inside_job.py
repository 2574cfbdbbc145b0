"""Agents and servers that are started from within a job: they would end with it, and without a word."""

import os
import sys
from pathlib import Path

from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.proc import inherited_tag, token_tag
from fairlead.cluster.agent.survivors import mark_of, read_records
from fairlead.errors import ConfigError


def check_outside_jobs(command: str, inside_job: bool) -> None:
    """Raises ConfigError where this process belongs to a job, unless its user wants that; then it says so.
    command: what was called."""
    job = _job_around()
    if not job:
        return
    if not inside_job:
        raise ConfigError(
            f"{command}: this is a process of {job}, and all of these end with it; start it from a login of "
            "its own (ssh) or by a service manager (systemd), or with --inside-job if it is to end with it"
        )
    print(f"fairlead: {command}: this is a process of {job}, and ends with it", file=sys.stderr)


def check_other_node(record: AgentFiles, state: Path) -> None:
    """Raises ConfigError where this agent belongs to a job that its own node has started: it would end
    itself, as all that earlier agents of the node have left behind. record, state: of this agent."""
    tag = inherited_tag(os.getpid())
    if not tag:
        return
    known = record.predecessors() if record.path.parent.exists() else []
    marks = [mark_of(one.incarnation) for one in known]
    tags = [token_tag(one.token) for one in read_records(state / "starts", keep=True)]
    if tag in tags or tag.startswith(tuple(marks)):
        raise ConfigError(
            f"--state {state}: this is a process of a job that an earlier agent of this node has started, "
            "and the next agent ends these; start it from outside of the job"
        )


def _job_around() -> str:
    """The job that this process belongs to, in words; "" = none. In a container, or where the kernel takes no
    tag, the environment says it; with another environment, the tag."""
    if (number := os.environ.get("FAIRLEAD_JOB")) and "FAIRLEAD_ATTEMPT" in os.environ:
        return f"job {number}"
    return "a job" if inherited_tag(os.getpid()) else ""
