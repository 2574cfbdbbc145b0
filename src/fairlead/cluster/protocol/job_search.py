"""Searches in the list of jobs: what can be asked for, and what is found."""

from typing import Literal, TypeAlias, get_args

import msgspec

from fairlead.cluster.protocol.api_models import ENDED_STATES, JobState, JobView

# What a list of jobs can be sorted by. place: node, then devices; left: time to the end at its present rate.
JobOrder: TypeAlias = Literal[
    "id", "name", "tenant", "state", "place", "progress", "left", "deadline", "reason"
]
JOB_ORDERS: tuple[JobOrder, ...] = get_args(JobOrder)
LIST_STATES: tuple[str, ...] = ("open", *get_args(JobState))  # open: not ended
MAX_SEARCH = 200  # characters


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to find. Empty fields leave nothing out."""

    # Words that all occur in a job's name, user, tenant, family, accelerator type, node or reason, whatever
    # their case; a number may also be the job's id
    search: str = ""
    state: str = ""  # one of LIST_STATES
    tenant: str = ""
    user: str = ""
    array: int | None = None  # tasks of this one only
    sort: JobOrder = "id"
    descending: bool = False
    offset: int = 0  # jobs to leave out at the beginning
    limit: int = 100  # jobs at most


class FoundJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the jobs that were found, in the order asked for."""

    jobs: list[JobView]
    found: int  # jobs in all that fit
    states: dict[str, int]  # state -> jobs that fit but for their state
    is_cut: bool = False  # older jobs, which have ended, were not searched


def matches_state(state: JobState, requested: str) -> bool:
    """Return whether a job in this state is listed. requested: "" = all, "open" = not ended. In the database
    it may be in the one before: what has ended in the round in force is written down when that is
    reported."""
    if requested == "open":
        return state not in ENDED_STATES
    return requested in ("", state)
