"""The pages in a real browser, on a real cluster."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementNotInteractableException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from tests.cluster.browser import (
    browser,
    complaints,
    hosts_asked,
    installed,
    look,
)
from tests.cluster.cluster import Running, until

from fairlead.cluster.protocol.job_spec import JobSpec

pytestmark = pytest.mark.browser
HOSTILE = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
LOOP = ("sh", "-c", "while true; do echo '<b>step</b>'; sleep 0.2; done")
TIMEOUT_S = 180
PAGES = ("/", "/jobs", "/jobs/0", "/nodes", "/what-if", "/submit")
AXE = "FAIRLEAD_AXE"  # names the file axe.min.js, of the npm package axe-core: it is no part of this project


@pytest.fixture(scope="module")
def chromium() -> None:
    """Before a cluster is started for nothing."""
    installed()


@pytest.fixture(scope="module")
def driver(
    chromium: None, tmp_path_factory: pytest.TempPathFactory, cluster: Running
) -> Iterator[webdriver.Chrome]:
    """A browser that has logged in; job 0 runs, job 1 waits for more devices than there are free."""
    with cluster.client() as client:
        client.submit([JobSpec(command=LOOP, total_steps=3600, unmanaged=True, name=HOSTILE)])
        client.submit([JobSpec(command=LOOP, total_steps=3600, unmanaged=True, name="second")])
        until(lambda: client.job(0).state == "running", what="job 0 running")
        until(lambda: bool(client.samples()), what="a sample")
    with browser(tmp_path_factory.mktemp("browser")) as chrome:
        log_in(chrome, cluster)
        yield chrome


def log_in(chrome: webdriver.Chrome, cluster: Running) -> None:
    chrome.get(cluster.url + "/jobs")
    assert urlsplit(chrome.current_url).path == "/login"
    found(chrome, "input[name=token]").send_keys(cluster.admin_token)
    press(chrome, "button.main")
    WebDriverWait(chrome, TIMEOUT_S).until(lambda c: urlsplit(c.current_url).path == "/jobs")


def found(chrome: webdriver.Chrome, selector: str) -> WebElement:
    """The first such element, once it is there."""

    def look_for(c: webdriver.Chrome) -> WebElement | None:
        return next(iter(c.find_elements(By.CSS_SELECTOR, selector)), None)

    element = WebDriverWait(chrome, TIMEOUT_S).until(look_for, selector)
    assert element is not None
    return element


def press(chrome: webdriver.Chrome, selector: str) -> None:
    """Click it; again where the page has just put a newer copy in its place."""

    def click(c: webdriver.Chrome) -> bool:
        found(c, selector).click()
        return True

    newer = (StaleElementReferenceException, ElementNotInteractableException)
    WebDriverWait(chrome, TIMEOUT_S, ignored_exceptions=newer).until(click, selector)


def text(chrome: webdriver.Chrome, selector: str) -> str:
    """What is written in the first such element; "" where there is none."""
    ask = "return document.querySelector(arguments[0])?.textContent ?? ''"
    return str(chrome.execute_script(ask, selector))


def wait_for_text(chrome: webdriver.Chrome, selector: str, words: str) -> None:
    """Without a reload: what the page's script fetches."""
    try:
        WebDriverWait(chrome, TIMEOUT_S).until(lambda c: words in text(c, selector))
    except TimeoutException:
        raise AssertionError(f"{words!r} not in {selector}: {text(chrome, selector)}") from None


def calm(chrome: webdriver.Chrome, cluster: Running) -> None:
    """No error, nothing blocked, nothing asked of anyone else, nobody's script has run."""
    assert complaints(chrome) == []
    assert hosts_asked(chrome) <= {urlsplit(cluster.url).netloc}
    assert "pwned" not in chrome.title.replace(HOSTILE, "")


def test_the_cluster_on_one_screen(driver: webdriver.Chrome, cluster: Running) -> None:
    driver.get(cluster.url)
    assert driver.title == "Cluster · Fairlead"
    assert HOSTILE in text(driver, "#queue tbody")
    for section in ("summary", "queue", "pictures", "tenants", "devices"):
        assert text(driver, f"#{section}")
    pictures = driver.find_elements(By.CSS_SELECTOR, "#pictures svg[role=img]")
    assert [p.get_attribute("aria-label") for p in pictures] == [
        "Devices held over time by accelerator type",
        "Shares by tenant",
        "Mean rho by tenant",
        "Lost device time by tenant",
    ]
    assert text(driver, "#devices .cell a") in ("0", "1")
    submit(cluster, "third")
    wait_for_text(driver, "#queue", "third")
    calm(driver, cluster)


def submit(cluster: Running, name: str) -> None:
    with cluster.client() as client:
        client.submit([JobSpec(command=LOOP, total_steps=3600, unmanaged=True, name=name)])


