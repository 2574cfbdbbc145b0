"""Whatever a server can be asked to change is written into its audit log, by API and by pages."""

import time
from typing import Any, cast

import httpx
import msgspec
import pytest
from starlette.routing import Route
from tests.cluster.served import Served

from fairlead.cluster.front.api.schema import describe
from fairlead.cluster.front.audit import ASKING, NAMED
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.http_app import create_app
from fairlead.cluster.front.metrics import FrontCounters
from fairlead.cluster.front.web.routes import add_pages
from fairlead.cluster.protocol.audit import ACTIONS
from fairlead.cluster.protocol.job_spec import JobSpec

SPEC = JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0})


def test_each_method_of_the_facade_is_named_or_only_asks() -> None:
    methods = {name for name in vars(Facade) if not name.startswith("_")}
    assert methods - {"authenticate"} == NAMED.keys() | ASKING
    assert not NAMED.keys() & ASKING


def test_people_can_ask_for_each_action_by_its_name() -> None:
    assert {*NAMED, "enrol"} == set(ACTIONS)


# Requests with these methods that change nothing: forecasts, and what a browser knows of its token.
UNCHANGING = {"/v1/what-if", "/what-if", "/login", "/logout"}
BODIES: dict[str, Any] = {
    "/v1/jobs": msgspec.to_builtins(SPEC),
    "/v1/jobs/{job}/weight": {"weight": 2.0},
    "/v1/policy": {"policy": "las"},
    "/v1/users": {"user": "kit", "tenant": "kites", "role": "user"},
    "/v1/searches": {
        "metric": "loss",
        "parameters": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
        "job": msgspec.to_builtins(SPEC) | {"command": ["true", "{x}"]},
        "trials": 1,
    },
}
FORMS = {"/submit": {"command": "true", "total_steps": "10", "rates": "v100=2"}}


def changing_routes() -> list[tuple[str, str]]:
    """Method and path of whatever a server answers that is not only read, forecasts and logins left out."""
    app = create_app(cast(Facade, None), FrontCounters())
    found = [
        (method.upper(), path)
        for path, operations in describe(app)["paths"].items()
        for method in operations
    ]
    add_pages(app, cast(Facade, None))
    pages = [route for route in app.routes if isinstance(route, Route)]
    found += [(method, page.path) for page in pages for method in sorted(page.methods or ())]
    return [
        (method, path)
        for method, path in found
        if method not in ("GET", "HEAD") and path not in UNCHANGING
    ]


def test_routes_of_the_api_and_of_the_pages_are_among_them() -> None:
    found = changing_routes()
    assert ("POST", "/v1/arrays/{array}/cancel") in found
    assert ("POST", "/jobs/{job}/cancel") in found


@pytest.mark.parametrize(("method", "path"), changing_routes())
def test_each_request_that_changes_something_is_written(
    front: Served, method: str, path: str
) -> None:
    filled = path.format(job=10**9, array=10**9, search=10**9, name="nowhere")
    began = time.time()
    if path.startswith("/v1/"):
        body = {"json": BODIES[path]} if path in BODIES else {}
        headers = {"Authorization": f"Bearer {front.admin}"}
        answer = httpx.request(method, front.url + filled, headers=headers, **body)
    else:
        with httpx.Client(base_url=front.url, verify=False) as browser:
            browser.cookies.set(f"fairlead-{front.url.rpartition(':')[2]}", front.admin)
            form = FORMS.get(path, {"node": "nowhere"})
            answer = browser.request(method, filled, headers={"Origin": front.url}, data=form)
    with front.client() as admin:
        entries = admin.audit(since=began).entries
    asked = [one for one in entries if not one.actor]  # not what a search does
    assert [one.status for one in asked] == [answer.status_code], answer.text
    assert asked[0].action in NAMED
