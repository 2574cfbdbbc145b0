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
from fairlead.cluster.front.api.schema import answers, takes
from fairlead.cluster.protocol.access import Caller

router = APIRouter(prefix="/v1/users", tags=["users"], dependencies=[Depends(admin)])


@router.get("", summary="List users", responses=answers(list[Caller]))
def users(desk: Context) -> Response:
    """Who may use the cluster."""
    return answer(desk.facade.users(desk.caller))


@router.post(
    "",
    status_code=201,
    summary="Add a user",
    responses=answers(NewToken, 409, 413, 415, status=201),
    openapi_extra=takes(NewUser),
)
def add_user(desk: Context, new: Annotated[NewUser, Depends(body_of(NewUser))]) -> Response:
    """Give somebody a token. A known user gets a new one, and the old one ends."""
    return answer(NewToken(desk.facade.add_user(desk.caller, new.user, new.tenant, new.role)), 201)


@router.delete(
    "/{name}",
    status_code=204,
    summary="Remove a user",
    responses=answers(None, 404, 409, status=204),
)
def remove_user(desk: Context, name: UserPath) -> Response:
    """End a user's token. Their jobs go on."""
    desk.facade.remove_user(desk.caller, name)
    return Response(status_code=204)
