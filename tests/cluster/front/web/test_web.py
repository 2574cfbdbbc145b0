"""The pages of a real server, asked without a browser: who gets in, who sees what, which forms count."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html.parser import HTMLParser

import httpx
import msgspec
import pytest
from tests.cluster.served import Served, served

from fairlead.cluster.front.facade import TooManyError
from fairlead.cluster.front.web import session
from fairlead.cluster.front.web.routes import LARGEST_FORM, LARGEST_LOGIN, _refusal
from fairlead.cluster.protocol.job_search import JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec

PAGES = ("/", "/jobs", "/jobs/0", "/jobs/0?all=1", "/nodes", "/what-if", "/submit")
HOSTILE = "<script>alert(1)</script>"


def spec(name: str) -> JobSpec:
    return JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0}, name=name)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Job 0 is of tenant apes, job 1 of bees."""
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        with running.client() as admin:
            admin.submit([spec(f"banana {HOSTILE}")], tenant="apes")
            admin.submit([spec("honey")], tenant="bees")
        yield running


@contextmanager
def visitor(front: Served, token: str = "") -> Iterator[httpx.Client]:
    """Somebody with a browser; with a token: who has logged in."""
    headers = {"Origin": front.url}
    with httpx.Client(base_url=front.url, timeout=120, headers=headers) as client:
        if token:
            found = client.post("/login", data={"token": token, "next": "/jobs"})
            assert (found.status_code, found.headers["location"]) == (303, "/jobs"), found.text
        yield client


def test_a_stranger_gets_nothing_but_the_login(front: Served) -> None:
    with visitor(front) as stranger:
        for page in PAGES:
            found = stranger.get(page)
            assert found.status_code == 303
            assert found.headers["location"].startswith("/login")
            assert not found.content
        assert stranger.get("/?part=fast").status_code == 401
        assert stranger.get("/jobs/0/tail").status_code == 401
        for change in ("/jobs/0/cancel", "/jobs/0/pause", "/nodes/drain", "/what-if", "/submit"):
            assert stranger.post(change).headers["location"] == "/login"
        found = stranger.get("/login?next=//evil.example")
        assert found.status_code == 200
        assert "evil" not in found.text
        assert "banana" not in found.text


def test_a_strangers_login_is_short(front: Served) -> None:
    with visitor(front) as stranger:
        found = stranger.post("/login", content=b"token=" + b"x" * LARGEST_LOGIN)
        assert found.status_code == 413
        assert f"the form is larger than {LARGEST_LOGIN:,} bytes" in found.text


def test_a_form_for_which_there_is_no_room_now_can_be_sent_again() -> None:
    page = _refusal(TooManyError("try again in a moment"))
    assert (page.status, page.title) == (429, "This cannot be done now")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_and_lets_no_foreign_script_run(front: Served, page: str) -> None:
    with visitor(front, front.admin) as admin:
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


def test_the_token_is_kept_where_no_script_and_no_other_site_gets_at_it(front: Served) -> None:
    with visitor(front) as client:
        found = client.post("/login", data={"token": front.admin, "next": "//evil.example"})
        assert found.headers["location"] == "/"
        words = found.headers["set-cookie"].lower()
        assert "httponly" in words
        assert "samesite=strict" in words
        assert client.get("/").status_code == 200
        gone = client.post("/logout")
        assert gone.headers["location"] == "/login"
        assert client.get("/").status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", "null", None])
def test_forms_from_other_sites_do_nothing(front: Served, origin: str | None) -> None:
    with visitor(front, front.admin) as admin:
        del admin.headers["Origin"]
        headers = {} if origin is None else {"Origin": origin}
        for path in ("/jobs/1/cancel", "/nodes/drain", "/logout", "/login", "/what-if"):
            found = admin.post(path, headers=headers, data={"token": front.admin, "node": "n"})
            assert found.status_code == 403, path
            assert "set-cookie" not in found.headers
    with front.client() as client:
        assert client.job(1).state == "waiting"


def test_a_user_sees_and_changes_the_jobs_of_their_tenant(front: Served, ann: str) -> None:
    with visitor(front, ann) as client:
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


