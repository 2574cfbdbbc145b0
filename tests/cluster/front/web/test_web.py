"""The pages of a real server, asked without a browser: who gets in, who sees what, which forms count."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import msgspec
import pytest
from tests.cluster.served import Served, served

from fairlead.cluster.front.web import session
from fairlead.cluster.front.web.routes import LARGEST_FORM
from fairlead.cluster.protocol.job_spec import JobSpec

PAGES = ("/", "/jobs", "/jobs/0", "/jobs/0?all=1", "/nodes", "/what-if")
HOSTILE = "<script>alert(1)</script>"


def spec(name: str) -> JobSpec:
    return JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0}, name=name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Job 0 is of tenant apes, job 1 of bees."""
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        with running.client() as admin:
            admin.submit([spec(f"banana {HOSTILE}")], tenant="apes")
            admin.submit([spec("honey")], tenant="bees")
        yield running


@pytest.fixture(scope="module")
def ann(cluster: Served) -> str:
    with cluster.client() as admin:
        return admin.add_user("ann", "apes", "user")


@contextmanager
def visitor(cluster: Served, token: str = "") -> Iterator[httpx.Client]:
    """Somebody with a browser; with a token: who has logged in."""
    headers = {"Origin": cluster.url}
    with httpx.Client(base_url=cluster.url, timeout=120, headers=headers) as client:
        if token:
            found = client.post("/login", data={"token": token, "next": "/jobs"})
            assert (found.status_code, found.headers["location"]) == (303, "/jobs"), found.text
        yield client


def test_a_stranger_gets_nothing_but_the_login(cluster: Served) -> None:
    with visitor(cluster) as stranger:
        for page in PAGES:
            found = stranger.get(page)
            assert found.status_code == 303
            assert found.headers["location"].startswith("/login")
            assert not found.content
        assert stranger.get("/?part=fast").status_code == 401
        assert stranger.get("/jobs/0/tail").status_code == 401
        for change in ("/jobs/0/cancel", "/jobs/0/pause", "/nodes/drain", "/what-if"):
            assert stranger.post(change).headers["location"] == "/login"
        found = stranger.get("/login?next=//evil.example")
        assert found.status_code == 200
        assert "evil" not in found.text
        assert "banana" not in found.text


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_and_lets_no_foreign_script_run(cluster: Served, page: str) -> None:
    with visitor(cluster, cluster.admin) as admin:
        found = admin.get(page)
        assert found.status_code == 200
        assert found.text.endswith("</html>\n")
        assert HOSTILE not in found.text
        asked = found.headers["content-security-policy"]
        nonce = asked.partition("script-src 'nonce-")[2].partition("'")[0]
        assert f'nonce="{nonce}"' in found.text
        assert "unsafe" not in asked
        assert found.headers["cache-control"] == "no-store"
        assert (
            found.headers["referrer-policy"] == "same-origin"
        )  # without one, forms have no origin
        assert nonce not in admin.get(page).text


def test_the_token_is_kept_where_no_script_and_no_other_site_gets_at_it(cluster: Served) -> None:
    with visitor(cluster) as client:
        found = client.post("/login", data={"token": cluster.admin, "next": "//evil.example"})
        assert found.headers["location"] == "/"
        words = found.headers["set-cookie"].lower()
        assert "httponly" in words
        assert "samesite=strict" in words
        assert client.get("/").status_code == 200
        gone = client.post("/logout")
        assert gone.headers["location"] == "/login"
        assert client.get("/").status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", "null", None])
def test_forms_from_other_sites_do_nothing(cluster: Served, origin: str | None) -> None:
    with visitor(cluster, cluster.admin) as admin:
        del admin.headers["Origin"]
        headers = {} if origin is None else {"Origin": origin}
        for path in ("/jobs/1/cancel", "/nodes/drain", "/logout", "/login", "/what-if"):
            found = admin.post(path, headers=headers, data={"token": cluster.admin, "node": "n"})
            assert found.status_code == 403, path
            assert "set-cookie" not in found.headers
    with cluster.client() as client:
        assert client.job(1).state == "waiting"


def test_a_user_sees_and_changes_the_jobs_of_their_tenant(cluster: Served, ann: str) -> None:
    with visitor(cluster, ann) as client:
        for page in ("/", "/jobs", "/jobs?tenant=bees"):
            assert "honey" not in client.get(page).text
        assert "banana" in client.get("/jobs").text
        for path in ("/jobs/1", "/jobs/1?part=slow", "/jobs/1/tail"):
            assert client.get(path).status_code == 404
        assert client.post("/jobs/1/cancel").status_code == 404
        assert client.post("/nodes/drain", data={"node": "n"}).status_code == 403
        assert client.post("/jobs/0/pause").headers["location"] == "/jobs/0"
        assert "paused" in client.get("/jobs/0").text
        assert client.post("/jobs/0/resume").status_code == 303
        again = client.post("/jobs/0/resume")
        assert again.status_code in (400, 409)
        assert "is not paused" in again.text


