"""The HTTP server's application: the JSON API, /health and /metrics."""

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

import fairlead
from fairlead.cluster.front.api import (
    arrays,
    cluster,
    jobs,
    records,
    searches,
    users,
)
from fairlead.cluster.front.api.bodies import Health
from fairlead.cluster.front.api.dependencies import (
    Context,
    admin,
    answer,
)
from fairlead.cluster.front.api.errors import add_handlers
from fairlead.cluster.front.api.middleware import RequestTimer, SecurityHeaders
from fairlead.cluster.front.api.schema import answers, describe
from fairlead.cluster.front.body_limit import BodyLimit
from fairlead.cluster.front.compute_turns import ComputedRoute
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.metrics import FrontCounters, cluster_registry
from fairlead.cluster.front.question_limit import QuestionLimit
from fairlead.cluster.front.request_limit import OF_ALL, RequestLimit

# Threads that answer requests, most of which wait for a turn to compute, or for the driver. One for each that
# is answered at once: a user who has many answered has all of fewer threads, and others wait for these.
THREADS = OF_ALL.at_once


def create_app(
    facade: Facade,
    counters: FrontCounters,
    *,
    more_metrics: Callable[[], str] = str,
    open_metrics: bool = False,
    threads: int = THREADS,
) -> FastAPI:
    """The application. It has no page at ``/`` and no other path that would stand in a page's way.

    counters: those that this process increments; /metrics shows them, and the text of ``more_metrics``.
    open_metrics: without a token too.
    threads: for calls of the facade. Answers to requests are never cached, framed or sniffed, unless a
    page says otherwise in headers of its own.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = threads
        yield

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.facade = facade
    app.state.question_limit = QuestionLimit()
    app.state.body_limit = BodyLimit()
    app.add_middleware(RequestLimit, user_of=_user_of(facade))
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestTimer, seconds=counters.http_seconds)
    add_handlers(app)
    registries = (counters.registry, cluster_registry(facade))
    for router in (
        jobs.router,
        cluster.router,
        users.router,
        records.router,
        arrays.router,
        searches.router,
        _server(app, registries, more_metrics, open_metrics),
    ):
        app.include_router(router)
    return app


def _user_of(facade: Facade) -> Callable[[str], str | None]:
    def user(token: str) -> str | None:
        caller = facade.authenticate(token)
        return None if caller is None else caller.user

    return user


def _server(
    app: FastAPI,
    registries: Sequence[CollectorRegistry],
    more_metrics: Callable[[], str],
    open_metrics: bool,
) -> APIRouter:
    """Endpoints of the server itself."""
    router = APIRouter(tags=["server"], route_class=ComputedRoute)

    @router.get("/health", summary="Is the server there?", responses={200: answers(Health)[200]})
    async def health() -> Response:
        """Answers without a token, and without asking the cluster anything."""
        return answer(Health("ok", fairlead.__version__))

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        dependencies=[] if open_metrics else [Depends(admin)],
        response_class=Response,
        responses=answers(None)
        | {200: {"description": "Prometheus text.", "content": {"text/plain": {}}}},
    )
    def metrics() -> Response:
        """Numbers about all tenants, so for admins, unless the server was told to be open here."""
        text = b"".join(generate_latest(registry) for registry in registries)
        return Response(text + more_metrics().encode(), media_type=CONTENT_TYPE_LATEST)

    description = functools.cache(lambda: answer(describe(app)).body)  # takes 40 ms

    @router.get("/openapi.json", summary="This description", responses=answers(dict[str, Any]))
    def openapi(_context: Context) -> Response:
        """Return what the API takes and gives, as OpenAPI 3.1."""
        return Response(description(), media_type="application/json")

    return router
