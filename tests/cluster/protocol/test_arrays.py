import pytest

from fairlead.cluster.protocol.arrays import MAX_TASKS, ArrayRange, parse_array
from fairlead.cluster.protocol.dependencies import Dependency, parse_dependency
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import check_spec
from fairlead.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", ArrayRange((7,), 0)),
        ("0-3", ArrayRange((0, 1, 2, 3), 0)),
        ("0-9:3,20,30%2", ArrayRange((0, 3, 6, 9, 20, 30), 2)),
        ("5,1-2", ArrayRange((1, 2, 5), 0)),
        (f"1-{MAX_TASKS}%{MAX_TASKS}", ArrayRange(tuple(range(1, MAX_TASKS + 1)), MAX_TASKS)),
    ],
)
def test_arrays_are_read(text: str, expected: ArrayRange) -> None:
    assert parse_array(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "expected indices like 0-99"),
        ("1,", "expected indices like 0-99"),
        ("-1", "expected indices like 0-99"),
        ("3-1", "the range 3-1 ends before it begins"),
        ("0-9:0", "the range 0-9:0 has a step of 0"),
        ("1,1", "1 names an index that was named before"),
        ("0-10000", "an array has at most 10,000 tasks"),
        ("0-999999999", "an array has at most 10,000 tasks"),
        ("0-9999999999", "9999999999 is larger than 999,999,999, the largest index"),
        ("0-9%" + "9" * 20, "9{20} is larger than 999,999,999"),
        ("9" * 5_000, r"9{37}\.\.\. is larger than"),
        ("0-9%0", "at least 1"),
        ("0-9%", "at least 1"),
        ("0-9%x", "at least 1"),
    ],
)
def test_other_arrays_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"^job: array: .*{problem}.*, got '{text[:50]}"):
        check_spec(JobSpec(command=("x",), total_steps=1, array=text))


def test_tasks_cannot_share_a_directory() -> None:
    spec = JobSpec(command=("x",), total_steps=1, array="0-1", checkpoint_dir="/c")
    with pytest.raises(InputError, match="checkpoint_dir and array are both given"):
        check_spec(spec)


def test_dependencies_are_read() -> None:
    assert parse_dependency("ok:12") == Dependency("ok", 12, False)
    assert parse_dependency("any:array:0") == Dependency("any", 0, True)


@pytest.mark.parametrize("text", ["12", "ok:", "ok:-1", "fail:3", "ok:01", "ok:array:", "ok: 3"])
def test_other_dependencies_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=rf"^job: after: expected ok:JOB .*, got '{text[:50]}"):
        check_spec(JobSpec(command=("x",), total_steps=1, after=(text,)))
