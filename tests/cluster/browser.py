"""Headless Chromium for tests: its console and every address that it asked for."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

NAMES = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium-driver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)


def installed() -> tuple[str, str]:
    """Paths of browser and driver; skips the test where one of them is missing."""
    return _found(NAMES, "Chromium"), _found(DRIVERS, "ChromeDriver")


def _found(names: tuple[str, ...], what: str) -> str:
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip(f"{what} is not installed ({', '.join(names)})")


@contextmanager
def browser(folder: Path) -> Iterator[webdriver.Chrome]:
    """A browser that knows nothing yet; its profile is in ``folder``. Skips where there is none."""
    options = Options()
    options.binary_location, driver_path = installed()
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(driver_path, log_output=os.devnull)
    driver = webdriver.Chrome(options, service)
    try:
        yield driver
    finally:
        driver.quit()


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Errors and warnings on the console since the last call: scripts, refused content, lost requests."""
    entries: list[dict[str, Any]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def hosts_asked(driver: webdriver.Chrome) -> set[str]:
    """Host and port of every request since the last call."""
    entries: list[dict[str, Any]] = driver.get_log("performance")  # type: ignore[no-untyped-call]
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    addresses = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return {urlsplit(address).netloc for address in addresses if address.startswith("http")}


def look(
    driver: webdriver.Chrome, *, dark: bool = False, width: int = 1280, height: int = 1000
) -> None:
    """Show pages from now on in a colour scheme and at a size, px."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
