"""Endpoints of jobs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Response

from fairlead.client.report import NAME
from fairlead.cluster.front.api.bodies import (
    LogPart,
    Submitted,
    WeightChange,
)
from fairlead.cluster.front.api.dependencies import (
    Context,
    answer,
    body_of,
)
from fairlead.cluster.front.api.params import (
    LARGEST_ID,
    JobPath,
    TenantQuery,
)
from fairlead.cluster.front.api.schema import answers, no_content, takes
from fairlead.cluster.front.compute_turns import ComputedRoute
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    DeviceUsageView,
    Explanation,
    JobState,
    JobView,
    LostWork,
)
from fairlead.cluster.protocol.job_search import MAX_SEARCH, FoundJobs, JobOrder, JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.read_job_spec import check_spec, check_weight
from fairlead.errors import InputError

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ComputedRoute)

MAX_SPECS = 1_000  # in one request
MAX_JOBS = 10_000  # in one answer
MAX_FOUND = 1_000  # jobs in one answer to a search
MAX_LOG = 1 << 20  # bytes in one answer
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{0,128}$",
        description="The same key again gives the same ids and submits nothing.",
    ),
]
Array = Annotated[
    int | None, Query(ge=0, le=LARGEST_ID, description="Only the tasks of this array.")
]
Limit = Annotated[int, Query(ge=1, le=MAX_JOBS, description="At most so many jobs.")]
After = Annotated[int, Query(ge=-1, le=LARGEST_ID, description="Only jobs with larger ids.")]
State = Annotated[
    Literal["", "open", JobState],
    Query(description="Only jobs in this state. open: not ended; empty: all."),
]
Words = Annotated[str, Query(max_length=MAX_SEARCH, description="Words that all occur.")]
Cursor = Annotated[
    str,
    Query(pattern=r"^[!-~]{0,1024}$", description="From the answer before; empty: from the start."),
]
AcceptLoss = Annotated[
    bool, Query(description="Begin with whatever checkpoints are there; what is missing is lost.")
]
Bytes = Annotated[int, Query(ge=1, le=MAX_LOG, description="About so many bytes at most.")]


@router.post(
    "",
    status_code=201,
    summary="Submit jobs",
    responses=answers(Submitted, 409, 413, 415, 429, status=201),
    openapi_extra=takes(JobSpec | list[JobSpec]),
)
def submit(
    context: Context,
    given: Annotated[Any, Depends(body_of(JobSpec | list[JobSpec]))],
    tenant: TenantQuery = "",
    key: Key = "",
) -> Response:
    """Submit one job, or up to 1,000 in one list: all of them or none. Answered when that is durable.

    An array is as many jobs as it has indices, whose ids are listed one by one: up to 10,000 in all.

    An admin may submit for another tenant.
    """
    specs: list[JobSpec] = given if isinstance(given, list) else [given]
    if not 1 <= len(specs) <= MAX_SPECS:
        raise InputError(f"body: from 1 to {MAX_SPECS:,} jobs at once, got {len(specs):,}")
    for position, spec in enumerate(specs):
        check_spec(spec, f"body[{position}]" if isinstance(given, list) else "body")
    return answer(Submitted(context.facade.submit(context.caller, specs, tenant, key)), 201)


@router.get("", summary="List jobs", responses=answers(list[JobView], 404))
def jobs(
    context: Context,
    state: State = "",
    tenant: TenantQuery = "",
    after: After = -1,
    limit: Limit = 1_000,
    array: Array = None,
) -> Response:
    """Jobs in order of their ids. For the next page give the last id as ``after``."""
    return answer(context.facade.jobs(context.caller, state, tenant, after, limit, array))


@router.get("/search", summary="Search jobs", responses=answers(FoundJobs, 404))
def search(
    context: Context,
    search: Words = "",
    state: State = "",
    tenant: TenantQuery = "",
    user: Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{0,64}$", description="User.")] = "",
    array: Array = None,
    sort: JobOrder = "id",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_FOUND, description="At most so many jobs.")] = 100,
) -> Response:
    """Jobs whose name, user, tenant, family, accelerator type, node or reason has all the words, and how
    many there are, by state too. A number may also be the id. Of jobs that have ended the newest 20,000 are
    searched."""
    query = JobQuery(
        search=search, state=state, tenant=tenant, user=user, array=array,
        sort=sort, descending=descending, offset=offset, limit=limit,
    )  # fmt: skip
    return answer(context.facade.find_jobs(context.caller, query))


@router.get("/{job}", summary="Show a job", responses=answers(JobView, 404))
def one(context: Context, job: JobPath) -> Response:
    """A job as it is now."""
    return answer(context.facade.job(context.caller, job))


@router.get(
    "/{job}/attempts", summary="List the attempts", responses=answers(list[AttemptView], 404)
)
def attempts(context: Context, job: JobPath) -> Response:
    """Every attempt of a job: where, how long, why it ended, and what it cost."""
    return answer(context.facade.attempts(context.caller, job))


@router.get(
    "/{job}/usage", summary="Show its devices", responses=answers(list[DeviceUsageView], 404)
)
def usage(context: Context, job: JobPath) -> Response:
    """Return how busy and how full the devices of a job were over time, by attempt and rank. Empty where
    agents do not know (no NVML); it begins anew when the server is started."""
    return answer(context.facade.usage(context.caller, job))


@router.get("/{job}/metrics", summary="Show its metrics", responses=answers(list[MetricCurve], 404))
def metrics(
    context: Context,
    job: JobPath,
    name: Annotated[
        str,
        Query(pattern=rf"^({NAME})?$", description="Only this metric; empty: all of them."),
    ] = "",
) -> Response:
    """Return what a job has reported with `fairlead.report()`, by metric and step. Of many values some are
    kept, evenly, and the newest one."""
    return answer(context.facade.metrics(context.caller, job, name))


@router.get("/{job}/explain", summary="Explain a job", responses=answers(Explanation, 404))
def explain(context: Context, job: JobPath) -> Response:
    """Return why a job is where it is, when it is expected to end, and how sure that is."""
    return answer(context.facade.explain(context.caller, job))


@router.get("/{job}/log", summary="Read the output", responses=answers(LogPart, 404))
def log(context: Context, job: JobPath, cursor: Cursor = "", limit: Bytes = 1 << 16) -> Response:
    """The output of a job from the cursor on, and the cursor after it. No text: nothing new yet."""
    return answer(LogPart(*context.facade.log(context.caller, job, cursor, limit)))


@router.post(
    "/{job}/cancel",
    summary="Cancel",
    **no_content(404, 409, 429),
)
def cancel(context: Context, job: JobPath) -> Response:
    """End a job for good."""
    context.facade.cancel(context.caller, job)
    return Response(status_code=204)


@router.post(
    "/{job}/pause",
    summary="Pause",
    responses=answers(LostWork, 404, 409, 429),
)
def pause(context: Context, job: JobPath) -> Response:
    """Take a job off its devices until it is resumed; it saves a checkpoint first. Says what it loses if it
    cannot."""
    return answer(LostWork(lost_work=context.facade.pause(context.caller, job)))


@router.post(
    "/{job}/resume",
    summary="Resume",
    **no_content(404, 409, 429),
)
def resume(context: Context, job: JobPath, accept_loss: AcceptLoss = False) -> Response:
    """Let a paused job run again. With `accept_loss` also one that waits for its checkpoints: its next
    attempt begins with whatever checkpoints are there, or anew."""
    context.facade.resume(context.caller, job, accept_loss)
    return Response(status_code=204)


@router.put(
    "/{job}/weight",
    summary="Set the weight",
    **no_content(404, 409, 413, 415, 429),
    openapi_extra=takes(WeightChange),
)
def set_weight(
    context: Context, job: JobPath, change: Annotated[WeightChange, Depends(body_of(WeightChange))]
) -> Response:
    """Give a job another weight; it counts from the next solve on."""
    check_weight(change.weight)
    context.facade.set_weight(context.caller, job, change.weight)
    return Response(status_code=204)
