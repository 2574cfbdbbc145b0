"""Endpoints of users. For admins."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from fairlead.cluster.front.api.bodies import NewToken, NewUser
from fairlead.cluster.front.api.dependencies import (
    Context,
    admin,
    answer,
    body_of,
)
from fairlead.cluster.front.api.params import UserPath
from fairlead.cluster.front.api.schema import answers, no_content, takes
from fairlead.cluster.front.compute_turns import ComputedRoute
from fairlead.cluster.protocol.api_models import UserView

router = APIRouter(
    prefix="/v1/users", tags=["users"], dependencies=[Depends(admin)], route_class=ComputedRoute
)


@router.get("", summary="List users", responses=answers(list[UserView]))
def users(context: Context) -> Response:
    """Return the users who may use the cluster."""
    return answer(context.facade.users(context.caller))


@router.post(
    "",
    status_code=201,
    summary="Add a user",
    responses=answers(NewToken, 409, 413, 415, 429, status=201),
    openapi_extra=takes(NewUser),
)
def add_user(context: Context, new: Annotated[NewUser, Depends(body_of(NewUser))]) -> Response:
    """Make a token for a user. A known user gets a new one, and the old one ends."""
    token = context.facade.add_user(context.caller, new.user, new.tenant, new.role, new.lasts_s)
    return answer(NewToken(token), 201)


@router.delete(
    "/{name}",
    summary="Remove a user",
    **no_content(404, 409),
)
def remove_user(context: Context, name: UserPath) -> Response:
    """End a user's token. Their jobs go on."""
    context.facade.remove_user(context.caller, name)
    return Response(status_code=204)
