"""The journal: readable however it was cut, replayable, the same in every process."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.errors import CheckError, RunError
from fairlead.model.commands import StartRound
from fairlead.model.events import JobsSubmitted, RoundEnded
from fairlead.scheduler import journal
from fairlead.scheduler.journal import (
    decode,
    encode,
    records,
    replay,
)
from fairlead.scheduler.setup import Setup
from fairlead.simulator.generate import generate
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs

PROGRAM = """
import sys
import zlib
from pathlib import Path
from fairlead.simulator.generate import generate
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.analysis.simulate import simulate
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs
cluster = parse_cluster("v100=4,p100=4,k80=4")
jobs, _ = generate("gavel,jobs=30,interarrival=2000", read_throughputs("builtin"), cluster, 5)
ground_truth = GroundTruth(mtbf_s=200_000.0, rate_noise=0.1, early_termination=0.1, seed=3)
jobs = list(jobs)
for policy in sys.argv[2:]:
    out = Path(sys.argv[1]) / policy
    result = simulate(jobs, cluster, policy, ground_truth=ground_truth, seed=5, out=out)
    print(result.metrics["journal_sha256"])
"""


def runs_of(out: Path, *policies: str, hash_seed: str = "0") -> list[str]:
    """Run each of them in a process of their own; the hashes of their journals."""
    out.mkdir()
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(out), *policies],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "one"
    runs_of(out, "las_aware")
    return out / "las_aware"


def test_equal_runs_give_equal_journals_in_every_process(tmp_path: Path) -> None:
    policies = ("las_aware", "fifo", "isolated")
    first, *others = [
        runs_of(tmp_path / seed, *policies, hash_seed=seed) for seed in ("0", "1", "4242")
    ]
    assert len(set(first)) == len(policies)
    assert others == [first, first]


def test_a_replay_compares_every_record(run: Path) -> None:
    path = run / "journal"
    assert replay(path) == (len(list(records(path))), 0)


def test_a_journal_cut_anywhere_reads_up_to_its_last_whole_record(
    run: Path, tmp_path: Path
) -> None:
    whole = (run / "journal").read_bytes()
    all_records = list(records(run / "journal"))
    rng = np.random.default_rng(0)
    cut = tmp_path / "journal"
    for length in rng.integers(len(journal.MAGIC) + 20_000, len(whole), 40).tolist():
        cut.write_bytes(whole[:length])
        some = list(records(cut))
        assert some == all_records[: len(some)]
        used = len(journal.MAGIC) + sum(8 + len(record) for record in some)
        assert used <= length < used + 8 + len(all_records[len(some)])
        if some:
            assert replay(cut) == (len(some), length - used)


def test_a_replay_names_the_first_difference(run: Path, tmp_path: Path) -> None:
    changed = tmp_path / "journal"
    number = 0
    with changed.open("wb") as file:
        file.write(journal.MAGIC)
        for index, record in enumerate(records(run / "journal")):
            thing = decode(record)
            if isinstance(thing, StartRound) and len(thing.job_groups) and not number:
                number = index
                thing.devices[0] += 1
                record = encode(thing)
            file.write(journal._HEAD.pack(len(record), zlib.crc32(record)) + record)
    with pytest.raises(CheckError, match=rf"record {number}: StartRound \d+ at .*: devices is"):
        replay(changed)


def test_damage_in_the_middle_is_noticed(run: Path, tmp_path: Path) -> None:
    whole = bytearray((run / "journal").read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / "journal").write_bytes(whole)
    whole_ones = len(list(records(tmp_path / "journal")))
    assert whole_ones < len(list(records(run / "journal")))
    with pytest.raises(RunError, match=rf"record {whole_ones} at byte \d+ is damaged"):
        replay(tmp_path / "journal")


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("something else")
    with pytest.raises(RunError, match="not a journal of this version"):
        replay(path)
    with pytest.raises(RunError, match="cannot read the journal"):
        replay(tmp_path / "absent")


def test_a_journal_of_another_version_is_refused_and_not_misread(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    whole = (run / "journal").read_bytes()
    path.write_bytes(whole.replace(b"journal 3\n", b"journal 1\n", 1))
    with pytest.raises(RunError, match=r"a journal of format 1, .*; this one reads format 3"):
        replay(path)
    first = next(records(run / "journal"))
    setup = msgspec.msgpack.decode(first[1:])
    for more, name in (
        ({"type_by_type": True}, "settings.type_by_type"),  # a switch, where there is no such one
        ({"gavel": {"odd": 1}}, "settings.gavel.odd"),
    ):
        other = {**setup, "settings": {**setup["settings"], **more}}
        record = first[:1] + msgspec.msgpack.encode(other)
        with pytest.raises(
            RunError, match=f"{name} is not known here: another version of Fairlead"
        ):
            journal.read_beginning([record], "j")


def test_a_setup_with_the_names_of_earlier_versions_is_read(run: Path) -> None:
    first = next(records(run / "journal"))
    setup = msgspec.msgpack.decode(first[1:])
    settings = dict(setup["settings"])
    settings["horizon_s"] = settings.pop("payback_period_s")
    settings["early_rounds"] = settings.pop("deadline_margin_rounds")
    earlier = first[:1] + msgspec.msgpack.encode({**setup, "settings": settings})
    assert earlier != first
    now = decode(first)
    assert isinstance(now, Setup)
    read, *_ = journal.read_beginning([earlier], "j")
    assert read.settings == now.settings


def test_records_come_back_as_they_were(run: Path) -> None:
    seen = set()
    for record in records(run / "journal"):
        thing = decode(record)
        seen.add(type(thing).__name__)
        if isinstance(thing, RoundEnded):
            assert thing.steps.dtype == np.float64
            assert thing.outcome.dtype == np.int64
        if isinstance(thing, JobsSubmitted | RoundEnded | StartRound):
            assert encode(thing) == record
    assert {"Setup", "JobsSubmitted", "SolveDigest", "Solved", "StartRound", "RoundEnded"} <= seen
    assert {"EndJobs", "NodeLost", "NodeRecovered", "EndRound"} <= seen


def test_a_run_that_was_stopped_goes_on_to_the_same_journal(tmp_path: Path) -> None:
    cluster, table = parse_cluster("v100=4,p100=4,k80=4"), read_throughputs("builtin")
    jobs = list(generate("gavel,jobs=40,interarrival=2000", table, cluster, 5)[0])
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    expected = simulate(jobs, cluster, "las_aware", out=whole)
    calls = iter(range(10**9))
    stopped = simulate(jobs, cluster, "las_aware", out=part, stop=lambda: next(calls) > 300)
    assert not stopped.complete
    kept, calls = (part / "journal").read_bytes(), iter(range(10**9))
    early = simulate(
        jobs, cluster, "las_aware", out=part, resume=True, stop=lambda: next(calls) > 30
    )
    assert (part / "journal").read_bytes() == kept
    assert "the journal is as it was" in early.skipped[-1]
    again = simulate(jobs, cluster, "las_aware", out=part, resume=True)
    assert again.complete
    assert again.metrics["journal_sha256"] == expected.metrics["journal_sha256"]
    assert (part / "journal").read_bytes() == (whole / "journal").read_bytes()
    assert again.metrics["avg_jct_s"] == expected.metrics["avg_jct_s"]


def test_a_run_does_not_go_on_with_other_input(tmp_path: Path) -> None:
    cluster, table = parse_cluster("v100=4,p100=4,k80=4"), read_throughputs("builtin")
    calls = iter(range(10**9))
    for seed in (1, 2):
        jobs = list(generate("gavel,jobs=20,interarrival=2000", table, cluster, seed)[0])
        if seed == 1:
            simulate(jobs, cluster, "fifo", out=tmp_path, stop=lambda: next(calls) > 50)
            before = (tmp_path / "journal").read_bytes()
            continue
        with pytest.raises(CheckError, match="differs from the run that is to go on there"):
            simulate(jobs, cluster, "fifo", out=tmp_path, resume=True)
    assert (tmp_path / "journal").read_bytes() == before


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    for record in (b"", b"?x", b"R\x91\x01", b"H\xff", b"e" + b"\xc1" * 9):
        with pytest.raises(RunError, match="damaged"):
            journal.decode(record)
