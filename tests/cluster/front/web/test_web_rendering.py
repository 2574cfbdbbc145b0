"""Pages from views: what is shown, that nothing in a name becomes HTML, and that large clusters fit."""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.analysis.report.markup import tag
from fairlead.cluster.front.web import (
    alerts,
    charts,
    overview,
    tables,
)
from fairlead.cluster.front.web import (
    job_page as jobpage,
)
from fairlead.cluster.front.web import (
    what_if as whatif,
)
from fairlead.cluster.front.web.layout import (
    Page,
    Section,
    document,
    policy,
)
from fairlead.cluster.front.web.login import safe_target
from fairlead.cluster.front.web.markup import address, strip_escapes
from fairlead.cluster.front.web.usage_section import usage_section
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Comparison,
    DeviceUsageView,
    Explanation,
    ForecastSummary,
    JobView,
    NodeView,
    Sample,
    StatusView,
    TenantView,
)
from fairlead.errors import InputError

ADMIN = Caller("root", "", "admin")
HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>&amp;\x1b[31m\x00"
JOB = JobView(
    id=7, name="train", tenant="vision", user="ada", family="ResNet-18", scale_factor=1, weight=1.0,
    state="running", total_steps=1000.0, steps=250.0, saved_step=200, submitted_s=10.0, started_s=15.0,
    ended_s=None, node="a", accelerator="v100", devices=(0,), attempt=2, starts=2, preemptions=1, failures=0,
    run_s=50.0, lost_steps=0.0, overhead_s=2.0, rates={"v100": 5.0}, measured_rate=10.0, slo_s=None,
    reason="",
)  # fmt: skip
ATTEMPT = AttemptView(
    job=7, attempt=1, node="a", accelerator="v100", devices=(0,), began_s=12.0, ended_s=40.0, from_step=0.0,
    to_step=200.0, why="preempted", wait_s=0.5, start_s=2.0, load_s=-1.0, save_s=0.25, stop_s=0.1,
    lost_steps=3.0,
)  # fmt: skip
TENANT = TenantView(
    name="vision", jobs=2, running=1, done=3, devices=1, share_promised=0.5, share_received=0.25,
    device_s=100.0, lost_device_s=5.0, mean_rho=0.9,
)  # fmt: skip
STATUS = StatusView(
    version="1", now_s=100.0, policy="las", profile="default", round=3, round_s=6.0, round_ends_in_s=2.0,
    jobs={"running": 1, "waiting": 1}, devices={"v100": (4, 3, 1)}, solve="ok", solve_s=0.02, decide_s=0.001,
    journal_records=9, tenants=(TENANT,),
)  # fmt: skip


def node(number: int = 0, devices: int = 2, **fields: object) -> NodeView:
    known: dict[str, object] = {
        "name": f"n{number}", "accelerator": "v100", "devices": devices, "state": "up", "host": "127.0.0.1",
        "simulated_devices": True,
        "last_seen_s": 0.2, "jobs": tuple((7,) if i == 0 else () for i in range(devices)),
    }  # fmt: skip
    return msgspec.convert(known | fields, NodeView)


def sample(time_s: float, held: int = 2) -> Sample:
    return Sample(
        time_s=time_s, allocated={"v100": held, "k80": 1},
        capacity={"v100": 4, "k80": 2}, running=2, waiting=0,
        share={"vision": 1.0},
    )  # fmt: skip


class Elements(HTMLParser):
    """Names of all elements, and all attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def device_usage(rank: int = 0, **fields: object) -> DeviceUsageView:
    known: dict[str, object] = {
        "attempt": 2, "rank": rank, "node": "a", "device": rank, "start_s": 60.0, "width_s": 10.0,
        "busy": (0.5, None, 1.0), "memory_bytes": (1 << 30, None, 3 << 30), "memory_total_bytes": 16 << 30,
    }  # fmt: skip
    return msgspec.convert(known | fields, DeviceUsageView)


def everything(words: str) -> str:
    """All that is drawn of a cluster in which all that somebody chose is these words."""
    job = msgspec.structs.replace(
        JOB, name=words, tenant=words, user=words, family=words, node=words, accelerator=words,
        reason=words, rates={words: 1.0},
    )  # fmt: skip
    attempt = msgspec.structs.replace(ATTEMPT, node=words, accelerator=words, why=words)
    tenant = msgspec.structs.replace(TENANT, name=words)
    status = msgspec.structs.replace(
        STATUS, policy=words, solve=words, devices={words: (1, 1, 1)}, tenants=(tenant,)
    )
    places = [node(name=words, accelerator=words, host=words)]
    story = Explanation(
        job=job, why_here=words, finish_s=9.0, finish_low_s=5.0, finish_high_s=12.0, forecasts=20,
        attempts=(attempt,), events=((12.0, words),),
    )  # fmt: skip
    samples = [
        Sample(
            time_s=1.0, allocated={words: 1}, capacity={words: 1}, running=1, waiting=0, share={}
        )
    ]
    outlook = ForecastSummary(makespan_s=9.0, mean_left_s=4.0, finish_s={7: 9.0}, utilization=0.5)
    answer = Comparison(now=outlook, then=outlook, changed=((7, 9.0, 8.0),), notes=(words,))
    sections = [
        overview.summary(status), overview.queue([job], 1), overview.pictures(status, samples, "hour"),
        overview.by_tenant(status), overview.devices(places), jobpage.facts(job, ADMIN, 100.0),
        jobpage.attempts_section(job, [attempt], 100.0), jobpage.attempt_history(story, 100.0),
        jobpage.log_section(job, words, words), usage_section([device_usage(node=words)], 100.0),
        whatif.answer(answer), Section("nodes", "Nodes", tables.nodes_table(places, ADMIN)),
        Section("grid", "Grid", charts.occupancy(places)),
    ]  # fmt: skip
    return document(Page(words, words, sections), Caller(words, words, "admin"), "nonce")


def test_an_interval_that_is_assumed_is_not_told_as_one_that_held() -> None:
    story = Explanation(
        job=JOB, why_here="It runs.", finish_s=9.0, finish_low_s=5.0, finish_high_s=12.0,
        forecasts=3, attempts=(), events=(), forecast_outcomes=2,
    )  # fmt: skip
    young = str(jobpage.attempt_history(story, 100.0))
    assert "probably between" in young
    assert "not calibrated yet: 2 of 20 like forecasts have been checked" in young
    known = str(
        jobpage.attempt_history(msgspec.structs.replace(story, forecast_outcomes=20), 100.0)
    )
    assert "8 of 10 times between" in known
    assert "calibrated" not in known


def test_no_name_becomes_html() -> None:
    harmless, hostile = Elements(everything("train")), Elements(everything(HOSTILE))
    assert hostile.names == harmless.names
    assert hostile.attributes == harmless.attributes
    assert "<script>alert(1)</script>" in hostile.text


@given(st.text(max_size=40))
def test_text_comes_back_from_html_as_it_was(text: str) -> None:
    shown = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in text)
    shown = shown.encode("utf-8", "replace").decode()
    assert Elements(tag("p", text)).text == shown
    assert Elements(tag("p", "x", title=text)).attributes == ["title"]


def test_pages_need_nothing_from_elsewhere_and_no_style_or_script_without_the_nonce() -> None:
    html = everything("train")
    assert not re.search(r"""(src|href|action)\s*=\s*["']?(https?:|//)""", html)
    assert not re.search(r"<(script|style)(?![^>]* nonce=\"nonce\")", html)
    assert not [
        name for name in Elements(html).attributes if name == "style" or name.startswith("on")
    ]
    assert "unsafe" not in policy("nonce")
    assert "default-src 'none'" in policy("nonce")


def test_every_picture_is_well_formed_and_named() -> None:
    pictures = [
        charts.devices_over_time([sample(1.0), sample(7.0, 4)], 13.0),
        charts.devices_over_time([], 13.0),
        charts.shares([TENANT]),
        charts.shares([]),
        charts.fairness([TENANT, msgspec.structs.replace(TENANT, mean_rho=None)]),
        charts.lost_work([msgspec.structs.replace(TENANT, device_s=0.0)]),
        charts.occupancy([node(0), node(1, state="lost"), node(2, jobs=((1, 2), ()))]),
        charts.timeline(
            [ATTEMPT, msgspec.structs.replace(ATTEMPT, attempt=2, ended_s=None)], 10.0, 60.0
        ),
        charts.timeline([], 10.0, 60.0),
    ]
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert not re.search(r"\b(nan|inf)\b", picture)


def test_devices_over_time_are_means_of_groups_of_rounds() -> None:
    few = charts.devices_over_time([sample(float(i), i % 2 * 4) for i in range(100)], 100.0)
    many = charts.devices_over_time([sample(float(i), i % 2 * 4) for i in range(50_000)], 50_000.0)
    assert few.count("H") > 100
    assert len(many) < 20_000
    heights = re.search(r'<path d="M[0-9.]+ ([0-9.]+)H[0-9.]+V([0-9.]+)', many)
    assert heights is not None
    assert heights[1] == heights[2]  # every group holds as many full rounds as empty ones


def test_the_devices_of_the_newest_attempt_are_drawn_and_told() -> None:
    section = usage_section(
        [device_usage(attempt=1, node="old"), *(device_usage(i) for i in range(20))], 100.0
    )
    shown = Elements(section.body)
    assert not section.hidden
    assert "old" not in shown.text
    assert "The first 16 of 20 devices are drawn." in shown.text
    assert "100 %75 %3.0 GiB (19 %)3.0 GiB (19 %)" in shown.text  # busy now, on average; memory
    pictures = re.findall(r"<svg[^>]*role=.*?</svg>", section.body, re.DOTALL)
    assert len(pictures) == 2
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        paths = root.findall(".//{*}path[@fill='none']")
        assert len(paths) == 16
        assert paths[0].get("d", "").count("M") == 2  # a gap where nothing was told
        assert not re.search(r"\b(nan|inf)\b", picture)
    assert usage_section([], 100.0).hidden
    unknown = usage_section([device_usage(busy=(None,), memory_bytes=(1,))], 100.0)
    assert "--0.0 GiB (0 %)" in Elements(unknown.body).text


def test_a_timeline_shows_each_start_and_its_costs() -> None:
    runs = msgspec.structs.replace(ATTEMPT, attempt=2, began_s=45.0, ended_s=None, why="", node="b")
    picture = charts.timeline([ATTEMPT, runs], 10.0, 60.0)
    assert "attempt 1 on a, 28 s: preempted" in picture
    assert "attempt 2 on b, 15 s: runs" in picture
    assert picture.count('class="cost"') == 3  # before and after the first, before the second


def test_a_job_without_forecasts_has_a_page_with_ages() -> None:
    told = Explanation(
        job=JOB, why_here="It waits.", finish_s=None, finish_low_s=None, finish_high_s=None,
        forecasts=0, attempts=(ATTEMPT,), events=((12.0, "submitted"),),
    )  # fmt: skip
    shown = Elements(jobpage.attempt_history(told, 100.0).body).text
    assert "No forecast: it takes no part now." in shown
    assert "1 min 28 s ago submitted" in shown
    assert "1 min 28 s ago" in Elements(tables.attempts_table([ATTEMPT], 100.0)).text


def test_a_policy_breaks_between_its_words() -> None:
    status = msgspec.structs.replace(STATUS, policy="max_min_<b>")
    assert "max_<wbr>min_<wbr>&lt;b&gt;" in overview.summary(status).body


@pytest.mark.parametrize(
    ("deadline", "left_s", "words", "tone"),
    [("past", -34.0, "late by 34 s", "bad"), ("missed", -180.0, "missed by 3 min", "bad"),
     ("missed", 60.0, "missed", "bad"), ("out of reach", 60.0, "in 1 min: cannot be met", "bad"),
     ("at risk", 60.0, "in 1 min: at risk", "warn"), ("met", 5.0, "met", "good"),
     ("forecast met", 60.0, "in 1 min", ""), ("withdrawn", 60.0, "-", "")],
)  # fmt: skip
def test_a_deadline_in_danger_is_marked_by_words_and_colour(
    deadline: str, left_s: float, words: str, tone: str
) -> None:
    job = msgspec.structs.replace(JOB, deadline=deadline, deadline_left_s=left_s, slo_s=100.0)
    mark = tag("p", tables.deadline_mark(job))
    assert Elements(mark).text.removeprefix("⚠ ") == words
    assert re.findall(r'class="state (\w+)"', mark) == ([tone] if tone else [])
    assert ("⚠" in mark) == (tone in ("bad", "warn"))
    assert mark.removeprefix("<p>").removesuffix("</p>") in tables.jobs_table([job])
    facts = jobpage.facts(job, ADMIN, 100.0)
    assert words == "-" or words in Elements(facts.body).text
    assert ("deadline: " in (facts.tools or "")) == (deadline in ("past", "missed"))


def test_old_state_is_said_to_be_old() -> None:
    words = "The scheduler has not answered for 21 s: this is the state before that."
    status = msgspec.structs.replace(STATUS, age_s=21.0)
    assert words in Elements(overview.summary(status).body).text
    assert "not answered" not in overview.summary(STATUS).body
    job = msgspec.structs.replace(JOB, age_s=21.0)
    assert words in Elements(jobpage.facts(job, ADMIN, 100.0).body).text
    assert "not answered" not in jobpage.facts(JOB, ADMIN, 100.0).body


def test_a_halted_cluster_is_said_in_a_banner() -> None:
    status = msgspec.structs.replace(STATUS, halted="<b> is an older copy")
    body = overview.summary(status).body
    assert "banner bad" in body
    assert "&lt;b&gt; is an older copy" in body
    assert "Halted" not in overview.summary(STATUS).body


def test_nodes_that_have_failed_are_said_with_reason_and_since_when() -> None:
    lost = node(4, state="lost", reason="silent for <b>", state_since_s=190.0)
    section = alerts.alerts([lost, node(5, state="unhealthy")], live=True)
    assert (section.title, section.live, section.hidden) == ("2 nodes have failed", "fast", False)
    shown = Elements(section.body)
    assert re.search(
        r"n4 is lost since \d{4}-\d\d-\d\d [\d:]{8} UTC \(3 min 10 s\): silent for <b>", shown.text
    )
    assert "n5 is unhealthy since before the server was started" in shown.text
    assert 'href="/nodes?name=n4"' in section.body
    assert "b" not in shown.names
    many = alerts.alerts([node(i, state="lost") for i in range(30)], live=False)
    assert 'href="/nodes?state=failed">and 25 more<' in many.body
    assert many.live == ""
    assert alerts.alerts([], live=True).hidden


def test_a_failed_solve_is_said_in_a_banner() -> None:
    def shown(solve: str) -> str:
        return overview.summary(msgspec.structs.replace(STATUS, solve=solve)).body

    assert "banner" not in shown("ok")
    failed = shown("failed: no answer; the shares of 120 s ago hold")
    assert "the shares of 120 s ago hold" in failed
    assert "banner bad" in failed
    assert "banner cool" in shown("under way for 3 s")


def test_buttons_are_for_those_who_may_press_them() -> None:
    def buttons(caller: Caller, state: str = "running") -> list[str]:
        shown = jobpage.facts(msgspec.structs.replace(JOB, state=state), caller, 100.0)
        return re.findall(r'action="/jobs/7/(\w+)"', shown.tools or "")

    assert buttons(ADMIN) == ["pause", "cancel"]
    assert buttons(ADMIN, "paused") == ["resume", "cancel"]
    assert buttons(ADMIN, "completed") == []
    assert buttons(Caller("ada", "vision", "user")) == ["pause", "cancel"]
    assert buttons(Caller("eve", "speech", "user")) == []
    assert "Drain" in tables.nodes_table([node()], ADMIN)
    assert "Drain" not in tables.nodes_table([node()], Caller("ada", "vision", "user"))


def test_a_node_shows_whom_its_jobs_run_as() -> None:
    assert "isolated" not in tables.nodes_table([node()], ADMIN)
    for said in ("isolated", "jobs run as fairlead"):
        assert said in tables.nodes_table([node(runs_as=said)], ADMIN)


def test_a_job_of_another_tenant_is_only_there() -> None:
    shown = tables.cells(node(jobs=((-1,), (7,))))
    assert re.findall(r'href="([^"]*)"', shown) == ["/jobs/7"]
    assert "-1" not in shown


def test_large_clusters_make_small_pages() -> None:
    nodes = [node(i, devices=8, jobs=[[i * 8 + d] for d in range(8)]) for i in range(1000)]
    sections = [
        overview.summary(STATUS),
        overview.queue([JOB] * overview.QUEUE, 10_000),
        overview.pictures(STATUS, [sample(float(i)) for i in range(10_000)], "all"),
        overview.devices(nodes),
    ]
    assert len(document(Page("Cluster", "", sections), ADMIN, "n").encode()) < 400_000
    jobs = Section("list", "Jobs", tables.jobs_table([JOB] * 100))
    assert len(document(Page("Jobs", "", [jobs]), ADMIN, "n").encode()) < 150_000


def test_logs_are_shown_without_colours_and_with_the_last_state_of_a_line() -> None:
    assert strip_escapes("\x1b[31mred\x1b[0m\r\n10 %\r50 %\r100 %\nend\r") == "red\n100 %\nend"
    assert len(strip_escapes("x" * 1_000_000)) == 1_000_000  # in linear time
    assert strip_escapes("\x1b]" * 100_000 + "a").endswith("a")


def test_after_the_login_one_stays_on_this_server() -> None:
    assert safe_target("/jobs?state=open&after=3") == "/jobs?state=open&after=3"
    for elsewhere in (
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "",
        "/a\r\nb: c",
    ):
        assert safe_target(elsewhere) == "/"
    assert address("/jobs", tenant="a&b=<", state="") == "/jobs?tenant=a%26b%3D%3C"


def test_a_question_is_read_from_a_form() -> None:
    asked = whatif.question(
        {
            "job": 'command = "python train.py"\r\ntotal_steps = 10\r\nrates = { v100 = 2.0 }',
            "add_nodes": "v100=4, k80 = 2",
            "remove_nodes": "a, b c",
            "policy": " fifo ",
        }
    )
    assert asked.add_jobs[0].command == ("python", "train.py")
    assert asked.add_nodes == {"v100": 4, "k80": 2}
    assert asked.remove_nodes == ("a", "b", "c")
    assert asked.policy == "fifo"


@pytest.mark.parametrize(
    ("form", "words"),
    [({"job": "x ="}, "job:1: is not valid TOML"), ({"job": "total_steps = 3"}, "job 1: "),
     ({"job": 'command = ["a"]\ntotal_steps = -1'}, "total_steps: must be from 1"),
     ({"job": "[jobs]"}, "two brackets"), ({"job": "command = '\"'\ntotal_steps = 1"}, "job 1: command"),
     ({"add_nodes": "v100"}, "got 'v100'"), ({"add_nodes": "v100=0"}, "got 'v100=0'")],
)  # fmt: skip
def test_what_is_wrong_with_a_question_is_said(form: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        whatif.question(form)


def test_the_last_traceback_is_on_the_page_and_nothing_in_it_becomes_html() -> None:
    failed = msgspec.structs.replace(ATTEMPT, why="failed: ValueError: no", traceback=HOSTILE)
    later = msgspec.structs.replace(ATTEMPT, attempt=2, ended_s=None, why="")
    (section,) = jobpage.tracebacks([failed, later])
    assert "<script>" not in str(section.body)
    assert "&lt;script&gt;" in str(section.body)
    assert "Attempt 1, on a: failed: ValueError: no." in str(section.body)
    assert jobpage.tracebacks([ATTEMPT, later]) == []