def test_an_agents_token_opens_no_page(front: Served) -> None:
    with visitor(front) as client:
        assert client.post("/login", data={"token": front.agent}).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/jobs/99", "/jobs/x", "/jobs/-1", "/jobs/" + "9" * 40, "/jobs?from=x", "/jobs?state=odd",
     "/jobs?sort=odd", "/jobs?sort=--id", "/jobs?search=" + "x" * 201,
     "/nodes?from=1e9", "/nodes?state=odd", "/jobs/0/tail?cursor=odd", "/jobs/%3Cb%3E"],
)  # fmt: skip
def test_bad_addresses_are_refused_in_a_sentence(front: Served, path: str) -> None:
    with visitor(front, front.admin) as admin:
        found = admin.get(path)
        assert found.status_code in (400, 404)
        assert "<b>" not in found.text
        assert "Traceback" not in found.text


def test_bad_forms_are_refused(front: Served) -> None:
    with visitor(front, front.admin) as admin:
        large = admin.post("/what-if", content=b"job=" + b"x" * (LARGEST_FORM + 1))
        assert large.status_code == 413
        assert admin.post("/what-if", content=b"\xff\xfe").status_code == 400
        assert admin.post("/what-if", content=b"&".join([b"a=1"] * 100)).status_code == 400
        assert admin.post("/nodes/drain").status_code == 404
        wrong = admin.post("/what-if", data={"job": HOSTILE})
        assert "job:1: is not valid TOML" in wrong.text
        assert HOSTILE not in wrong.text  # what was written stays in the form, as text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;</textarea>" in wrong.text


