"""Searches through the API: what is refused, and whose they are. There are no nodes: trials wait."""

import html
import io
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console
from tests.cluster.cluster import until
from tests.cluster.served import Served

from fairlead.cli.searches import search_report
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.audit import AuditEntry
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, StudySpec
from fairlead.cluster.server.runtime_options import RuntimeOptions
from fairlead.errors import InputError

STUDY = StudySpec(
    metric="loss",
    parameters={"x": ParameterRange(low=0.0, high=1.0)},
    job=JobSpec(command=("true",), total_steps=10, unmanaged=True),
    trials=5,
    parallel=2,
    sampler="random",
    name="mine",
)


@pytest.fixture(scope="module")
def ann(front: Served) -> Iterator[Client]:
    """A user of the tenant apes."""
    with front.client() as admin:
        token = admin.add_user("ann", "apes", "user")
    with front.client(token) as client:
        yield client


@pytest.fixture(scope="module")
def bob(front: Served) -> Iterator[Client]:
    """A user of another tenant."""
    with front.client() as admin:
        token = admin.add_user("bob", "bees", "user")
    with front.client(token) as client:
        yield client


def trials(client: Client, number: int, count: int) -> None:
    until(lambda: len(client.search_status(number).trials) == count, what=f"{count} trials")


def test_trials_are_jobs_of_whoever_asks_and_no_more_than_may_be_at_once(ann: Client) -> None:
    number = ann.search(STUDY)
    trials(ann, number, 2)
    view = ann.search_status(number)
    assert (view.user, view.tenant, view.state) == ("ann", "apes", "running")
    assert view.counts == {"running": 2}
    jobs = [ann.job(trial.job) for trial in view.trials]
    assert {(job.user, job.tenant, job.search) for job in jobs} == {("ann", "apes", number)}
    assert [job.name for job in jobs] == ["mine#0", "mine#1"]
    assert [job.parameters for job in jobs] == [trial.parameters for trial in view.trials]
    until(lambda: all(ann.job(job.id).weight == 0.5 for job in jobs), what="their weights")
    ann.cancel(jobs[0].id)
    trials(ann, number, 3)
    assert ann.search_status(number).trials[0].state == "stopped"
    ann.stop_search(number)
    until(lambda: not ann.jobs("open"), what="the end of the trials")
    view = ann.search_status(number)
    assert (view.state, view.reason) == ("stopped", "stopped by ann")
    assert view.counts == {"stopped": 3}
    with pytest.raises(InputError, match=f"search {number}: has ended already"):
        ann.stop_search(number)


def test_what_a_search_does_is_in_the_audit_log_with_whom_it_acts_for(
    front: Served, ann: Client
) -> None:
    number = ann.search(STUDY)
    trials(ann, number, 2)
    ann.stop_search(number)

    def entries() -> list[AuditEntry]:
        with front.client() as admin:
            found = admin.audit(user="ann").entries
        return [entry for entry in found if entry.actor == f"search {number}"]

    until(lambda: len(entries()) == 4, what="two submits and two cancels")
    jobs = [trial.job for trial in ann.search_status(number).trials]
    assert [(entry.action, entry.object) for entry in entries()] == [
        *(("submit", f"job {job}: trial {n}, running") for n, job in enumerate(jobs)),
        *(("cancel", f"job {job}: trial {n}, stopped") for n, job in enumerate(jobs)),
    ]
    assert {(entry.user, entry.tenant, entry.source) for entry in entries()} == {
        ("ann", "apes", "local")
    }


def test_another_tenant_cannot_tell_a_search_from_none(ann: Client, bob: Client) -> None:
    number = ann.search(STUDY)
    assert [view.id for view in bob.searches()] == []
    assert number in [view.id for view in ann.searches()]
    for ask in (bob.search_status, bob.search_curves, bob.stop_search):
        for other in (number, 10**9):
            with pytest.raises(InputError, match=f"^search {other}: there is none$"):
                ask(other)
    with pytest.raises(InputError, match="admin"):
        bob.search(STUDY, tenant="apes")
    ann.stop_search(number)