def test_tables_sort_and_stay_so_when_they_are_fetched_again(
    driver: webdriver.Chrome, cluster: Running
) -> None:
    driver.get(cluster.url)
    first = "#queue-table tbody tr:first-child td:first-child"
    wait_for_text(driver, first, "0")  # it may be fetched again just now
    head = "#queue-table th:first-child button"
    press(driver, head)
    press(driver, head)
    newest = text(driver, first)
    assert newest != "0"
    submit(cluster, "fourth")
    wait_for_text(driver, "#queue", "fourth")
    assert text(driver, first) == str(int(newest) + 1)
    assert found(driver, "#queue-table th:first-child").get_attribute("aria-sort") == "descending"
    assert driver.execute_script("return document.activeElement.textContent") == "Job"
    calm(driver, cluster)


def test_a_job_is_paused_and_resumed_by_its_buttons(
    driver: webdriver.Chrome, cluster: Running
) -> None:
    driver.get(f"{cluster.url}/jobs/0")
    assert driver.title.startswith(f"Job 0 {HOSTILE}")
    wait_for_text(driver, "#log", "<b>step</b>")
    press(driver, "form[action='/jobs/0/pause'] button")
    found(driver, "form[action='/jobs/0/resume'] button")
    with cluster.client() as client:
        until(lambda: client.job(0).state == "paused", what="job 0 paused")
        wait_for_text(driver, "#attempts tbody", "paused")
        press(driver, "form[action='/jobs/0/resume'] button")
        found(driver, "form[action='/jobs/0/pause'] button")
        until(lambda: client.job(0).state != "paused", what="job 0 resumed")
    calm(driver, cluster)


def test_a_job_tells_its_story(driver: webdriver.Chrome, cluster: Running) -> None:
    driver.get(f"{cluster.url}/jobs/0")
    wait_for_text(driver, "#story", "Expected to finish in")
    wait_for_text(driver, "#story", "submitted by admin")
    calm(driver, cluster)


def test_a_job_is_cancelled_only_when_that_is_confirmed(
    driver: webdriver.Chrome, cluster: Running
) -> None:
    driver.get(f"{cluster.url}/jobs/1")
    cancel = "form[action='/jobs/1/cancel'] button"
    press(driver, cancel)
    driver.switch_to.alert.dismiss()
    with cluster.client() as client:
        assert client.job(1).state != "cancelled"
        press(driver, cancel)
        driver.switch_to.alert.accept()
        until(lambda: client.job(1).state == "cancelled", what="job 1 cancelled")
    wait_for_text(driver, "#facts", "cancelled")
    calm(driver, cluster)


def test_a_node_is_drained_and_used_again(driver: webdriver.Chrome, cluster: Running) -> None:
    driver.get(f"{cluster.url}/nodes")
    press(driver, "form[action='/nodes/drain'] button")
    driver.switch_to.alert.accept()
    wait_for_text(driver, "#list", "drained")
    press(driver, "form[action='/nodes/undrain'] button")
    WebDriverWait(driver, TIMEOUT_S).until(
        lambda c: not c.find_elements(By.CSS_SELECTOR, "form[action='/nodes/undrain']")
    )
    calm(driver, cluster)


def test_a_node_that_is_lost_is_said_on_every_page_until_it_is_back(
    driver: webdriver.Chrome, cluster: Running
) -> None:
    cluster.add_agent("frail", "k80=1")
    with cluster.client() as client:
        until(lambda: any(node.name == "frail" for node in client.nodes()), what="the node frail")
        driver.get(f"{cluster.url}/what-if")
        found(driver, "#alerts[hidden]")
        cluster.kill("frail")
        wait_for_text(driver, "#alerts", "frail is lost")
        assert not driver.find_elements(By.CSS_SELECTOR, "#alerts[hidden]")
        for page in PAGES:
            driver.get(cluster.url + page)
            told = text(driver, "#alerts li")
            assert told.startswith("frail is lost since "), page
            assert " UTC (" in told
            assert "): silent for " in told
        press(driver, "#alerts a")
        WebDriverWait(driver, TIMEOUT_S).until(lambda c: "name=frail" in c.current_url)
        rows = driver.find_elements(By.CSS_SELECTOR, "#nodes-table tbody tr")
        assert [row.text.split()[0] for row in rows] == ["frail"]
        cluster.add_agent("frail", "k80=1")
        WebDriverWait(driver, TIMEOUT_S).until(
            lambda c: c.find_elements(By.CSS_SELECTOR, "#alerts[hidden]")
        )
        client.drain("frail")
    calm(driver, cluster)