class Listed(HTMLParser):
    """The list of jobs: ids in order, links by their ids, what is said of the order and the number."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[int] = []
        self.links: dict[str, str] = {}
        self.sorted: dict[str, str] = {}  # title of a column -> which way
        self.chosen: list[str] = []
        self.text = ""
        self._order = ""
        self._in_body = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in_body = tag == "tbody" or (self._in_body and tag != "tfoot")
        if tag == "th":
            self._order = given.get("aria-sort") or ""
        if tag == "a":
            href = given.get("href") or ""
            self.links[given.get("id") or ""] = href
            if self._in_body and given.get("tabindex") is None and href.startswith("/jobs/"):
                self.ids.append(int(href.removeprefix("/jobs/")))
            if given.get("aria-current") == "true":
                self.chosen.append(given.get("id") or "")

    def handle_endtag(self, tag: str) -> None:
        self._in_body = self._in_body and tag != "tbody"
        if tag == "th":
            self._order = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._order:
            self.sorted[data] = self._order


def test_jobs_are_searched_filtered_sorted_and_paged(front: Served) -> None:
    names = [f"many-{(7 * i) % 150:03}" for i in range(150)]
    with front.client() as client:
        ids = client.submit([spec(name) for name in names], tenant="crowd")
        client.cancel(ids[3])
        found = client.find_jobs(JobQuery(search="many-02", sort="name", descending=True))
        assert [job.name for job in found.jobs] == [f"many-02{i}" for i in range(9, -1, -1)]
        assert (found.found, found.states) == (10, {"waiting": 9, "cancelled": 1})
    with visitor(front, front.admin) as admin:

        def listed(url: str) -> Listed:
            answer = admin.get(url)
            assert answer.status_code == 200, url
            return Listed(answer.text)

        newest = listed("/jobs?tenant=crowd")
        assert newest.ids == ids[:-51:-1]
        assert newest.sorted == {"Job": "descending"}
        assert "1 to 50 of 150" in newest.text
        assert newest.chosen == ["state-all"]
        rest = listed(newest.links["page-next"])
        assert rest.ids == ids[-51:-101:-1]
        last = listed(rest.links["page-next"])
        assert last.ids == ids[49::-1]
        assert "page-next" not in last.links
        assert listed(rest.links["page-prev"]).ids == newest.ids

        waiting = listed(newest.links["state-waiting"])
        assert waiting.chosen == ["state-waiting"]
        assert "of 149" in waiting.text
        assert ids[3] not in waiting.ids
        assert listed(newest.links["state-cancelled"]).ids == [ids[3]]

        by_name = listed(waiting.links["sort-name"])
        assert by_name.sorted == {"Name": "ascending"}
        in_order = sorted(
            (name, job) for name, job in zip(names, ids, strict=True) if job != ids[3]
        )
        assert by_name.ids == [job for _, job in in_order[:50]]
        turned = listed(by_name.links["sort-name"])
        assert turned.sorted == {"Name": "descending"}
        assert turned.ids == [job for _, job in in_order[:-51:-1]]
        assert "page-next" in turned.links
        assert listed(turned.links["page-next"]).ids == [job for _, job in in_order[-51:-101:-1]]

        assert listed("/jobs?search=MANY-149+crowd").ids == [ids[names.index("many-149")]]
        assert ids[5] in listed(f"/jobs?search={ids[5]}").ids
        assert "0 of 0" in listed("/jobs?search=nobody").text
        assert "The first 40 of" in admin.get("/").text


def test_a_list_of_ones_own_jobs_has_no_others(front: Served, ann: str) -> None:
    with front.client(ann) as client:
        mine = client.submit([spec("mine")])
    with visitor(front, ann) as client:
        everyone = Listed(client.get("/jobs").text)
        assert len(everyone.ids) > 1
        assert Listed(client.get("/jobs?mine=1").text).ids == mine
        assert Listed(client.get("/jobs?search=honey").text).ids == []
        assert Listed(client.get("/jobs?tenant=bees&search=honey").text).ids == []
        assert Listed(client.get("/jobs?tenant=bees").text).ids == []
        assert Listed(client.get("/jobs?tenant=apes").text).ids == everyone.ids
    with front.client(ann) as client:
        assert client.find_jobs(JobQuery(tenant="bees")).found == 0


class Form(HTMLParser):
    """The forms of the page that submits: values by name, what is wrong with which field, and the alert."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.alert = ""
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = given.get("name") or ""
        if tag in ("input", "textarea") and given.get("type") != "checkbox":
            self.values[name] = given.get("value") or ""
            if given.get("aria-invalid") == "true":
                self.wrong[name] = ""
                assert f"{name}-problem" in (given.get("aria-describedby") or "").split()
        self._inside = name if tag == "textarea" else given.get("role") or given.get("id") or ""

    def handle_data(self, data: str) -> None:
        if self._inside == "alert":
            self.alert += data
        elif self._inside.endswith("-problem"):
            self.wrong[self._inside.removesuffix("-problem")] += data
        elif self._inside in self.values:
            self.values[self._inside] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def test_a_job_is_submitted_by_a_form_once_however_often_it_is_sent(
    front: Served, ann: str
) -> None:
    with visitor(front, ann) as client, front.client(ann) as api:
        form = Form(client.get("/submit").text)
        assert "tenant" not in form.values  # a user has one
        fields = form.values | {
            "command": "python 'my train.py' --lr 0.1", "total_steps": "500", "name": HOSTILE,
            "family": "", "scale_factor": "2", "rates": "v100=10, k80 = 3.5", "slo_s": "3600",
            "unmanaged": "1",
        }  # fmt: skip
        del fields["toml"]
        sent = client.post("/submit", data=fields)
        assert sent.status_code == 303
        target = sent.headers["location"]
        assert client.post("/submit", data=fields).headers["location"] == target
        job = api.job(int(target.removeprefix("/jobs/")))
        assert (job.name, job.user, job.tenant) == (HOSTILE, "ann", "apes")
        assert (job.total_steps, job.scale_factor, job.slo_s) == (500.0, 2, 3600.0)
        assert job.user_estimates == {"v100": 10.0, "k80": 3.5}
        row = front.server.service.store.job(job.id)
        assert row is not None
        assert row.spec.command == ("python", "my train.py", "--lr", "0.1")
        assert row.spec.unmanaged
        other = client.post("/submit", data=fields | {"total_steps": "501"})
        assert other.headers["location"] != target
        assert HOSTILE not in client.get(target).text


def test_a_job_is_submitted_as_the_text_of_its_file(front: Served) -> None:
    lines = ['command = "sleep 5"', "total_steps = 5", 'name = "pasted"', "[rates]", "v100 = 1.0"]
    text = "\r\n".join(lines)  # as browsers send it
    with visitor(front, front.admin) as admin, front.client() as api:
        sent = admin.post("/submit", data={"toml": text, "number": "1", "tenant": "bees"})
        job = api.job(int(sent.headers["location"].removeprefix("/jobs/")))
        assert (job.name, job.tenant, job.user_estimates) == ("pasted", "bees", {"v100": 1.0})
        wrong = admin.post("/submit", data={"toml": text.replace("= 5", "= -5"), "number": "1"})
        assert wrong.status_code == 400
        form = Form(wrong.text)
        assert form.alert.startswith("job.toml:2: total_steps: must be from 1")
        assert form.wrong == {"toml": form.alert}
        assert form.values["toml"].startswith('command = "sleep 5"\ntotal_steps = -5')


