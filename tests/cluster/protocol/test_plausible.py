"""What agents and ranks may say: nothing that cannot be."""

import msgspec

from fairlead.cluster.front.transport import decode
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    AttemptStatus,
    Failure,
    NodeReport,
    Register,
)
from fairlead.cluster.protocol.plausible import CLOCK_SLACK_S, described, within
from fairlead.cluster.server.attempt_statuses import measured_rate


def _report(*holds: AttemptStatus) -> NodeReport:
    return NodeReport(
        node="n",
        incarnation="i",
        seq=1,
        holds=holds,
        problems=("disk\nERROR forged",),
        check_problem="no\x1b[2J",
    )


def test_texts_of_a_report_become_lines() -> None:
    forged = AttemptStatus(
        job=1, attempt=1, state="starting", obstacle="full\nERROR forged", reason="a\rb"
    )
    honest = AttemptStatus(job=2, attempt=1, state="running", reason="\N{PILE OF POO}")
    report = _report(forged, honest)
    told = decode(msgspec.msgpack.Decoder(NodeReport), msgspec.msgpack.encode(report))
    assert told.problems == ("disk ERROR forged",)
    assert told.check_problem == "no [2J"
    assert (told.holds[0].obstacle, told.holds[0].reason) == ("full ERROR forged", "a b")
    assert told.holds[1] == honest


def test_a_node_that_registers_brings_no_controls_along() -> None:
    evil = "\x1b]0;own\x07\x1b[2J\nFAKE LINE"
    message = Register(
        protocol=PROTOCOL, version=evil, node="n", incarnation="i", host=evil, accelerator="v100",
        devices=1, machine=evil, runs_as=evil,
    )  # fmt: skip
    told = decode(msgspec.msgpack.Decoder(Register), msgspec.msgpack.encode(message))
    assert told.version == told.machine == " ]0;own  [2J FAKE LINE"
    # A table that is as narrow as its terminal would put what follows a space on a line of its own
    assert told.host == told.runs_as == "?]0;own??[2J?FAKE?LINE"
    assert described("runs_as", "jobs run as a\nb c") == "jobs run as a?b?c"
    assert described("runs_as", "isolated") == "isolated"


def test_a_node_that_registers_is_described_in_a_line_that_fits_a_screen() -> None:
    message = Register(
        protocol=PROTOCOL, version="v" * 4096, node="n", incarnation="i", host="h" * 4096,
        accelerator="v100", devices=1, machine="m" * 255, runs_as="\n" + "y" * 3000,
    )  # fmt: skip
    told = decode(msgspec.msgpack.Decoder(Register), msgspec.msgpack.encode(message))
    assert told.host == "h" * 252 + "..."
    assert told.runs_as == "?" + "y" * 60 + "..."
    assert told.machine == message.machine
    assert len(told.version) == 64


def test_tracebacks_and_stacks_of_a_report_keep_their_lines_and_nothing_else() -> None:
    evil, line = "\x1b]0;own\x07\x1b[2Ja\n\tb\r\x9b2J", " ]0;own  [2Ja  b  2J"
    failure = Failure(
        type=evil, message=evil, file=evil, function=evil, traceback=evil, path=evil, rank=0
    )
    status = AttemptStatus(
        job=1, attempt=1, state="ended", stall=evil, stacks=evil, unsaved=evil, save_place=evil,
        directory_problem=evil, failure=failure,
    )  # fmt: skip
    report = _report(status)
    told = decode(msgspec.msgpack.Decoder(NodeReport), msgspec.msgpack.encode(report)).holds[0]
    assert told.stall == told.unsaved == told.save_place == told.directory_problem == line
    assert told.stacks == " ]0;own  [2Ja\n b  2J"
    assert told.failure is not None
    assert told.failure.traceback == told.stacks
    failed = told.failure
    assert failed.type == failed.message == failed.file == failed.function == failed.path == line


def test_steps_of_a_report_fit_each_other() -> None:
    none = AttemptStatus(job=1, attempt=1, state="running", batch=8, total_steps=0)
    falls = AttemptStatus(job=2, attempt=1, state="running", step=3, loaded_step=50)
    report = _report(none, falls)
    told = decode(msgspec.msgpack.Decoder(NodeReport), msgspec.msgpack.encode(report))
    assert told.holds[0].batch == 0  # it has changed nothing
    assert told.holds[1].step == 50


def test_no_time_is_longer_than_there_was() -> None:
    held = AttemptStatus(
        job=1, attempt=1, state="running", start_s=1e12, ran_s=90.0, stop_s=-1.0, wait_s=5.0
    )
    assert within(held, 100.0, 10.0) == msgspec.structs.replace(held, start_s=100.0 + CLOCK_SLACK_S)
    honest = msgspec.structs.replace(held, start_s=9.0)
    assert within(honest, 100.0, 10.0) is honest


def test_no_step_is_beyond_the_last_one() -> None:
    most = 1 << 53
    held = AttemptStatus(
        job=1,
        attempt=3,
        state="running",
        step=most,
        loaded_step=5,
        saved_step=most,
        lost_steps=most,
    )
    cut = within(held, 0.0, 10.0)
    assert (cut.step, cut.loaded_step, cut.saved_step, cut.lost_steps) == (10, 5, 10, 30)
    adapted = within(msgspec.structs.replace(held, batch=8, total_steps=20), 0.0, 10.0)
    assert (adapted.step, adapted.saved_step, adapted.lost_steps) == (20, 20, 60)


def test_a_rate_that_cannot_be_is_none() -> None:
    held = AttemptStatus(
        job=1, attempt=1, state="running", step=2_510_000, loaded_step=0, ran_s=100.0
    )
    assert measured_rate(held) == 25_100.0
    for step in (10**12, -1):
        assert measured_rate(msgspec.structs.replace(held, step=step)) is None
