"""Tables of the live cluster."""

import itertools
import json
import re

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text
from tests.cli.test_job_history import JOB

from fairlead.cli.terminal_views import (
    job_lines,
    node_table,
    print_json,
    show,
    show_age,
    status_screen,
)
from fairlead.cluster.protocol.api_models import JobView, NodeView, StatusView


def cells(job: JobView) -> dict[str, str]:
    """Name of a column -> what it says of a job."""
    heads, _, row = (re.split(" {2,}", line.strip()) for line in job_lines([job]))
    return dict(itertools.zip_longest(heads, row, fillvalue=""))


def test_a_long_table_has_one_line_for_each_row_and_cuts_reasons_to_the_terminal() -> None:
    long = msgspec.structs.replace(JOB, reason="waits " * 50, id=12345)
    whole = job_lines([JOB, long])
    assert len(whole) == 4
    assert whole[3].endswith(("waits " * 50).strip())
    cut = job_lines([JOB, long], 200)
    assert [line.index("v100:0") for line in cut[2:]] == [
        line.index("v100:0") for line in whole[2:]
    ]
    assert max(map(len, cut)) == 200
    assert cut[3].endswith("...")
    narrow = job_lines([long], 80)
    assert re.search(r"  waits .{31}\.\.\.$", narrow[2]), "something of it is always shown"


def test_a_long_name_of_one_job_does_not_make_every_row_wide() -> None:
    long = msgspec.structs.replace(JOB, name="n" * 200)
    wide = msgspec.structs.replace(JOB, name="日本" * 50)
    lines = job_lines([JOB, long, wide])
    assert "n" * 37 + "...  " in lines[3]
    assert "日本" * 9 + " ...  " in lines[4]
    fits = job_lines([msgspec.structs.replace(JOB, name="n" * 40)])
    assert "n" * 40 in fits[2]
    assert len(set(map(cell_len, lines[2:]))) == 1


def test_wide_characters_do_not_shift_columns() -> None:
    lines = job_lines(
        [msgspec.structs.replace(JOB, name="日本"), msgspec.structs.replace(JOB, name="four")]
    )
    assert cell_len(lines[2]) == cell_len(lines[3])


def test_a_job_that_fails_and_waits_is_seen_to() -> None:
    found = cells(msgspec.structs.replace(JOB, failures=3, starts=8, queued_s=7200.0))
    assert (found["starts"], found["failures"], found["queued"]) == ("8", "3", "2 h")


def test_a_job_that_has_started_over_is_marked() -> None:
    marked = "starts over whenever it is stopped"
    again = msgspec.structs.replace(JOB, starts_over=True, starts=2)
    assert cells(again)["why"] == marked
    assert cells(msgspec.structs.replace(again, starts=1))["why"] == ""
    ended = msgspec.structs.replace(again, state="completed", ended_s=99.0)
    assert cells(ended)["why"] == ""
    assert cells(msgspec.structs.replace(again, reason="paused"))["why"] == "paused"


OLD = "The scheduler has not answered for 21 s: this is the state before that."


def test_old_state_is_said_to_be_old(capsys: pytest.CaptureFixture[str]) -> None:
    show_age([None, None])
    assert capsys.readouterr().out == ""
    show_age([3.0, 21.0, None])
    assert capsys.readouterr().out.strip() == OLD
    status = StatusView(
        version="1", now_s=50.0, policy="las", profile="default", round=3, round_s=60.0,
        round_ends_in_s=0.0, jobs={}, devices={}, solve="ok", solve_s=None, decide_s=None,
        journal_records=1, tenants=(), age_s=21.0,
    )  # fmt: skip
    assert str(status_screen(status).renderables[0]) == OLD
    new = msgspec.structs.replace(status, age_s=None)
    apart = msgspec.structs.replace(status, runs_as={"jobs run as fairlead": 1, "isolated": 2})
    lines = list(map(str, status_screen(apart).renderables))
    assert "nodes: isolated on 2, jobs run as fairlead on 1" in lines
    assert "answered" not in str(status_screen(new).renderables[0])
    lines = list(map(str, status_screen(new).renderables))
    assert any(line.startswith("round 3 of 1 min, ends in ") for line in lines)
    lines = list(map(str, status_screen(msgspec.structs.replace(new, round=-1)).renderables))
    assert "no round yet (they last 1 min) | solved in -: ok" in lines
    halted = msgspec.structs.replace(new, halted="it is an older copy")
    assert str(status_screen(halted).renderables[0]) == "HALTED: it is an older copy"


def test_deadlines_are_listed_where_there_are_any() -> None:
    due = msgspec.structs.replace(JOB, slo_s=99.0, deadline="past", deadline_left_s=-300.0)
    assert cells(due)["deadline"] == "late by 5 min"
    assert "deadline" not in cells(JOB)


def test_nodes_and_users_names_take_no_terminal_over(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;own\x07\x1b[2J\nFAKE LINE\x9b2J\u202e"
    node = NodeView(
        name="n", accelerator="v100", devices=1, state="up", host=evil, simulated_devices=True,
        last_seen_s=1.0, jobs=((),), runs_as=evil,
    )  # fmt: skip
    status = StatusView(
        version="1", now_s=50.0, policy="las", profile="default", round=3, round_s=60.0,
        round_ends_in_s=0.0, jobs={}, devices={}, solve="ok", solve_s=None, decide_s=None,
        journal_records=1, tenants=(), runs_as={evil: 1},
    )  # fmt: skip
    show(node_table([node]), status_screen(status), Text(evil))
    lines = job_lines([msgspec.structs.replace(JOB, reason=evil)])
    printed = capsys.readouterr().out + "\n".join(lines)
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert "nodes:  ]0;own  [2J FAKE LINE 2J" in printed
    assert len(lines) == 3
    print_json({"host": evil})
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert json.loads(printed) == {"host": evil}


def test_nodes_show_whom_their_jobs_run_as() -> None:
    node = NodeView(
        name="n", accelerator="v100", devices=1, state="up", host="h", simulated_devices=True,
        last_seen_s=1.0, jobs=((),), runs_as="jobs run as fairlead",
    )  # fmt: skip
    nodes = [node, msgspec.structs.replace(node, runs_as="isolated")]
    column = next(one for one in node_table(nodes).columns if str(one.header) == "jobs run as")
    assert list(map(str, column.cells)) == ["fairlead", "isolated"]