def test_an_agents_token_opens_no_page(cluster: Served) -> None:
    with visitor(cluster) as client:
        assert client.post("/login", data={"token": cluster.agent}).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/jobs/99", "/jobs/x", "/jobs/-1", "/jobs/" + "9" * 40, "/jobs?after=x", "/jobs?state=odd",
     "/nodes?from=1e9", "/nodes?state=odd", "/jobs/0/tail?cursor=odd", "/jobs/%3Cb%3E"],
)  # fmt: skip
def test_bad_addresses_are_refused_in_a_sentence(cluster: Served, path: str) -> None:
    with visitor(cluster, cluster.admin) as admin:
        found = admin.get(path)
        assert found.status_code in (400, 404)
        assert "<b>" not in found.text
        assert "Traceback" not in found.text


def test_bad_forms_are_refused(cluster: Served) -> None:
    with visitor(cluster, cluster.admin) as admin:
        large = admin.post("/what-if", content=b"job=" + b"x" * (LARGEST_FORM + 1))
        assert large.status_code == 400
        assert admin.post("/what-if", content=b"\xff\xfe").status_code == 400
        assert admin.post("/what-if", content=b"&".join([b"a=1"] * 100)).status_code == 400
        assert admin.post("/nodes/drain").status_code == 404
        wrong = admin.post("/what-if", data={"job": HOSTILE})
        assert "job: is not valid TOML" in wrong.text
        assert HOSTILE not in wrong.text  # what was written stays in the form, as text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;</textarea>" in wrong.text


def test_lists_are_filtered_and_paged(cluster: Served) -> None:
    with cluster.client() as client:
        first = client.submit([spec(f"many-{i:03}") for i in range(150)], tenant="crowd")[0]
    with visitor(cluster, cluster.admin) as admin:
        page = admin.get("/jobs?state=open&tenant=crowd").text
        assert "many-000" in page
        assert "many-099" in page
        assert "many-100" not in page
        further = f"/jobs?state=open&tenant=crowd&after={first + 99}"
        assert f'href="{further.replace("&", "&amp;")}"' in page
        rest = admin.get(further).text
        assert "many-100" in rest
        assert "Next page" not in rest
        assert "many-000" not in rest
        assert "The first 40 of" in admin.get("/").text


def test_page_of_a_task_leads_to_those_of_its_array(cluster: Served) -> None:
    task = msgspec.structs.replace(spec("sweep"), array="3-5%1", after=("any:0",))
    with visitor(cluster, cluster.admin) as boss, cluster.client() as admin:
        first, *_, last = admin.submit([task])
        page = boss.get(f"/jobs/{last}").text
        assert "task 5 of " in page
        assert f'href="/jobs?array={first}"' in page
        assert "any:0" in page
        assert "waits for job 0 to end" in page
        listed = boss.get(f"/jobs?array={first}").text
        assert f"/jobs/{last}" in listed
        assert "banana" not in listed
        assert boss.get("/jobs?array=0").status_code == 404
        admin.cancel_array(first)


def test_parts_of_a_page_come_alone(cluster: Served) -> None:
    with visitor(cluster, cluster.admin) as admin:
        fast, slow = admin.get("/?part=fast").text, admin.get("/?part=slow").text
    assert fast.startswith('<section id="summary"')
    assert "<html" not in fast + slow
    assert 'id="queue"' in fast
    assert 'id="pictures"' not in fast
    assert 'id="pictures"' in slow


def test_guessing_tokens_gets_slow() -> None:
    now = [0.0]
    throttle = session.Throttle(lambda: now[0])
    for _ in range(session.MAX_FAILURES):
        assert throttle.wait_s("a") == 0.0
        throttle.failed("a")
        now[0] += 1.0
    assert throttle.wait_s("a") == session.WINDOW_S - session.MAX_FAILURES
    assert throttle.wait_s("b") == 0.0
    now[0] = session.WINDOW_S
    assert throttle.wait_s("a") == 0.0
    throttle.failed("a")
    assert throttle.wait_s("a") > 0.0
    for i in range(session.ADDRESSES):
        throttle.failed(str(i))
    assert throttle.wait_s("a") == 0.0  # what is remembered has a bound


def test_who_guesses_tokens_has_to_wait(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(tmp_path_factory.mktemp("state") / "s") as alone, visitor(alone) as client:
        # All at once: each costs half a second.
        with ThreadPoolExecutor(10) as pool:
            guesses = pool.map(
                lambda i: client.post("/login", data={"token": f"fl_{i}"}).status_code, range(10)
            )
            assert set(guesses) == {403}
        assert client.post("/login", data={"token": alone.admin}).status_code == 429
