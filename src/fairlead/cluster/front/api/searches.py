"""Endpoints of searches."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from fairlead.cluster.front.api.bodies import SearchStarted
from fairlead.cluster.front.api.dependencies import Context, answer, content_of_body
from fairlead.cluster.front.api.jobs import Key
from fairlead.cluster.front.api.params import LARGEST_ID, TenantQuery
from fairlead.cluster.front.api.schema import answers, no_content, takes
from fairlead.cluster.front.compute_turns import ComputedRoute
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.read_study import make_study
from fairlead.cluster.protocol.study import SearchView, StudySpec

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=ComputedRoute)
SearchPath = Annotated[int, Path(ge=0, le=LARGEST_ID, description="Id of the search.")]


@router.post(
    "",
    status_code=201,
    summary="Begin a search",
    responses=answers(SearchStarted, 409, 413, 415, 429, status=201),
    openapi_extra=takes(StudySpec),
)
def begin(
    context: Context,
    content: Annotated[Any, Depends(content_of_body)],
    tenant: TenantQuery = "",
    key: Key = "",
) -> Response:
    """Begin a search for good parameters: trials are jobs of whoever asks. Answered when it is durable.

    An admin may begin one for another tenant.
    """
    study = make_study(content, "body")
    return answer(
        SearchStarted(context.facade.submit_search(context.caller, study, tenant, key)), 201
    )


@router.get("", summary="List searches", responses=answers(list[SearchView]))
def searches(context: Context) -> Response:
    """All searches in order of their ids, with their best trials, and without the others."""
    return answer(context.facade.searches(context.caller))


@router.get("/{search}", summary="Show a search", responses=answers(SearchView, 404))
def one(context: Context, search: SearchPath) -> Response:
    """A search with all its trials."""
    return answer(context.facade.search(context.caller, search))


@router.get(
    "/{search}/curves", summary="Show its curves", responses=answers(dict[int, MetricCurve], 404)
)
def curves(context: Context, search: SearchPath) -> Response:
    """Return what the newest 500 trials have reported of the search's metric, by number of the trial."""
    return answer(context.facade.search_curves(context.caller, search))


@router.post("/{search}/stop", summary="Stop a search", **no_content(404, 409, 429))
def stop(context: Context, search: SearchPath) -> Response:
    """End a search and its trials for good."""
    context.facade.stop_search(context.caller, search)
    return Response(status_code=204)
