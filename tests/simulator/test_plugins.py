"""Observers and admission rules: as objects, and as entry points of an installed package."""

from pathlib import Path
from typing import Any

import pytest
from tests.small import TABLE, job, run

import fairlead
from fairlead import AdmissionState, InputError, Job, TraceError
from fairlead.errors import SimulationError
from fairlead.model.commands import StartRound

JOBS = [job(n, 10.0 * n, 8_000.0) for n in range(6)]


class Rounds:
    """Counts rounds."""

    def __init__(self) -> None:
        self.n = 0

    def event(self, event: Any) -> None: ...

    def command(self, command: Any) -> None:
        self.n += isinstance(command, StartRound)


class AtMostTwo:
    """Refuses who finds two others."""

    name = "at_most_two"

    def admit(self, job: Job, state: AdmissionState) -> bool:
        assert state.time_s >= 0
        return len(state.jobs) < 2


def test_an_observer_sees_every_round() -> None:
    rounds = Rounds()
    assert run(JOBS, observers=[rounds]).metrics["n_rounds"] == rounds.n > 0


class Writes(Rounds):
    """Writes to an array of whatever has one of this name."""

    def __init__(self, *path: str) -> None:
        super().__init__()
        self.path = path

    def event(self, event: Any) -> None:
        self.write(event)

    def command(self, command: Any) -> None:
        super().command(command)
        self.write(command)

    def write(self, found: Any) -> None:
        for name in self.path:
            found = getattr(found, name, None)
        if found is not None and len(found):
            found[:] = 0


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        (("devices",), "StartRound"),
        (("snapshot", "capacity"), "Solve"),
        (("snapshot", "previous", "share"), "Solve"),
        (("allocation", "share"), "Solved"),
        (("steps",), "RoundEnded"),
        (("end_s",), "EndJobs"),
    ],
)
def test_an_observer_cannot_write_to_what_it_sees(path: tuple[str, ...], seen: str) -> None:
    message = rf"observer Writes at \d+ s \({seen}\): ValueError: .*read-only \(.*plugins.py:\d+\)"
    with pytest.raises(SimulationError, match=message):
        run(JOBS, observers=[Writes(*path)])


def test_what_an_observer_has_seen_may_be_asked_of_the_library() -> None:
    class Asks(Rounds):
        """Compares what each answer gives with the snapshot that was asked about."""

        snapshot: Any = None
        rates: list[float]

        def command(self, command: Any) -> None:
            self.snapshot = getattr(command, "snapshot", self.snapshot)

        def event(self, event: Any) -> None:
            made = getattr(event, "allocation", None)
            if made is not None and len(made.share):
                fairlead.check_allocation(made, self.snapshot)
                self.rates = fairlead.effective_throughput(made, self.snapshot).tolist()

    asks = Asks()
    run(JOBS, observers=[asks])
    assert sum(asks.rates) > 0


def test_what_others_raise_names_them_and_the_time() -> None:
    class Raises(Rounds):
        name = "raises"

        def event(self, event: Any) -> None:
            raise ValueError("boom")

        def admit(self, job: Job, state: AdmissionState) -> bool:
            raise KeyError("boom")

    with pytest.raises(
        SimulationError, match=r"observer Raises at 0 s \(JobsSubmitted\): ValueError: b"
    ):
        run(JOBS, observers=[Raises()])
    with pytest.raises(SimulationError, match="admission Raises at 0 s: job 0: KeyError: 'boom'"):
        run(JOBS, admission=Raises())


def test_refused_jobs_are_counted_and_never_seen_by_the_scheduler(tmp_path: Path) -> None:
    result = run(JOBS, admission=AtMostTwo(), out=tmp_path / "run")
    assert result.complete
    assert result.metrics["n_refused"] == 4
    assert result.jobs["job"].to_list() == [0, 1]
    assert run(JOBS[:2]).jobs["end_s"].to_list() == result.jobs["end_s"].to_list()


def test_admission_lets_in_again_when_jobs_have_left() -> None:
    late = [*JOBS, job(6, 50_000.0, 800.0)]
    assert run(late, admission=AtMostTwo()).jobs["job"].to_list() == [0, 1, 6]


def test_both_are_found_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "mine-0.1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n")
    here = "tests.simulator.test_plugins"
    info.joinpath("entry_points.txt").write_text(
        f"[fairlead.observers]\nrounds = {here}:Rounds\n"
        f"[fairlead.admission]\nat_most_two = {here}:AtMostTwo\n"
        "broken = no_such_module:x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run(JOBS, observers=["rounds"], admission="at_most_two")
    assert result.metrics["n_refused"] == 4
    with pytest.raises(InputError, match="'broken': entry point 'no_such_module:x' cannot be"):
        run(JOBS, admission="broken")


def test_what_is_neither_is_said() -> None:
    with pytest.raises(InputError, match="'nosuch': no such entry point in the group"):
        run(JOBS, observers=["nosuch"])
    with pytest.raises(InputError, match="expected a list of observers or of their names, got 'a'"):
        run(JOBS, observers="a")
    with pytest.raises(
        InputError, match="observer Rounds: expected an object, got the class itself"
    ):
        run(JOBS, observers=[Rounds])
    with pytest.raises(InputError, match="observer int: has no method 'event'"):
        run(JOBS, observers=[3])
    with pytest.raises(InputError, match="admission Rounds: has no method 'admit'"):
        run(JOBS, admission=Rounds())
    with pytest.raises(InputError, match="does not go with admission"):
        run(JOBS, admission=AtMostTwo(), measured_jobs=(0, 2))


def test_a_rule_that_forgets_to_answer_is_refused() -> None:
    class Forgetful(AtMostTwo):
        def admit(self, job: Job, state: AdmissionState) -> bool:
            return None  # type: ignore[return-value]

    with pytest.raises(SimulationError, match=r"admission Forgetful at 0 s: job 0: .* got None"):
        run(JOBS, admission=Forgetful())


@pytest.mark.parametrize("function", ["stop", "watch"])
def test_what_functions_of_the_caller_raise_names_them(function: str) -> None:
    def broken(*_: Any) -> bool:
        raise ValueError("boom\non two lines")

    said = rf"^{function}\(\): ValueError: boom on two lines \(.*test_plugins\.py:\d+\)$"
    with pytest.raises(SimulationError, match=said):
        run(JOBS, **{function: broken})  # type: ignore[arg-type]


def test_what_an_iterator_of_arrivals_raises_is_one_sentence() -> None:
    def arrivals() -> Any:
        yield JOBS[0]
        raise OSError("disk\ngone")

    said = r"^trace: OSError: disk gone \(.*test_plugins\.py:\d+\)$"
    with pytest.raises(TraceError, match=said):
        run(arrivals())
    with pytest.raises(TraceError, match=said):
        fairlead.Environment(arrivals(), "fast=1", throughputs=TABLE)


def test_an_observer_may_ask_for_isolated_rates() -> None:
    class Asks(Rounds):
        def command(self, command: Any) -> None:
            if (snapshot := getattr(command, "snapshot", None)) is not None:
                fairlead.isolated_rate(snapshot, weighted=False)
                self.n += 1

    asks = Asks()
    run(JOBS, observers=[asks])
    assert asks.n > 0


def test_an_error_of_ours_within_an_observer_names_it() -> None:
    class Wrong(Rounds):
        def event(self, event: Any) -> None:
            fairlead.parse_cluster("v100")

    with pytest.raises(InputError, match=r"^observer Wrong at 0 s \(JobsSubmitted\): "):
        run(JOBS, observers=[Wrong()])
