"""The driver's thread, as those who call it see it."""

import threading
from pathlib import Path

import pytest

from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.store.store import Store
from fairlead.errors import StoreError

OPTIONS = live_options(
    None, "", "default", 1.0, "builtin", 0, 4.0, 0.3, 10.0, early_round_end=False
)


def test_a_caller_who_hangs_up_cancels_only_what_the_driver_has_not_begun(tmp_path: Path) -> None:
    """The driver would stumble over the answer that nobody takes any more."""
    begun, over, done = threading.Event(), threading.Event(), list[str]()

    def work() -> str:
        begun.set()
        over.wait(120.0)
        return "done"

    with Store(tmp_path) as store:
        engine = ServerLoop(store, OPTIONS)
        engine.start()
        try:
            answer, later = engine.call(work), engine.call(lambda: done.append("later"))
            assert begun.wait(120.0)
            assert not answer.cancel()
            assert later.cancel()
            over.set()
            assert answer.result(120.0) == "done"
            assert engine.call(lambda: "again").result(120.0) == "again"
            assert done == []
        finally:
            engine.stop()


def test_a_driver_that_ends_leaves_nobody_waiting(tmp_path: Path) -> None:
    begun, over, failed = threading.Event(), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        over.wait(120.0)
        return "done"

    def defect() -> None:
        raise RuntimeError("a defect")

    with Store(tmp_path) as store:
        engine = ServerLoop(store, OPTIONS, failed=lambda _: failed.set())
        engine.start()
        not_written = engine.call(work)
        assert begun.wait(120.0)
        engine.parts.inbox.put(defect)
        not_begun = engine.call(lambda: "later")
        over.set()
        for answer, why in (
            (not_written, "ended before it was written"),
            (not_begun, "the server is ending; nothing was changed"),
        ):
            with pytest.raises(StoreError, match=why):
                answer.result(120.0)
        assert failed.is_set()
        engine.stop()
        with pytest.raises(StoreError, match="the server is ending"):
            engine.call(lambda: "afterwards").result(120.0)
