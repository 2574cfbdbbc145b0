"""Whatever nodes say of themselves, pages stay small and as wide as the screen."""

import re
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.cluster.browser import browser, look
from tests.cluster.front.web.test_web_rendering import ADMIN, STATUS, node

from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web import charts, lists, overview, tables
from fairlead.cluster.front.web.layout import Page, Section, document
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.protocol.api_models import NodeView

NAMES = [f"{'x' * 58}{i:06}" for i in range(64)]
NODES = [
    node(i, 1024, accelerator=NAMES[i % 64], host="h" * 255, jobs=[[7]] + [[]] * 1023)
    for i in range(400)
]


class _Nodes:
    """A facade of nothing else."""

    def nodes(self, _caller: object) -> list[NodeView]:
        return NODES


def _pages() -> dict[str, str]:
    status = msgspec.structs.replace(STATUS, devices=dict.fromkeys(NAMES, (6400, 6400, 100)))
    few = node(0, 8, accelerator=NAMES[0], name=NAMES[1])
    pages = {
        "overview": Page("Cluster", "", [overview.summary(status), overview.devices(NODES)]),
        "nodes": lists.nodes_page(cast(Facade, _Nodes()), PageRequest(ADMIN)),
        "cards": Page("Cluster", "", [Section("devices", "Devices", tables.node_cards([few]))]),
    }
    return {name: document(page, ADMIN, "n") for name, page in pages.items()}


def test_nodes_of_very_many_devices_make_small_pages() -> None:
    for name, page in _pages().items():
        assert len(page.encode()) < 1_500_000, name


def test_of_very_many_devices_those_that_are_held_are_shown() -> None:
    held = [[job] if job % 100 == 0 else [] for job in range(1024)]
    shown = tables.cells(node(devices=1024, jobs=held))
    assert re.findall(r'href="/jobs/(\d+)"', shown) == [str(job) for job in range(0, 1024, 100)]
    assert "1,013 more" in shown
    everything = tables.cells(node(devices=1024, jobs=[[1]] * 1024))
    assert everything.count("<a ") == tables.MOST_DEVICES


def test_of_very_many_devices_the_picture_shows_the_parts() -> None:
    picture = charts.occupancy([node(devices=1000, jobs=[[1]] * 501 + [[1, 2]] + [[]] * 498)])
    squares = {
        use: path.count("z") for use, path in re.findall(r'class="(\w+)" d="([^"]*)"', picture)
    }
    assert squares == {"held": 32, "shared": 1, "free": 31}


@pytest.mark.parametrize("width", [360, 1280])
def test_long_names_of_types_fit_the_screen(tmp_path: Path, width: int) -> None:
    with browser(tmp_path) as chrome:
        look(chrome, width=width)
        for name, page in _pages().items():
            file = tmp_path / f"{name}.html"
            file.write_text(page)
            chrome.get(file.as_uri())
            across = chrome.execute_script("return document.documentElement.scrollWidth")
            assert across <= width, name
