"""Calls and results as files."""

import pickle
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from fairlead.client.call_files import (
    CallError,
    CallFolder,
    CallResult,
    RemoteTracebackError,
    call_result,
    dump_for_jobs,
)
from fairlead.client.run_call import EXIT_RAISED, main
from fairlead.errors import ConfigError
from tests.client import call_functions


@pytest.fixture(autouse=True)
def _without_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


def test_calls_are_read_one_by_one(tmp_path: Path) -> None:
    folder = CallFolder(tmp_path / "calls")
    folder.write_calls(call_functions.square, [((n,), {"a": n}) for n in range(3)])
    assert folder.read_call(2) == (call_functions.square, (2,), {"a": 2})
    assert folder.read_call(0) == (call_functions.square, (0,), {"a": 0})
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_result_of_the_newest_attempt_counts(tmp_path: Path) -> None:
    folder = CallFolder(tmp_path / "calls")
    assert folder.read_result(0, 5) is None
    for attempt in (9, 10, 11):
        folder.write_result(0, attempt, call_result(call_functions.square, (attempt,), {}))
    (tmp_path / "calls" / "results" / "0" / ".12.7").touch()  # as one that was killed leaves it
    found = folder.read_result(0, 10)
    assert found is not None
    assert found.value() == 100
    assert folder.read_result(1, 10) is None


def test_exception_comes_back_with_its_traceback() -> None:
    with pytest.raises(call_functions.OwnError) as raised:
        call_result(call_functions.fail, (7,), {}).value()
    assert raised.value.code == 7
    assert isinstance(raised.value.__cause__, RemoteTracebackError)
    assert "in fail\n    raise OwnError(code)" in str(raised.value.__cause__)


def test_what_cannot_be_passed_back_is_told_in_words() -> None:
    with pytest.raises(CallError, match="UnpicklableError: 1 of 2") as raised:
        call_result(call_functions.fail_oddly, (), {}).value()
    assert "in fail_oddly" in str(raised.value.__cause__)
    with pytest.raises(CallError, match=r"^the value cannot be pickled: TypeError: .*lock"):
        call_result(call_functions.give_a_lock, (), {}).value()
    unknown = b"\x80\x04\x8c\x07nowhere\x8c\x01x\x93."
    with pytest.raises(CallError, match=r"^the value cannot be unpickled here: .*nowhere"):
        CallResult(True, unknown, "", "").value()


def test_what_jobs_could_not_unpickle_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"<lambda> cannot be passed on to a job \(.*cloudpickle"):
        dump_for_jobs(lambda: 1)
    code = call_functions.square.__code__
    of_script = FunctionType(code, {"__name__": "__main__"}, "of_script")
    of_script.__qualname__ = "of_script"
    with pytest.raises(ConfigError, match=r"^of_script is defined in the script that runs, which"):
        dump_for_jobs(of_script)
    assert pickle.loads(dump_for_jobs(call_functions.square)) is call_functions.square


def test_program_of_a_job_writes_and_tells_what_came_of_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_ATTEMPT", "3")
    good, bad = CallFolder(tmp_path / "good"), CallFolder(tmp_path / "bad")
    good.write_calls(call_functions.square, [((n,), {}) for n in range(5)])
    bad.write_calls(call_functions.fail, [((1,), {})])
    monkeypatch.setenv("FAIRLEAD_ARRAY_INDEX", "4")
    assert main([str(good.path)]) == 0
    found = good.read_result(4, 3)
    assert found is not None
    assert found.value() == 16
    monkeypatch.delenv("FAIRLEAD_ARRAY_INDEX")
    assert main([str(bad.path)]) == EXIT_RAISED
    assert "OwnError: 1" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    other = CallFolder(tmp_path / "other")
    other.write_calls(call_functions.square, [((1,), {})])
    assert main([str(other.path)]) == 0
    assert other.read_result(0, 3) is None  # rank 0 speaks for all


def test_function_of_a_script_is_refused_before_anything_is_submitted(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.modules['cloudpickle'] = None\n"
        "from fairlead.client.futures import JobExecutor\n"
        "def work(): pass\n"
        f"JobExecutor('http://127.0.0.1:9', directory={str(tmp_path)!r}).submit(work)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "ConfigError: work is defined in the script that runs" in ended.stderr
    assert list(tmp_path.iterdir()) == [script]
