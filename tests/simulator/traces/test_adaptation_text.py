"""Jobs that change their batch size: as text in every format, written and read again, left out."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job_types import job_types

from fairlead.errors import TraceError
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.batch_size_rules import batch_schedule
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.describe import describe
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs
from fairlead.simulator.traces.trace import (
    Trace,
    checked,
    skipped_summary,
    usable,
)
from fairlead.simulator.traces.write_trace import write_trace

BUILTIN = builtin_throughputs()
HEADER = "job,arrival_s,family,scale_factor,total_steps,adaptation,samples\n"
SHOCKWAVE = "{family}\tcmd\tdir\t-n\t1\t{steps}\t1\t{mode}\t1\t-1\t100\t0\n"
NET = "net (batch size 32)"
NETS = Throughputs(
    (SlotType("v100"), SlotType("k80")),
    job_types((NET, 1), ("net (batch size 64)", 1), ("net (batch size 96)", 1), ("plain", 1)),
    np.array([[4.0, 1.0], [3.0, 0.0], [0.0, 0.0], [1.0, 1.0]]),
)


def own(folder: Path, *rows: str) -> Path:
    path = folder / "a.csv"
    path.write_text(HEADER + "".join(row + "\n" for row in rows))
    return path


def shockwave(folder: Path, family: str, mode: str, steps: int = 9000) -> Path:
    path = folder / "a.trace"
    path.write_text(SHOCKWAVE.format(family=family, steps=steps, mode=mode))
    return path


def adaptation(path: Path, table: Throughputs = BUILTIN) -> Adaptation | None:
    (arrival,) = read_trace(path, table).arrivals
    return arrival.job.adaptation


@pytest.mark.parametrize("mode", [Mode.STATIC, Mode.ACCORDION, Mode.GNS])
def test_modes_of_shockwave(tmp_path: Path, mode: Mode) -> None:
    """9,000 steps are 12.06 epochs of 746: GNS doubles at 11, Accordion may grow from 10 on."""
    found = adaptation(shockwave(tmp_path, "LM (batch size 80)", mode))
    assert found == batch_schedule("LM (batch size 80)", 1, 9000.0, mode)
    stages = {Mode.STATIC: 1, Mode.ACCORDION: 2, Mode.GNS: 2}
    again = adaptation(shockwave(tmp_path, "LM (batch size 40)", mode, 18_000))
    assert again is not None
    assert len(again.schedule) == stages[mode]


def test_static_jobs_of_unknown_data_have_no_epochs(tmp_path: Path) -> None:
    assert adaptation(shockwave(tmp_path, "A3C", "static")) is None
    assert adaptation(shockwave(tmp_path, NET, "static"), NETS) is None
    assert adaptation(own(tmp_path, "0,0,plain,1,5,static,"), NETS) is None


@pytest.mark.parametrize(
    ("family", "mode", "message"),
    [
        (
            "LM (batch size 5)",
            "dynamic",
            "mode: expected static, accordion, gns or a schedule such",
        ),
        ("LM (batch size 5)", "", "mode: expected static, accordion, gns or a schedule such"),
        ("A3C", "gns", "mode 'gns': A3C: the name states no batch size"),
    ],
)
def test_modes_that_cannot_be_used(tmp_path: Path, family: str, mode: str, message: str) -> None:
    with pytest.raises(TraceError, match=f"a.trace:1: {message}"):
        read_trace(shockwave(tmp_path, family, mode), BUILTIN)


def test_a_schedule_for_any_family(tmp_path: Path) -> None:
    """1,000 samples in batches of 32 are 32 steps an epoch."""
    found = adaptation(own(tmp_path, f"0,0,{NET},1,112,0:32;2:64;9:96,1000"), NETS)
    assert found == Adaptation(Mode.SCHEDULE, 1000, 3.5, ((0, 32), (2, 64)))
    known = adaptation(own(tmp_path, "0,0,LM (batch size 20),1,30000,0:20;3:10,"))
    assert known is not None
    assert (known.samples, known.schedule) == (59675, ((0, 20), (3, 10)))


def test_no_adaptation_without_a_word_about_it(tmp_path: Path) -> None:
    assert adaptation(own(tmp_path, "0,0,LM (batch size 20),1,30000,,")) is None
    assert adaptation(own(tmp_path, "0,0,LM (batch size 20),1,30000,,500")) is None


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("accordion,", "adaptation 'accordion': .*samples per epoch is not known"),
        ("accordion,100", "adaptation 'accordion': .*no rule for mode accordion"),
        ("0:32,", "adaptation '0:32': .*samples per epoch is not known"),
        ("0:32;9,100", "adaptation: expected a whole number, got ''"),
        ("0:32;x:64,100", "adaptation: expected a whole number, got 'x'"),
        ("0:32;5:0,100", "adaptation: must be >= 1, got '0'"),
        ("0:32;5:64;5:96,100", ".*the epochs of the schedule must increase"),
        ("1:32,100", ".*the schedule must start with epoch 0, got 1"),
        ("0:64,100", ".*must start with the family's batch size 32, got 64"),
        ("0:32,0", "samples: must be >= 1, got '0'"),
        ("grow,100", "adaptation: expected static, accordion, gns or a schedule .*, got 'grow'"),
    ],
)
def test_adaptations_that_cannot_be_used(tmp_path: Path, cells: str, message: str) -> None:
    with pytest.raises(TraceError, match=f"a.csv:2: {message}"):
        read_trace(own(tmp_path, f"0,0,{NET},1,5,{cells}"), NETS)


def test_jobs_that_grow_out_of_the_table_are_left_out(tmp_path: Path) -> None:
    rows = [
        f"{n},0,{NET},1,500,{s},320" for n, s in enumerate(("0:32;1:64", "0:32;1:96", "static"))
    ]
    trace = read_trace(own(tmp_path, *rows), NETS)
    assert len(trace.arrivals) == 3
    kept = usable(trace, NETS)
    assert [a.job.id for a in kept.arrivals] == [0, 2]
    assert skipped_summary(kept) == [
        "1 row skipped: no rate for net (batch size 96) at scale factor 1, which net (batch size 32) "
        "changes to (line 3)"
    ]
    old = usable(trace, NETS, Cluster.of({"k80": 4}))
    assert [a.job.id for a in old.arrivals] == [2]
    assert (
        "no rate for net (batch size 64) at scale factor 1 on k80, which" in old.skipped[0].reason
    )


modes = st.sampled_from([Mode.STATIC, Mode.ACCORDION, Mode.GNS])
stages = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 500)), max_size=6)


@st.composite
def adapting_jobs(draw: st.DrawFn) -> Job:
    family, batch, mode = "LM (batch size 20)", 20, draw(modes | st.just(Mode.SCHEDULE))
    total = draw(st.floats(1.0, 1e6))
    samples = draw(st.none() | st.integers(1, 10**6))
    schedule = [(0, batch)]
    for gap, size in draw(stages):
        schedule.append((schedule[-1][0] + gap, size))
    made = batch_schedule(family, 1, total, mode, samples=samples, schedule=tuple(schedule))
    return Job(JobId(0), family, 1, total, adaptation=made)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@given(job=adapting_jobs())
def test_adaptations_survive_our_formats(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, job: Job
) -> None:
    path = tmp_path_factory.mktemp("trace") / f"a.{suffix}"
    write_trace(Trace("made up", "none", [Arrival(0.0, job)]), path)
    assert read_trace(path, BUILTIN).arrivals == [Arrival(0.0, job)]


@pytest.mark.shared
@pytest.mark.parametrize("suffix", ["csv", "parquet", "trace"])
def test_shockwave_traces_survive_every_format(tmp_path: Path, suffix: str, shared: Path) -> None:
    table = read_throughputs(shared / "data/shockwave/tacc_throughputs.json")
    for path in sorted((shared / "data/shockwave/traces").glob("*.trace")):
        trace = usable(read_trace(path, table), table, Cluster.of({"v100": 32}))
        assert not trace.skipped
        write_trace(trace, tmp_path / f"a.{suffix}")
        assert read_trace(tmp_path / f"a.{suffix}", table).arrivals == trace.arrivals


def test_deadlines_of_adapting_jobs_survive_shockwaves_format(tmp_path: Path) -> None:
    """They are multiples of the stated duration, or of the nominal one where none is stated."""
    made = batch_schedule("LM (batch size 20)", 1, 3e4, Mode.GNS)
    jobs = [
        Job(
            JobId(n),
            "LM (batch size 20)",
            1,
            3e4,
            weight=1.0,
            tenant="",
            slo_s=slo_s,
            duration_s=duration_s,
            adaptation=made,
        )
        for n, (slo_s, duration_s) in enumerate([(50.0, 100.0), (50.0, None), (None, 7.0)])
    ]
    write_trace(Trace("x", "y", [Arrival(0.0, job) for job in jobs]), tmp_path / "a.trace", BUILTIN)
    back = [arrival.job for arrival in read_trace(tmp_path / "a.trace", BUILTIN).arrivals]
    assert [job.adaptation for job in back] == [made] * 3
    assert [job.slo_s for job in back] == [50.0, pytest.approx(50.0), None]


def test_what_shockwaves_format_cannot_say(tmp_path: Path) -> None:
    for made in (
        batch_schedule(NET, 1, 50.0, Mode.STATIC, samples=320),
        batch_schedule(NET, 1, 50.0, Mode.SCHEDULE, samples=320, schedule=((0, 32), (2, 64))),
    ):
        trace = Trace("x", "y", [Arrival(0.0, Job(JobId(0), NET, 1, 50.0, adaptation=made))])
        with pytest.raises(TraceError, match=r"x: job 0: adaptation .* cannot be written in Shock"):
            write_trace(trace, tmp_path / "a.trace", NETS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.shared
def test_how_many_adapt(shared: Path) -> None:
    (path,) = (shared / "data/shockwave/traces").glob("120_*")
    seen = describe(read_trace(path, BUILTIN), BUILTIN)
    assert seen.adapting == {"accordion": 59, "gns": 57, "static": 4}


def test_streams_are_checked() -> None:
    wrong = Adaptation(Mode.SCHEDULE, 100, 5.0, ((0, 64),))
    arrival = Arrival(0.0, Job(JobId(0), NET, 1, 5.0, adaptation=wrong))
    with pytest.raises(TraceError, match="adaptation: the schedule must start with the"):
        list(checked([arrival]))
