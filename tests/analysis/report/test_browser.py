"""The pages in a real browser: tables sort, data can be saved, nothing is fetched."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from tests.analysis.experiments.test_sweep_report import swept
from tests.analysis.report.test_run_report import (
    CONFIG,
    SIZES,
    metrics_of,
    table_of_jobs,
    table_of_rounds,
)
from tests.cluster.browser import (
    browser,
    complaints,
    hosts_asked,
)

from fairlead.analysis.experiments.sweep_page import sweep_report
from fairlead.analysis.report.comparison_report import comparison_report

pytestmark = pytest.mark.browser
TIMEOUT_S = 180


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def shown(chrome: webdriver.Chrome, tmp_path: Path) -> webdriver.Chrome:
    """The page of a sweep, and a folder for what it saves."""
    path = tmp_path / "page.html"
    path.write_text(sweep_report([swept(tmp_path / "sweep")]), encoding="utf-8")
    chrome.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    chrome.get(path.as_uri())
    return chrome


def column(chrome: webdriver.Chrome, heading: str, number: int) -> list[str]:
    """The cells of a column of the table below a heading."""
    return list(
        chrome.execute_script(
            "const s = [...document.querySelectorAll('section')].find((s) => "
            "s.querySelector('h2').textContent === arguments[0]);"
            "return [...s.querySelectorAll('tbody tr')].map((r) => r.cells[arguments[1]].textContent)",
            heading, number,
        )
    )  # fmt: skip


def saved(chrome: webdriver.Chrome, folder: Path, name: str) -> Path:
    path = folder / name
    WebDriverWait(chrome, TIMEOUT_S).until(lambda _: path.is_file(), f"{name} was not saved")
    return path


def test_a_click_sorts_a_table_and_another_the_other_way(shown: webdriver.Chrome) -> None:
    title = "Points"
    before = column(shown, title, 3)
    button = shown.find_element(By.XPATH, f"//section[h2='{title}']//th[4]/button")
    shown.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    down = column(shown, title, 3)
    button.click()
    up = column(shown, title, 3)
    assert up == sorted(before, key=lambda cell: float(cell.replace(",", "")))
    assert down == up[::-1] != before
    assert complaints(shown) == []
    assert hosts_asked(shown) == set()


def test_the_data_of_a_page_can_be_saved(shown: webdriver.Chrome, tmp_path: Path) -> None:
    for button in shown.find_elements(By.CSS_SELECTOR, "button[data-format]"):
        shown.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()
    points = json.loads(saved(shown, tmp_path, "points.json").read_text())
    assert len(points) == 12
    assert points[0]["line"] == "fifo"
    assert points[0]["avg_jct_s"] == 36000
    with saved(shown, tmp_path, "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == [point["status"] for point in points]
    assert rows[5]["reason"] == "the queue grew without bound"
    assert rows[5]["avg_jct_s"] == ""
    assert saved(shown, tmp_path, "figures.csv").stat().st_size > 100
    assert complaints(shown) == []


def test_no_picture_is_wider_than_the_page(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    """Words of charts stay inside them, for one policy and for eight."""
    jobs, rounds = table_of_jobs(30, tenant=["a", "b", "c"] * 10), table_of_rounds(200, SIZES)
    config = CONFIG | {"prices": {"k80": 1.0, "v100": 3.0}}
    for n in (1, 8):
        runs = [
            (f"a policy with a name, number {i}", config, metrics_of(jobs), jobs, rounds)
            for i in range(n)
        ]
        path = tmp_path / f"{n}.html"
        path.write_text(comparison_report(runs), encoding="utf-8")
        chrome.get(path.as_uri())
        cut = chrome.execute_script(
            "return [...document.querySelectorAll('svg.chart')].flatMap((svg) => {"
            " const box = svg.getBoundingClientRect();"
            " return [...svg.querySelectorAll('text')].filter((t) => { const b = t.getBoundingClientRect();"
            "  return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1"
            "   || b.bottom > box.bottom + 1; }).map((t) => t.textContent); })"
        )
        assert cut == []
        wide = chrome.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0
