"""What Prometheus is told, and what is shown of it."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.served import Served, served
from tests.free_port import free_port

from fairlead.cluster.protocol.job_spec import JobSpec

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "fairlead.json"
ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml"
SPEC = JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0})
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        with running.client() as admin:
            admin.submit([SPEC, SPEC], tenant="apes")
            (third,) = admin.submit([SPEC], tenant="bees")
            admin.pause(third)
        yield running


def scrape(cluster: Served) -> dict[str, Any]:
    """Metric families by name."""
    headers = {"Authorization": f"Bearer {cluster.admin}"}
    found = httpx.get(f"{cluster.url}/metrics", headers=headers, timeout=LIMIT_S)
    assert found.headers["Content-Type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(found.text))
    by_name = {family.name: family for family in families}
    assert len(by_name) == len(families), "a metric is told twice"
    return by_name


def test_every_metric_says_what_it_is(cluster: Served) -> None:
    for family in scrape(cluster).values():
        assert family.documentation, family.name
        if family.name.startswith("fairlead_") and family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples)


def test_jobs_are_counted_by_state_and_tenant(cluster: Served) -> None:
    told = {
        (sample.labels["state"], sample.labels["tenant"]): sample.value
        for sample in scrape(cluster)["fairlead_jobs"].samples
    }
    assert told["waiting", "apes"] == 2
    assert told["paused", "bees"] == 1


def test_what_happens_is_counted(cluster: Served) -> None:
    before = scrape(cluster)
    with cluster.client() as admin:
        admin.submit([SPEC] * 4, tenant="cats")
    after = scrape(cluster)

    def value(families: dict[str, Any], family: str, sample: str) -> float:
        return float(sum(one.value for one in families[family].samples if one.name == sample))

    for family, sample, more in (
        ("fairlead_jobs_submitted", "fairlead_jobs_submitted_total", 4),
        ("fairlead_commit_seconds", "fairlead_commit_seconds_count", 1),
        ("fairlead_http_request_seconds", "fairlead_http_request_seconds_count", 2),
    ):
        assert value(after, family, sample) - value(before, family, sample) >= more


def test_metrics_are_open_where_the_server_is_told_so(tmp_path: Path) -> None:
    with served(tmp_path / "s", open_metrics=True) as running:
        assert "fairlead_round" in httpx.get(f"{running.url}/metrics").text
        assert httpx.get(f"{running.url}/v1/status").status_code == 401


def test_the_dashboard_shows_metrics_that_exist(cluster: Served) -> None:
    board = json.loads(DASHBOARD.read_text())
    exist = {sample.name for family in scrape(cluster).values() for sample in family.samples}
    exist.add("fairlead_devices")  # no sample before there is a node
    assert len(_queries()) >= 10
    for query in _queries():
        named = set(re.findall(r"\b(?:fairlead|process)_[a-z_]+", query))
        assert named, query
        assert named <= exist, query
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.prometheus
def test_a_real_prometheus_scrapes_and_answers(cluster: Served, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus is installed here")
    (tmp_path / "token").write_text(cluster.admin)
    (tmp_path / "prometheus.yml").write_bytes(msgspec.yaml.encode(_config(cluster, tmp_path)))
    port = free_port()
    log = (tmp_path / "log").open("wb")
    command = [program, f"--config.file={tmp_path / 'prometheus.yml'}"]
    command += [
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        found = _answer(url, 'fairlead_jobs{state="waiting",tenant="apes"}')
        for query in _queries():  # of the dashboard: Prometheus understands them all
            asked = query.replace("$job", "fairlead").replace("$__rate_interval", "1m")
            told = httpx.get(f"{url}/api/v1/query", params={"query": asked}).json()
            assert told["status"] == "success", (asked, told)
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        log.close()
    assert found["metric"]["job"] == "fairlead"
    assert float(found["value"][1]) == 2


def _queries() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def _config(cluster: Served, folder: Path) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "fairlead",
                "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [cluster.url.removeprefix("http://")]}],
            }
        ],
    }


def _answer(url: str, query: str) -> dict[str, Any]:
    """The first result of a query, as soon as there is one."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        try:
            answer = httpx.get(f"{url}/api/v1/query", params={"query": query})
            # 503 and plain text: it listens, but is still loading what it has stored
            found = answer.json()["data"]["result"] if answer.is_success else []
            if found:
                result: dict[str, Any] = found[0]
                return result
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(0.2)
    raise AssertionError(f"no answer to {query} within {LIMIT_S:g} s")


@pytest.mark.prometheus
def test_the_alerts_on_nodes_fire_as_they_should(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool is installed here")
    subprocess.run([program, "check", "rules", str(ALERTS)], check=True, capture_output=True)
    states = {"NodeSuspect": "suspect", "NodeUnhealthy": "unhealthy", "NodeLost": "lost"}
    series = [
        {"series": f'fairlead_node_state{{node="n-{state}",state="{state}"}}', "values": "1x10"}
        for state in ("up", "drained", *states.values())
    ]
    expected = [
        {"eval_time": "5m", "alertname": alert, "exp_alerts": [_alert(alert, state)]}
        for alert, state in states.items()
    ]
    test = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "15s",
        "tests": [
            {"interval": "1m", "input_series": series, "alert_rule_test": expected},
        ],
    }
    (tmp_path / "test.yml").write_bytes(msgspec.yaml.encode(test))
    done = subprocess.run(
        [program, "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _alert(alert: str, state: str) -> dict[str, Any]:
    """As it should fire: the labels and the summary of the rule, for the node in that state."""
    rules = msgspec.yaml.decode(ALERTS.read_bytes())["groups"][0]["rules"]
    rule = next(rule for rule in rules if rule["alert"] == alert)
    summary = rule["annotations"]["summary"].replace("{{ $labels.node }}", f"n-{state}")
    labels = {"node": f"n-{state}", "state": state, **rule["labels"]}
    return {"exp_labels": labels, "exp_annotations": {"summary": summary}}
