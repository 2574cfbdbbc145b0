"""Progress bars: seen only by those who wait, and almost free."""

import time

import pytest

from fairlead.analysis.report import progress_bar as module
from fairlead.analysis.report.progress_bar import progress


def test_off_a_terminal_there_is_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("simulating", 10.0) as update:
        update(5.0, "half")
    assert capfd.readouterr() == ("", "")


def test_a_short_wait_shows_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHOW_AFTER_S", 3600.0)  # however slow the machine is
    with progress("simulating", 10.0, enabled=True) as update:
        for done in range(1000):
            update(done / 100)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("total", [10.0, None])
def test_a_long_wait_shows_a_bar_on_stderr(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: float | None
) -> None:
    monkeypatch.setattr(module, "SHOW_AFTER_S", 0.01)
    with progress("simulating [las]", total, enabled=True) as update:
        time.sleep(0.02)
        update(5.0, "round 17")
    seen = capfd.readouterr()
    assert seen.out == ""
    assert "simulating [las]" in seen.err
    assert "round 17" in seen.err


def test_the_bar_goes_away_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOW_AFTER_S", 0.0)

    def work() -> None:
        with progress("simulating", 10.0, enabled=True) as update:
            update(1.0)
            raise KeyboardInterrupt

    for _ in range(2):  # a bar that was left behind would refuse the second
        with pytest.raises(KeyboardInterrupt):
            work()


@pytest.mark.parametrize(("enabled", "most_us"), [(False, 10.0), (True, 50.0)])
def test_an_update_is_almost_free(enabled: bool, most_us: float) -> None:
    with progress("simulating", None, enabled=enabled) as update:
        start = time.process_time()
        for _ in range(20_000):
            update(1.0)
        spent_us = (time.process_time() - start) * 1e6 / 20_000
    assert spent_us < most_us