GOOD = {"command": "true", "total_steps": "10", "rates": "v100=1"}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [({"total_steps": ""}, "total_steps", "is missing"), ({"command": " "}, "command", "is missing"),
     ({"total_steps": "ten"}, "total_steps", "expected int, got 'ten'"),
     ({"total_steps": "0"}, "total_steps", "must be from 1 to"),
     ({"command": "echo 'x"}, "command", "No closing quotation"),
     ({"rates": "v100"}, "rates", "expected v100=10, got 'v100'"),
     ({"rates": "v100=fast"}, "rates", "got 'fast'"), ({"rates": "v100=0"}, "rates", "all are 0"),
     ({"slo_s": "0.5"}, "slo_s", "must be from 1 to"), ({"cwd": "here"}, "cwd", "an absolute path"),
     ({"scale_factor": "1.5"}, "scale_factor", "got '1.5'"), ({"name": "x" * 201}, "name", "at most 200"),
     ({"weight": "nan"}, "weight", "must be from")],
)  # fmt: skip
def test_what_is_wrong_with_a_form_is_said_at_its_field(
    front: Served, changes: dict[str, str], field: str, words: str
) -> None:
    with visitor(front, front.admin) as admin, front.client() as api:
        before = api.find_jobs(JobQuery()).found
        found = admin.post("/submit", data=GOOD | changes)
        assert found.status_code == 400
        form = Form(found.text)
        assert form.wrong == {field: form.alert}
        assert form.alert.startswith(f"job: {field}")
        assert words in form.alert
        kept = {name: value.strip() for name, value in (GOOD | changes).items() if name in GOOD}
        assert {name: form.values[name].strip() for name in GOOD} == kept
        assert api.find_jobs(JobQuery()).found == before


def test_a_ticked_box_has_one_value(front: Served) -> None:
    with visitor(front, front.admin) as admin:
        found = admin.post("/submit", data=GOOD | {"unmanaged": "on"})
        assert found.status_code == 400
        assert Form(found.text).alert == "job: unmanaged: expected 1 or nothing, got 'on'"


def test_who_may_not_submit_for_a_tenant_is_told_so(front: Served, ann: str) -> None:
    with visitor(front, ann) as client:
        found = client.post("/submit", data=GOOD | {"tenant": "bees"})
        assert found.status_code == 403
        assert "only an admin may do this" in Form(found.text).alert
        del client.headers["Origin"]
        assert client.post("/submit", data=GOOD).status_code == 403


def test_page_of_a_task_leads_to_those_of_its_array(front: Served) -> None:
    task = msgspec.structs.replace(spec("sweep"), array="3-5%1", after=("any:0",))
    with visitor(front, front.admin) as boss, front.client() as admin:
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


def test_parts_of_a_page_come_alone(front: Served) -> None:
    with visitor(front, front.admin) as admin:
        fast, slow = admin.get("/?part=fast").text, admin.get("/?part=slow").text
    assert fast.startswith('<section id="alerts" data-live="fast" hidden')
    assert 'id="summary"' in fast
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


def test_who_guesses_tokens_has_to_wait_and_who_has_one_does_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """They may share an address, behind a proxy."""
    with served(tmp_path_factory.mktemp("state") / "s") as alone, visitor(alone) as client:
        # All at once: each costs half a second.
        with ThreadPoolExecutor(10) as pool:
            guesses = pool.map(
                lambda i: client.post("/login", data={"token": f"fl_{i}"}).status_code, range(10)
            )
            assert set(guesses) == {403}
        found = client.post("/login", data={"token": "fl_11"})
        assert found.status_code == 429
        assert f"wait {found.headers['retry-after']} s." in found.text
        assert client.post("/login", data={"token": alone.admin}).status_code == 303
