"""A plugin that measures coverage in a run of all tests (``COVERAGE=1 scripts/check``): that of the packages
of ``[tool.coverage.run]`` by their own tests. All else runs at its usual speed."""

import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

TESTS = Path(__file__).resolve().parent
MEASURED = tuple(
    TESTS / name for name in ("model", "policies", "estimation", "scheduler", "simulator")
)


class OwnTests:
    """Measures while a test of these folders runs, and before the first test: while modules are imported."""

    def __init__(self, file: str) -> None:
        self.coverage = coverage.Coverage(
            data_file=file, data_suffix=True, config_file=str(TESTS.parent / "pyproject.toml")
        )
        self.coverage.start()
        self.is_measuring = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measure(any(item.path.is_relative_to(folder) for folder in MEASURED))
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self.measure(False)
        self.coverage.save()

    def measure(self, wanted: bool) -> None:
        """Go on measuring, or pause."""
        if wanted != self.is_measuring:
            self.is_measuring = wanted
            (self.coverage.start if wanted else self.coverage.stop)()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") == "no":  # else its workers measure
        config.pluginmanager.register(OwnTests(os.environ["COVERAGE_FILE"]))
