"""Dependencies of the API's routes: caller, request body and answer."""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from fairlead.cluster.front.body_limit import BodyLimit
from fairlead.cluster.front.compute_turns import computing
from fairlead.cluster.front.facade import Facade, ForbiddenError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.conversion_errors import describe_error
from fairlead.cluster.protocol.json_problems import json_problem
from fairlead.cluster.protocol.read_job_spec import refuse_repeated
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.errors import ConfigError, InputError

T = TypeVar("T")
LARGEST_BODY = 1 << 20  # bytes
SMALL_BODY = 1 << 13  # bytes, decoded within a few milliseconds whatever is in it
_ELEMENT = re.compile(r"(\[\d+\])(?:\.|: )")  # of a list, at the beginning of a field

_bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token of `fairlead user add`."
)
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


class RequestContext(msgspec.Struct, frozen=True):
    """The cluster, and who asks it."""

    facade: Facade
    caller: Caller


# Async, as it waits for nothing: another thread would cost a request a quarter of its time.
async def _request_context(request: Request, bearer: Bearer) -> RequestContext:
    facade: Facade = request.app.state.facade
    caller = None if bearer is None else facade.authenticate(bearer.credentials)
    if caller is None:
        status_text = (
            "a token is needed" if bearer is None else "this token is not known, or has expired"
        )
        raise HTTPException(401, status_text, {"WWW-Authenticate": "Bearer"})
    if caller.role == "agent":
        raise ForbiddenError("this token is an agent's; it opens the agents' port only")
    _check_query(request)
    return RequestContext(facade, caller)


def _check_query(request: Request) -> None:
    """Refuse parameters that would be ignored: ``?staet=open`` lists all jobs."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = [parameter.alias for parameter in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise ConfigError(
                f"query: {name[:80]!r} is not a parameter here (this address {takes})"
            )


Context = Annotated[RequestContext, Depends(_request_context)]


async def admin(context: Context) -> None:
    """Only admins go on."""
    if context.caller.role != "admin":
        raise ForbiddenError("only an admin may do this")


def answer(content: Any, status: int = 200) -> Response:
    """Any struct as JSON. Not through FastAPI's models: 10,000 jobs take them a second, msgspec 20 ms."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def body_of(kind: Any) -> Callable[[Request, RequestContext], Awaitable[Any]]:
    """A dependency that reads a JSON body of this type, never more than ``LARGEST_BODY`` of it."""
    decoder = msgspec.json.Decoder(kind)

    async def read(request: Request, context: Context) -> Any:
        _check_content_type(request)
        return await _decode(await _read(request, context.caller), decoder, kind)

    return read


_anything = msgspec.json.Decoder(Any)


async def content_of_body(request: Request, context: Context) -> Any:
    """A dependency that reads a JSON body, whatever it holds, never more than ``LARGEST_BODY`` of it."""
    _check_content_type(request)
    return await _decode(await _read(request, context.caller), _anything, Any)


async def _decode(data: bytes, decoder: "msgspec.json.Decoder[Any]", kind: Any) -> Any:
    """Decode on the event loop what takes no time to speak of: another thread would."""
    if len(data) <= SMALL_BODY:
        return _decoded(data, decoder, kind)
    return await run_in_threadpool(computing(_decoded), data, decoder, kind)


def _decoded(data: bytes, decoder: "msgspec.json.Decoder[Any]", kind: Any) -> Any:
    try:
        content = decoder.decode(data)
        refuse_repeated(data, "body")
        return content
    except msgspec.DecodeError as problem:
        said = json_problem(data) or describe_error(problem, _loose(data), kind)
        raise InputError(_of_body(said)) from None
    except RecursionError:
        raise InputError("body: is nested too deeply") from None
    except UnicodeDecodeError:
        raise InputError("body: is not UTF-8") from None


def _of_body(said: str) -> str:
    """Return ``[0].FIELD: ...`` or ``FIELD: ...`` as what is wrong with the body, or with one of its
    elements, in the words in which jobs are checked."""
    element = _ELEMENT.match(said)
    if element is None:
        return f"body: {said}"
    return f"body{element[1]}: {said[element.end() :]}"


def _loose(data: bytes) -> Any:
    """Return the decoded body, whatever it holds, to quote from; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(data)
    except UNREADABLE:
        return None


def _check_content_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body must be JSON, with Content-Type: application/json")


async def _read(request: Request, caller: Caller) -> bytes:
    too_large = HTTPException(413, f"the body may have at most {LARGEST_BODY:,} bytes")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > LARGEST_BODY:
        raise too_large
    limit: BodyLimit = request.app.state.body_limit
    return await limit.receive(request.stream(), caller.user, LARGEST_BODY, too_large)