def test_a_key_begins_a_search_once(ann: Client, bob: Client) -> None:
    number = ann.search(STUDY, key="k")
    assert ann.search(STUDY, key="k") == number
    assert bob.search(STUDY, key="k") != number
    other = msgspec.structs.replace(STUDY, trials=6)
    with pytest.raises(InputError, match="key: 'k' was used before, for another search"):
        ann.search(other, key="k")
    assert ann.submit([STUDY.job], key="k") != [number], "jobs have keys of their own"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"trials": 0}, "body: trials: must be from 1 to 10000, got 0"),
        ({"metric": "a b"}, "body: metric: must be the name of a metric"),
        ({"trails": 5}, "body: trails: unknown field; did you mean trials?"),
        ({"parameters": {}}, "body: parameters: must be from 1 to 100, got 0"),
        ({"parameters": {"x": {"type": "float"}}}, "body: parameters.x.low: is missing"),
        ({"job": {"command": [], "total_steps": 1}}, "body: job: command: must not be empty"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_begins(
    front: Served, changes: dict[str, Any], sentence: str
) -> None:
    with front.client() as admin:
        before = len(admin.searches())
        answer = httpx.post(
            f"{front.url}/v1/searches",
            json=msgspec.to_builtins(STUDY) | changes,
            headers={"Authorization": f"Bearer {front.admin}"},
            verify=False,
            timeout=60.0,
        )
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(sentence)
        assert len(admin.searches()) == before


def test_an_admin_may_search_for_another_tenant(front: Served) -> None:
    with front.client() as admin:
        number = admin.search(STUDY, tenant="apes")
        assert admin.search_status(number).tenant == "apes"
        admin.stop_search(number)


def test_the_pages_of_searches(front: Served) -> None:
    with front.client() as admin:
        number = admin.search(STUDY)
        trials(admin, number, 2)
    with httpx.Client(base_url=front.url, verify=False, timeout=60.0) as browser:
        origin = {"Origin": front.url}
        browser.post("/login", data={"token": front.admin}, headers=origin)
        assert f'href="/searches/{number}"' in browser.get("/searches").text
        page = browser.get(f"/searches/{number}?all=1").text
        assert "No trial has completed yet." in page
        job = re.search(r'href="/jobs/(\d+)"', page)
        assert job is not None
        assert f'href="/searches/{number}"' in browser.get(f"/jobs/{job[1]}").text
        stopped = browser.post(f"/searches/{number}/stop", headers=origin)
        assert stopped.status_code == 303
        assert "Stopped by admin." in browser.get(f"/searches/{number}").text
        assert browser.get("/searches/999").status_code == 404


def test_limits_of_a_tenant_hold_for_trials(front: Served) -> None:
    front.server.service.take_over(RuntimeOptions(tenant_jobs=1))
    with front.client() as admin:
        token = admin.add_user("cy", "cows", "user")
    with front.client(token) as cy:
        number = cy.search(STUDY)
        trials(cy, number, 1)
        (job,) = cy.jobs("open")
        with pytest.raises(InputError, match="may have 1 jobs that have not ended"):
            cy.submit([STUDY.job])
        limit = "tenant 'cows': may have 1 jobs that have not ended"
        until(lambda: cy.search_status(number).waiting_reason == limit, what="the reason")
        assert cy.searches()[0].waiting_reason == limit
        told = io.StringIO()
        Console(file=told, width=200).print(search_report(cy.search_status(number), 0.0))
        assert f"No trial begins for now: {limit}\n" in told.getvalue()
        page = page_of(front, token, f"/searches/{number}")
        assert f"No trial begins for now: {limit}." in page
        assert limit in page_of(front, token, "/searches")
        cy.cancel(job.id)
        trials(cy, number, 2)
        front.server.service.take_over(RuntimeOptions(tenant_jobs_per_minute=1))
        trials(cy, number, 3)
        cy.cancel(cy.search_status(number).trials[-1].job)
        limit = "tenant 'cows': may submit 1 jobs a minute"
        until(lambda: cy.search_status(number).waiting_reason == limit, what="the other reason")
        front.server.service.take_over(RuntimeOptions())
        until(lambda: cy.search_status(number).waiting_reason == "", what="no reason any more")
        cy.stop_search(number)


def page_of(front: Served, token: str, path: str) -> str:
    """A page as the owner of a token sees it."""
    with httpx.Client(base_url=front.url, verify=False, timeout=60.0) as browser:
        browser.post("/login", data={"token": token}, headers={"Origin": front.url})
        return html.unescape(browser.get(path).text)