def test_jobs_are_searched_while_somebody_types(driver: webdriver.Chrome, cluster: Running) -> None:
    submit(cluster, "needle in a haystack")
    submit(cluster, "straw in a haystack")
    driver.get(f"{cluster.url}/jobs")
    rows = "#jobs-table tbody tr"
    found(driver, "input[name=search]").send_keys("HAYSTACK")
    wait_for_text(driver, "[data-told]", "1 to 2 of 2")
    assert "search=HAYSTACK" in driver.current_url
    assert driver.execute_script("return document.activeElement.name") == "search"
    wait_for_text(driver, "#told", "1 to 2 of 2")  # for those who listen
    assert "straw" in text(driver, rows)
    by_name = found(driver, "#sort-name")
    by_name.send_keys(Keys.ENTER)
    wait_for_text(driver, rows, "needle")
    assert found(driver, "th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert driver.execute_script("return document.activeElement.id") == "sort-name"
    found(driver, "input[name=search]").send_keys(" needle")
    wait_for_text(driver, "[data-told]", "1 to 1 of 1")
    assert "sort=name" in driver.current_url
    driver.back()
    wait_for_text(driver, "[data-told]", "1 to 2 of 2")
    calm(driver, cluster)


def test_a_question_is_answered(driver: webdriver.Chrome, cluster: Running) -> None:
    driver.get(f"{cluster.url}/what-if")
    found(driver, "input[name=add_nodes]").send_keys("v100=4")
    press(driver, "button.main")
    wait_for_text(driver, "#answer", "All jobs done in")
    assert found(driver, "input[name=add_nodes]").get_attribute("value") == "v100=4"
    calm(driver, cluster)


@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_the_screen_in_light_and_dark(
    driver: webdriver.Chrome, cluster: Running, width: int
) -> None:
    for page in PAGES:
        for dark in (False, True):
            look(driver, dark=dark, width=width)
            driver.get(cluster.url + page)
            across = driver.execute_script("return document.documentElement.scrollWidth")
            assert across <= width, page
            paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") != dark
    look(driver)
    calm(driver, cluster)


@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_to_complain_of(
    driver: webdriver.Chrome, cluster: Running, width: int
) -> None:
    if not os.environ.get(AXE):
        pytest.skip(f"axe-core is not here: npm install axe-core, and name its axe.min.js in {AXE}")
    axe = Path(os.environ[AXE]).read_text("utf-8")
    submit_late(cluster)
    for page in PAGES:
        for dark in (False, True):
            look(driver, dark=dark, width=width)
            driver.get(cluster.url + page)
            driver.execute_script(axe)
            ask = "axe.run().then((found) => arguments[0](found.violations))"
            found_ = driver.execute_async_script(ask)
            told = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found_]
            assert told == [], (page, width, dark)
    look(driver)
    calm(driver, cluster)


def submit_late(cluster: Running) -> None:
    """A job that misses its deadline, so that there is one in the lists."""
    late = JobSpec(command=LOOP, total_steps=3600, unmanaged=True, name="late", slo_s=1.0)
    with cluster.client() as client:
        (job,) = client.submit([late])
        until(lambda: client.job(job).deadline == "past", what="a missed deadline")


def test_a_job_is_submitted_by_the_keyboard_alone(
    driver: webdriver.Chrome, cluster: Running
) -> None:
    driver.get(f"{cluster.url}/submit")
    found(driver, "input[name=command]").send_keys("sleep 'x")
    steps = found(driver, "input[name=total_steps]")
    steps.send_keys("5", Keys.ENTER)
    wait_for_text(driver, "[role=alert]", "No closing quotation")
    (refused,) = complaints(driver)
    assert "status of 400" in refused
    wrong = driver.switch_to.active_element
    assert wrong.get_attribute("name") == "command"
    assert wrong.get_attribute("value") == "sleep 'x"
    wrong.send_keys("'", Keys.TAB)
    assert driver.switch_to.active_element.get_attribute("name") == "total_steps"
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    WebDriverWait(driver, TIMEOUT_S).until(
        lambda c: urlsplit(c.current_url).path.startswith("/jobs/")
    )
    wait_for_text(driver, "#facts", "admin")
    calm(driver, cluster)


def all_named(chrome: webdriver.Chrome) -> bool:
    controls = chrome.find_elements(
        By.CSS_SELECTOR, "main a, main button, main select, main svg[role]"
    )
    controls += chrome.find_elements(
        By.CSS_SELECTOR, "main input:not([type=hidden]), main textarea, progress"
    )
    assert controls
    for control in controls[:60]:
        assert control.accessible_name, (chrome.current_url, control.get_attribute("outerHTML"))
    return True


def test_every_control_has_a_name(driver: webdriver.Chrome, cluster: Running) -> None:
    """As a screen reader would say it: the names that the browser computes."""
    for page in PAGES:
        driver.get(cluster.url + page)
        # Anew where the page has just put newer copies in their place.
        WebDriverWait(
            driver, TIMEOUT_S, ignored_exceptions=(StaleElementReferenceException,)
        ).until(all_named)
        assert driver.execute_script("return document.documentElement.lang") == "en"


def test_who_logs_out_is_out(driver: webdriver.Chrome, cluster: Running) -> None:
    driver.get(cluster.url)
    press(driver, "form[action='/logout'] button")
    found(driver, "input[name=token]")
    driver.get(cluster.url + "/jobs/0")
    assert urlsplit(driver.current_url).path == "/login"
    found(driver, "input[name=token]").send_keys("fl_wrong")
    press(driver, "button.main")
    wait_for_text(driver, "[role=alert]", "not known")
    log_in(driver, cluster)  # as the others expect
