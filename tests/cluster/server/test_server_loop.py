"""The driver's thread, as those who call it see it."""

import threading
from pathlib import Path

from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.store.store import Store


def test_a_caller_who_hangs_up_cancels_only_what_the_driver_has_not_begun(tmp_path: Path) -> None:
    """The driver would stumble over the answer that nobody takes any more."""
    begun, over, done = threading.Event(), threading.Event(), list[str]()

    def work() -> str:
        begun.set()
        over.wait(120.0)
        return "done"

    options = live_options(
        None, "", "default", 1.0, "builtin", 0, 4.0, 0.3, 10.0, early_round_end=False
    )
    with Store(tmp_path) as store:
        engine = ServerLoop(store, options)
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
