"""Endpoints of the cluster as a whole."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from fairlead.cluster.front.api.bodies import PolicyChange
from fairlead.cluster.front.api.dependencies import (
    Context,
    admin,
    answer,
    body_of,
)
from fairlead.cluster.front.api.errors import problem
from fairlead.cluster.front.api.params import NodePath
from fairlead.cluster.front.api.schema import answers, no_content, takes
from fairlead.cluster.front.compute_turns import ComputedRoute
from fairlead.cluster.protocol.api_models import (
    MAX_ADDED_DEVICES,
    Comparison,
    LostWork,
    NodeView,
    ReloadAnswer,
    Sample,
    StatusView,
    UserView,
    WhatIf,
)
from fairlead.cluster.protocol.conversion_errors import shown
from fairlead.cluster.protocol.engine_views import EngineView
from fairlead.cluster.protocol.read_job_spec import (
    ACCELERATOR,
    check_spec,
)
from fairlead.cluster.store.tokens import check_name
from fairlead.errors import InputError

router = APIRouter(prefix="/v1", tags=["cluster"], route_class=ComputedRoute)
MAX_ADDED, MAX_TYPES = 100, 100
MAX_POLICY = 200  # characters
Since = Annotated[
    float,
    Query(ge=0, le=1e12, allow_inf_nan=False, description="Only samples after this time (s)."),
]
_changes = [Depends(admin)]


@router.get("/me", summary="Show who asks", responses=answers(UserView))
def me(context: Context) -> Response:
    """The user whose token this is, and when it ends."""
    caller = context.caller
    return answer(UserView(caller.user, caller.tenant, caller.role, caller.expires_s))


@router.get("/status", summary="Show the cluster", responses=answers(StatusView))
def status(context: Context) -> Response:
    """The cluster in one screen. To a user, other tenants have no names."""
    return answer(context.facade.status(context.caller))


@router.get("/nodes", summary="List nodes", responses=answers(list[NodeView]))
def nodes(context: Context) -> Response:
    """The nodes, and which jobs hold their devices."""
    return answer(context.facade.nodes(context.caller))


@router.post(
    "/nodes/{name}/drain",
    summary="Drain a node",
    dependencies=_changes,
    responses=answers(LostWork, 404, 409),
)
def drain(context: Context, name: NodePath) -> Response:
    """Start nothing more on a node; its jobs move elsewhere. Says what jobs lose that cannot save. For
    admins."""
    return answer(LostWork(lost_work=context.facade.drain(context.caller, name)))


@router.post(
    "/nodes/{name}/undrain",
    summary="Use a node again",
    dependencies=_changes,
    **no_content(404, 409),
)
def undrain(context: Context, name: NodePath) -> Response:
    """Take a drained or unhealthy node back into use. For admins."""
    context.facade.undrain(context.caller, name)
    return Response(status_code=204)


@router.post(
    "/nodes/{name}/revoke",
    summary="Revoke a node's token",
    dependencies=_changes,
    **no_content(404, 409),
)
def revoke_node(context: Context, name: NodePath) -> Response:
    """Refuse whatever a node says, until it is used again (undrain) and has enrolled anew. Its jobs move
    elsewhere once its leases are over. For admins."""
    context.facade.revoke_node(context.caller, name)
    return Response(status_code=204)


@router.delete(
    "/nodes/{name}",
    summary="Forget a node",
    dependencies=_changes,
    **no_content(404, 409),
)
def remove_node(context: Context, name: NodePath) -> Response:
    """Forget a node that will not come back. For admins."""
    context.facade.remove_node(context.caller, name)
    return Response(status_code=204)


@router.get(
    "/engine",
    summary="Show the engine that starts nodes",
    dependencies=_changes,
    responses=answers(EngineView, 409),
)
def engine_plan(context: Context) -> Response:
    """What Slurm, or another engine, is asked for now, and why, by accelerator type. For admins."""
    return answer(context.facade.engine_plan(context.caller))


@router.put(
    "/policy",
    summary="Change the policy",
    dependencies=_changes,
    **no_content(409, 413, 415, 429),
    openapi_extra=takes(PolicyChange),
)
def set_policy(
    context: Context, change: Annotated[PolicyChange, Depends(body_of(PolicyChange))]
) -> Response:
    """Decide by another policy from the next solve on. For admins."""
    _check_policy(change.policy)
    if not change.policy:
        raise InputError("policy: must not be empty")
    context.facade.set_policy(context.caller, change.policy)
    return Response(status_code=204)


@router.post(
    "/reload",
    summary="Read the configuration again",
    dependencies=_changes,
    responses=answers(ReloadAnswer, 409),
)
def reload(context: Context) -> Response:
    """Take over what the server's configuration file says now, as far as that can change while it runs, and
    say what needs a restart. Where something is wrong with the file nothing changes. For admins."""
    return answer(context.facade.reload(context.caller))


@router.post(
    "/what-if",
    summary="Ask what would be",
    responses=answers(Comparison, 404, 409, 413, 415, 429),
    openapi_extra=takes(WhatIf),
)
def what_if(
    request: Request, context: Context, question: Annotated[WhatIf, Depends(body_of(WhatIf))]
) -> Response:
    """Run the live state forward in the simulator, as it is and with changes. Nothing is touched."""
    _check_question(question)
    limit, user = request.app.state.question_limit, context.caller.user
    if sentence := limit.take(user):
        return problem(429, f"{sentence}; ask again in a moment", {"Retry-After": "2"})
    try:
        return answer(context.facade.what_if(context.caller, question))
    finally:
        limit.give_back(user)


@router.get("/samples", summary="List rounds", responses=answers(list[Sample]))
def samples(context: Context, since_s: Since = 0.0) -> Response:
    """One sample per round, for plots over time."""
    return answer(context.facade.samples(context.caller, since_s))


@router.get(
    "/backup",
    summary="Make a backup",
    dependencies=_changes,
    response_class=StreamingResponse,
    responses=answers(None, 503)
    | {200: {"description": "An SQLite file.", "content": {"application/vnd.sqlite3": {}}}},
)
def backup(context: Context) -> Response:
    """All of the cluster's state as it is now, for `fairlead restore`. For admins."""
    pieces = context.facade.backup(context.caller)
    return StreamingResponse(pieces, media_type="application/vnd.sqlite3")


def _check_policy(policy: str) -> None:
    if len(policy) > MAX_POLICY or not policy.isprintable():
        raise InputError(f"policy: {shown(policy)} is no name of a policy")


def _check_question(question: WhatIf) -> None:
    if max(len(question.add_jobs), len(question.remove_nodes)) > MAX_ADDED:
        raise InputError(f"body: at most {MAX_ADDED} jobs and {MAX_ADDED} nodes")
    for position, spec in enumerate(question.add_jobs):
        check_spec(spec, f"body: add_jobs[{position}]")
    if len(question.add_nodes) > MAX_TYPES:
        raise InputError(f"add_nodes: at most {MAX_TYPES} types")
    for accelerator, devices in question.add_nodes.items():
        if not ACCELERATOR.fullmatch(accelerator):
            raise InputError(f"add_nodes: {shown(accelerator)} is no accelerator type")
        if not 1 <= devices <= MAX_ADDED_DEVICES:
            raise InputError(
                f"add_nodes.{accelerator}: must be from 1 to {MAX_ADDED_DEVICES:,}, got {shown(devices)}"
            )
    for node in question.remove_nodes:
        check_name("remove_nodes:", node)
    _check_policy(question.policy)
