"""Refusals: every one is JSON with one sentence."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fairlead.cluster.front.api.bodies import ErrorBody
from fairlead.cluster.front.api.middleware import SECURITY
from fairlead.cluster.front.facade import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TooManyError,
)
from fairlead.cluster.protocol.conversion_errors import shown
from fairlead.errors import FairleadError, InputError

# Most particular first.
_STATUS: tuple[tuple[type[FairleadError], int], ...] = (
    (NotFoundError, 404),
    (ForbiddenError, 403),
    (ConflictError, 409),
    (TooManyError, 429),
    (InputError, 400),
    (FairleadError, 503),  # nothing wrong with the request: the disk is full, a solver failed
)
_SENTENCES = {
    404: "there is nothing at this address",
    405: "this address does not take this method",
}


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says what is wrong."""
    body = msgspec.json.encode(ErrorBody(sentence))
    return Response(body, status, headers, media_type="application/json")


def add_handlers(app: FastAPI) -> None:
    """Every error that a handler raises becomes such an answer."""
    app.add_exception_handler(FairleadError, _on_purpose)
    app.add_exception_handler(RequestValidationError, _parameter)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def status_of(error: Exception) -> int:
    """The HTTP status of a FairleadError."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def _on_purpose(_request: Request, error: Exception) -> Response:
    status = status_of(error)
    wait_s = error.wait_s if isinstance(error, TooManyError) else 5.0
    headers = {"Retry-After": f"{ceil(wait_s)}"} if status in (429, 503) else None
    return problem(status, str(error), headers)


async def _parameter(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    place: Sequence[object] = first["loc"]
    complaint = first["msg"][:1].lower() + first["msg"][1:]
    return problem(400, f"{place[-1]}: {complaint}, got {shown(first.get('input'))}")


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = _SENTENCES.get(error.status_code, str(error.detail))
    return problem(error.status_code, sentence, dict(error.headers or {}))


async def _unexpected(_request: Request, _error: Exception) -> Response:
    # Starlette raises it again behind this answer, so the server's log has all of it, and the client none.
    return problem(500, "the server made a mistake; its log says more", dict(SECURITY))
