"""States whose journal cannot be: each row as it was written, but not all to the same state."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.call_command import call
from tests.cluster.store.test_damage import fill

from fairlead.analysis.simulate import simulate
from fairlead.cluster.store.store import Store
from fairlead.model.events import RoundEnded
from fairlead.scheduler.journal import decode, records
from fairlead.simulator.generate import generate
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs

ANY_PORTS = ("--port", "0", "--agent-port", "0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The records of a run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    cluster = parse_cluster("v100=2")
    jobs, _ = generate("gavel,jobs=4,interarrival=1500", read_throughputs("builtin"), cluster, 1)
    simulate(jobs, cluster, "las", out=out)
    return list(records(out / "journal"))


def without_a_round(whole: Sequence[bytes]) -> list[bytes]:
    """What is left when all between the reports of two rounds is missing."""
    first, second = [i for i, record in enumerate(whole) if isinstance(decode(record), RoundEnded)][
        1:3
    ]
    return [*whole[:first], *whole[second:]]


def write_state(directory: Path, journal: Sequence[bytes]) -> Path:
    with Store(directory) as store, store.transaction() as t:
        t.new_segment(journal)
    return directory


def test_a_state_put_together_from_two_is_refused_by_all_with_a_way_on(
    whole: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = write_state(tmp_path / "state", without_a_round(whole))
    before = (state / "state.db").read_bytes(), (state / "state.mark").read_bytes()
    found = "state.db: is put together from two states, or records are missing (segment 0, record "
    way = f"; restore a backup with `fairlead restore --replace BACKUP {state}`"
    for command in (["check"], ["restore", "--accept-loss"], ["replay"]):
        assert call(*command, state) == 2, command
        out, err = capsys.readouterr()
        assert "written" not in out
        assert found in err
        assert err.endswith(f"{way}\n")
        assert err.count("\n") == 1
    ended = subprocess.run(
        [sys.executable, "-m", "fairlead", "serve", "--state", state, *ANY_PORTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("", 2)
    assert found in ended.stderr
    assert ended.stderr.endswith(f"{way}\n")
    assert ended.stderr.count("\n") == 2, "that it starts, and why it does not"
    assert ((state / "state.db").read_bytes(), (state / "state.mark").read_bytes()) == before
    (tmp_path / "copy").write_bytes(before[0])
    assert call("check", tmp_path / "copy") == 2
    assert capsys.readouterr().err.endswith("; it cannot be restored from\n")


def test_a_loss_may_be_accepted_but_damage_not(
    whole: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    with Store(state) as store:
        fill(store, range(5))
        with store.transaction() as t:
            t.new_segment(whole)
    old = (state / "state.db").read_bytes()
    with Store(state) as store:
        fill(store, range(5, 9))
    (state / "state.db").write_bytes(old)
    assert call("check", state) == 2
    assert "4 commits are missing" in capsys.readouterr().err
    assert call("restore", "--accept-loss", state) == 0
    with Store(state) as store:
        assert store.last_job() == 4
        assert store.meta("restored") is not None
        fill(store, range(5, 6))
    with closing(sqlite3.connect(state / "state.db")) as raw:
        raw.execute("UPDATE jobs SET open = 1 - open WHERE id = 3")
        raw.commit()
    assert call("restore", "--accept-loss", state) == 2
    assert "a row is damaged (jobs, 3); it cannot be restored from" in capsys.readouterr().err
