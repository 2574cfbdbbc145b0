"""The addresses of the pages, and what stands before each: login, origin, security headers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import TypeAlias
from urllib.parse import parse_qsl, quote

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from fairlead.cluster.front.body_limit import BodyLimit
from fairlead.cluster.front.compute_turns import computing
from fairlead.cluster.front.facade import (
    ConflictError,
    Facade,
    ForbiddenError,
    NotFoundError,
    TooManyError,
)
from fairlead.cluster.front.web import session
from fairlead.cluster.front.web.alerts import alerts
from fairlead.cluster.front.web.forecasts import Forecasts
from fairlead.cluster.front.web.job_list import jobs_page
from fairlead.cluster.front.web.job_page import CHUNK_BYTES, job_page
from fairlead.cluster.front.web.layout import (
    FAST,
    SLOW,
    Page,
    document,
    fragments,
    new_nonce,
    policy,
    problem,
)
from fairlead.cluster.front.web.lists import nodes_page
from fairlead.cluster.front.web.login import login_page, safe_target
from fairlead.cluster.front.web.markup import strip_escapes
from fairlead.cluster.front.web.overview import overview
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.front.web.search_page import search_of, search_page, searches_page
from fairlead.cluster.front.web.submit_page import submit_page
from fairlead.cluster.front.web.what_if import what_if_page
from fairlead.cluster.protocol.access import Caller
from fairlead.errors import FairleadError, InputError

LARGEST_FORM = 1 << 18  # bytes
LARGEST_LOGIN = 1 << 16  # bytes; anybody may send one
MAX_FIELDS = 20
WRONG_TOKEN_DELAY_S = 0.5  # what a wrong token costs
SEE_OTHER = 303

Show: TypeAlias = Callable[[Facade, PageRequest], Page]
Change: TypeAlias = Callable[[Facade, PageRequest], str]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class FormTooLargeError(InputError):
    """A form has more bytes than are read of one."""


def add_pages(app: FastAPI, facade: Facade, policies: Sequence[str] = ()) -> None:
    """Add the pages to an application. They are no part of its OpenAPI description. policies: names of all
    that there are."""
    context, forecasts = PageRoutes(facade), Forecasts(facade)
    pages: dict[str, Show] = {
        "/": overview,
        "/jobs": jobs_page,
        "/jobs/{job}": partial(job_page, forecasts),
        "/nodes": nodes_page,
        "/searches": searches_page,
        "/searches/{search}": search_page,
        "/what-if": partial(what_if_page, forecasts, policies),
        "/submit": submit_page,
    }
    for path, show in pages.items():
        methods = ["GET", "POST"] if path in ("/what-if", "/submit") else ["GET"]
        app.add_route(path, context.showing(show), methods, include_in_schema=False)
    app.add_route("/jobs/{job}/tail", context.tail, ["GET"], include_in_schema=False)
    for path, change in CHANGES.items():
        app.add_route(path, context.changing(change), ["POST"], include_in_schema=False)
    app.add_route("/login", context.login_form, ["GET"], include_in_schema=False)
    app.add_route("/login", context.login, ["POST"], include_in_schema=False)
    app.add_route("/logout", context.logout, ["POST"], include_in_schema=False)


class PageRoutes:
    """Answers requests for pages."""

    def __init__(self, facade: Facade) -> None:
        self.facade = facade
        self._throttle = session.Throttle()

    def showing(self, show: Show) -> Endpoint:
        """The handler of a page."""

        async def answer(request: Request) -> Response:
            caller = await self._caller(request)
            if caller is None:
                return _to_login(request)
            if request.method == "POST" and not session.same_origin(request):
                return _foreign()
            page = await self._page(show, request, caller)
            if page.moved_to:
                return _headed(RedirectResponse(page.moved_to, SEE_OTHER))
            if request.query_params.get("part") in (FAST, SLOW):
                return _headed(HTMLResponse(fragments(page), page.status))
            return _whole(page, caller)

        return answer

    def changing(self, change: Change) -> Endpoint:
        """The handler of a button."""

        async def answer(request: Request) -> Response:
            caller = await self._caller(request)
            if caller is None:
                return _to_login(request)
            if not session.same_origin(request):
                return _foreign()
            try:
                ask = await _page_request(request, caller)
                target = await run_in_threadpool(computing(change), self.facade, ask)
            except FairleadError as refused:
                return _whole(await self._with_alerts(_refusal(refused), caller), caller)
            return _headed(RedirectResponse(target, SEE_OTHER))

        return answer

    async def tail(self, request: Request) -> Response:
        """Further output of a job, as text; the cursor after it is a header."""
        caller = await self._caller(request)
        if caller is None:
            return _to_login(request)
        cursor = request.query_params.get("cursor", "")
        try:
            job = (await _page_request(request, caller)).job
            text, behind = await run_in_threadpool(
                computing(self.facade.log), caller, job, cursor, CHUNK_BYTES
            )
        except FairleadError as refused:
            return _headed(PlainTextResponse(str(refused), _refusal(refused).status))
        return _headed(PlainTextResponse(strip_escapes(text), headers={"x-cursor": behind}))

    async def login_form(self, request: Request) -> Response:
        """Return the page on which a person enters their token."""
        return _whole(login_page(request.query_params.get("next", "")), None)

    async def login(self, request: Request) -> Response:
        """Check a token. Wrong ones cost time; after many of them in a minute only the right one is good for
        anything, for others may share the address of who guesses."""
        if not session.same_origin(request):
            return _foreign()
        try:
            form = await _form(request, "", LARGEST_LOGIN)
        except InputError as refused:
            return _whole(_refusal(refused), None)
        target = safe_target(form.get("next", ""))
        token = form.get("token", "").strip()
        caller = await self._known(token)
        if caller is None:
            return await self._wrong_token(request, target)
        moved = RedirectResponse(target, SEE_OTHER)
        session.log_in(request, moved, token)
        return _headed(moved)

    async def _wrong_token(self, request: Request, target: str) -> Response:
        address = request.client.host if request.client else ""
        wait_s = self._throttle.wait_s(address)
        if wait_s > 0:
            words = f"Too many wrong tokens: wait {ceil(wait_s)} s."
            response = _whole(login_page(target, words, 429), None)
            response.headers["retry-after"] = f"{ceil(wait_s)}"
            return response
        self._throttle.failed(address)
        await asyncio.sleep(WRONG_TOKEN_DELAY_S)
        return _whole(login_page(target, "This token is not known.", 403), None)

    async def logout(self, request: Request) -> Response:
        """Forget the token."""
        if not session.same_origin(request):
            return _foreign()
        response = RedirectResponse("/login", SEE_OTHER)
        session.log_out(request, response)
        return _headed(response)

    async def _caller(self, request: Request) -> Caller | None:
        return await self._known(session.token_of(request))

    async def _known(self, token: str) -> Caller | None:
        """Return the caller with the token; None if there is none, or it is an agent's, which opens no
        page."""
        if not token:
            return None
        caller = await run_in_threadpool(self.facade.authenticate, token)
        return None if caller is None or caller.role == "agent" else caller

    async def _page(self, show: Show, request: Request, caller: Caller) -> Page:
        try:
            ask = await _page_request(request, caller)
            page = await run_in_threadpool(computing(show), self.facade, ask)
        except FairleadError as refused:
            return await self._with_alerts(_refusal(refused), caller)
        return await self._with_alerts(page, caller) if ask.wants(FAST) else page

    async def _with_alerts(self, page: Page, caller: Caller) -> Page:
        """The page, below what is said on top of all of them. Only one that can be had again by its address
        goes on asking for that."""
        failed = await run_in_threadpool(self.facade.failed_nodes, caller)
        section = alerts(failed, live=bool(page.here))
        return replace(page, sections=[section, *page.sections])


def _cancel(facade: Facade, ask: PageRequest) -> str:
    facade.cancel(ask.caller, ask.job)
    return f"/jobs/{ask.job}"


def _pause(facade: Facade, ask: PageRequest) -> str:
    facade.pause(ask.caller, ask.job)
    return f"/jobs/{ask.job}"


def _resume(facade: Facade, ask: PageRequest) -> str:
    facade.resume(ask.caller, ask.job)
    return f"/jobs/{ask.job}"


def _drain(facade: Facade, ask: PageRequest) -> str:
    facade.drain(ask.caller, ask.form.get("node", ""))
    return "/nodes"


def _undrain(facade: Facade, ask: PageRequest) -> str:
    facade.undrain(ask.caller, ask.form.get("node", ""))
    return "/nodes"


def _stop_search(facade: Facade, ask: PageRequest) -> str:
    search = search_of(ask)
    facade.stop_search(ask.caller, search)
    return f"/searches/{search}"


CHANGES: dict[str, Change] = {
    "/jobs/{job}/cancel": _cancel,
    "/jobs/{job}/pause": _pause,
    "/jobs/{job}/resume": _resume,
    "/searches/{search}/stop": _stop_search,
    "/nodes/drain": _drain,
    "/nodes/undrain": _undrain,
}


async def _page_request(request: Request, caller: Caller) -> PageRequest:
    form = await _form(request, caller.user, LARGEST_FORM) if request.method == "POST" else {}
    return PageRequest(caller, request.path_params, request.query_params, form)


async def _form(request: Request, user: str, most: int) -> dict[str, str]:
    """The fields of a form. user: who sends it, "" = nobody knows. Raises FormTooLargeError where it has more
    than ``most`` bytes, InputError where it is none."""
    limit: BodyLimit = request.app.state.body_limit
    too_large = FormTooLargeError(f"the form is larger than {most:,} bytes")
    body = await limit.receive(request.stream(), user, most, too_large)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InputError("the form cannot be read") from None


def _refusal(refused: Exception) -> Page:
    match refused:
        case NotFoundError():
            return problem(404, "Not found", str(refused))
        case ForbiddenError():
            return problem(403, "Not allowed", str(refused))
        case ConflictError():
            return problem(409, "This cannot be done now", str(refused))
        case TooManyError():
            return problem(429, "This cannot be done now", str(refused))
        case FormTooLargeError():
            return problem(413, "This cannot be done", str(refused))
        case InputError():
            return problem(400, "This cannot be done", str(refused))
        case _:
            return problem(503, "Not now", str(refused))


def _foreign() -> Response:
    page = problem(403, "Not allowed", "This form was not sent from a page of this server.")
    return _whole(page, None)


def _to_login(request: Request) -> Response:
    """Pages send to the login; what a page's script asks for is refused, so that it reloads the page."""
    if "part" in request.query_params or request.url.path.endswith("/tail"):
        return _headed(PlainTextResponse("Log in first.", 401))
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = f"?next={quote(here, safe='')}" if request.method == "GET" and here != "/" else ""
    return _headed(RedirectResponse(f"/login{target}", SEE_OTHER))


def _whole(page: Page, caller: Caller | None) -> Response:
    nonce = new_nonce()
    response = HTMLResponse(document(page, caller, nonce), page.status)
    response.headers["content-security-policy"] = policy(nonce)
    return _headed(response)


def _headed(response: Response) -> Response:
    """Add the headers that tell browsers what a page may do."""
    response.headers.setdefault("content-security-policy", "default-src 'none'; sandbox")
    response.headers["cache-control"] = "no-store"
    response.headers["referrer-policy"] = "same-origin"
    response.headers["x-content-type-options"] = "nosniff"
    response.headers["x-frame-options"] = "DENY"
    response.headers["cross-origin-opener-policy"] = "same-origin"
    return response
