"""Job descriptions from files, and what is wrong with them."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import (
    check_spec,
    make_spec,
    read_spec,
)
from fairlead.cluster.protocol.runtime import Runtime
from fairlead.errors import InputError


def runs_in(lines: str) -> str:
    """A job file with these lines."""
    return f'command = "a"\ntotal_steps = 9\n{lines}'


PODMAN = ("podman", "run", "{options}", "i:1")
GOOD = JobSpec(command=("python", "train.py"), total_steps=100)


def test_a_toml_file_describes_a_job(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(
        "command = \"python train.py --name 'two words'\"\ntotal_steps = 100\nscale_factor = 2\n"
        'weight = 2\nslo_s = 3600.0\n[rates]\nv100 = 10\nk80 = 2.5\n[env]\nSEED = "1"\n'
    )
    assert read_spec(path) == JobSpec(
        command=("python", "train.py", "--name", "two words"),
        total_steps=100,
        name="train",
        scale_factor=2,
        weight=2.0,
        slo_s=3600.0,
        rates={"v100": 10.0, "k80": 2.5},
        env={"SEED": "1"},
    )


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("python = '/opt/py/bin/python3.9'", Runtime(python="/opt/py/bin/python3.9")),
        ("venv = '/home/me/venv'", Runtime(venv="/home/me/venv")),
        ("conda = 'vision'", Runtime(conda="vision")),
        ("container = 'podman run {options} i:1'", Runtime(container=PODMAN)),
        ("container = ['podman', 'run', '{options}', 'i:1']", Runtime(container=PODMAN)),
    ],
)
def test_a_job_names_where_it_runs(line: str, wanted: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(runs_in(line))
    assert read_spec(path).runtime == wanted


def test_a_json_file_is_what_the_api_takes(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    spec = msgspec.structs.replace(GOOD, name="mine", unmanaged=True, env={"A": "b=c"})
    path.write_bytes(msgspec.json.encode(spec))
    assert read_spec(path) == spec


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "", "a.yaml: a job is described in a .toml or a .json file"),
        ("a.toml", "command = [", "a.toml: is not valid TOML"),
        ("a.json", "{", "a.json: is not JSON"),
        ("a.json", '{"weight": 1e999}', "a.json: weight: number out of range, got 1e999"),
        (
            "a.json",
            '{"rates": {"v100": NaN}}',
            "a.json: rates.v100: JSON has no such number, got NaN",
        ),
        ("a.json", '{"after": [1, -1e999]}', "a.json: after[1]: number out of range, got -1e999"),
        (
            "a.json",
            '{"total_steps": ' + "9" * 5_000 + "}",
            "a.json: total_steps: integer out of range, got " + "9" * 37 + "...",
        ),
        (
            "a.json",
            r'{"name": "\ud800"}',
            r"a.json: name: is not valid Unicode, got '\ud800'",
        ),
        ("a.json", r'{"env": {"\ud800": "1"}}', r"a.json: env: the name '\ud800' is not valid"),
        (
            "a.json",
            '{"command": ["a"], "total_steps": 5, "total_steps": 6}',
            "a.json: total_steps: is given twice",
        ),
        ("a.json", '{"command": ["a"], "env": {"A": "1", "A": "2"}}', "a.json: A: is given twice"),
        ("a.json", "[1]", "a.json: expected a table of fields, got [1]"),
        ("a.json", '{"command": ' + "[" * 100_000, "a.json: is nested too deeply"),
        ("a.toml", "total_steps = 1", "a.toml: command: is missing"),
        (
            "a.toml",
            "command = 3\ntotal_steps = 9",
            "a.toml: command: expected one string or a list of words, got 3",
        ),
        (
            "a.json",
            '{"command": {"a": 1}, "total_steps": 9}',
            "a.json: command: expected one string or a list of words, got {'a': 1}",
        ),
        ("a.toml", runs_in("retry_on = 3"), "a.toml: retry_on: expected a list, got 3"),
        (
            "a.toml",
            'command = "a"\ntotal_steps = "9"',
            "a.toml: total_steps: expected int, got '9'",
        ),
        ("a.toml", 'command = ["a", 3]\ntotal_steps = 9', "command[1]: expected str, got 3"),
        ("a.toml", 'command = "a \'b"\ntotal_steps = 9', "command: No closing quotation"),
        (
            "a.toml",
            'command = "a"\ntotal_steps = 9\nweigth = 2',
            "a.toml: weigth: unknown field; did you mean weight?",
        ),
        ("a.toml", runs_in("colour = 2"), "a.toml: colour: unknown field"),
        ("a.toml", runs_in("on_stall = 'x'"), "on_stall: must be 'report' or 'restart', got 'x'"),
        ("a.toml", runs_in("on_stall = 1"), "on_stall: must be 'report' or 'restart', got 1"),
        ("a.toml", runs_in("prefork = 'yes'"), "prefork: must be true, false or 'auto', got 'yes'"),
        ("a.toml", runs_in("prefork = 1.5"), "prefork: must be true, false or 'auto', got 1.5"),
        ("a.toml", runs_in("unmanaged = 'yes'"), "unmanaged: expected true or false, got 'yes'"),
        ("a.toml", runs_in("env = {prefork = 4}"), "env.prefork: expected str, got 4"),
        ("a.toml", runs_in("env = {A = 'b', N = 4}"), "env.N: expected str, got 4"),
        ("a.toml", runs_in("rates = {v100 = 'x'}"), "rates.v100: expected float, got 'x'"),
        ("a.toml", 'command = "a"\ntotal_steps = 9\nweight = nan', "weight: must be from"),
        ("a.toml", 'command = ""\ntotal_steps = 9', "a.toml: command: must not be empty"),
        ("a.toml", runs_in("venv = '/v'\nconda = 'c'"), "venv and conda are both given"),
        ("a.toml", runs_in("python = 'bin/python'"), "python: must be an absolute path, got 'bin"),
        ("a.toml", runs_in("venv = '~/v'"), "venv: must be an absolute path, got '~/v'"),
        (
            "a.toml",
            runs_in("conda = 'a/b'"),
            "conda: must be a name or an absolute path, got 'a/b'",
        ),
        ("a.toml", runs_in("conda = '/a/../b'"), "conda: must not climb with '..'"),
        ("a.toml", runs_in("container = 'podman run image'"), "container: {options} is missing"),
        (
            "a.toml",
            runs_in("container = 'enroot {options} i'"),
            "{options} is known for apptainer,",
        ),
        (
            "a.toml",
            runs_in("container = 'enroot {mounts} i'"),
            "{mounts} is none of {checkpoints},",
        ),
        ("a.toml", runs_in("container = 'podman a={options}'"), "must be a word of its own"),
        (
            "a.toml",
            runs_in("container = 'docker run {options} i'\nunmanaged = true"),
            "cannot be ended for certain under docker",
        ),
        ("a.toml", runs_in("env = {GROUP_RANK = '1'}"), "GROUP_RANK is set by Fairlead itself"),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_spec(path)
    said = re.sub(r"\.toml:([0-9]+): ", ".toml: ", str(refused.value))
    assert message in said
    assert said.startswith(str(path))
    assert len(said) < len(str(path)) + 150


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_spec(tmp_path / "x.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(InputError, match="is larger than"):
        read_spec(tmp_path / "large.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": ()}, "command: must not be empty"),
        ({"command": ("a\0",)}, "command[0]: must not hold a NUL character"),
        ({"command": ("a", "\ud800")}, "command[1]: is not valid Unicode"),
        ({"command": ("a" * 200_000,)}, "command: at most 131,072 bytes"),
        ({"command": ("a",) * 5_000}, "command: at most 4,096 words"),
        ({"total_steps": 0}, "total_steps: must be from 1 to 9007199254740991, got 0"),
        ({"total_steps": 10**400}, "total_steps: must be from 1"),
        ({"scale_factor": 0}, "scale_factor"),
        ({"weight": float("inf")}, "weight: must be from 1e-06 to 1000000, got inf"),
        ({"weight": float("nan")}, "got nan"),
        ({"slo_s": 0.0}, "slo_s"),
        ({"grace_s": -1.0}, "grace_s"),
        ({"log_bytes": 1}, "log_bytes"),
        ({"name": "a\x1b[2J"}, "name: must be printable, got 'a\\x1b[2J'"),
        ({"family": "x" * 201}, "family: at most 200 characters, got 201"),
        ({"cwd": "here"}, "cwd: must be an absolute path, got 'here'"),
        ({"checkpoint_dir": "/"}, "checkpoint_dir: must be a directory of this job's own, got '/'"),
        (
            {"checkpoint_dir": "//"},
            "checkpoint_dir: must be a directory of this job's own, got '//'",
        ),
        ({"checkpoint_dir": "/a/../../etc"}, "checkpoint_dir: must not climb"),
        ({"rates": {"v 100": 1.0}}, "rates: 'v 100' is no accelerator type"),
        ({"rates": {"v100": -1.0}}, "rates.v100: must be from 0"),
        (
            {"rates": {"v100": 5e-324, "k80": 1.0}},
            "rates.v100: expected 0 or at least 1e-09 steps/s",
        ),
        ({"rates": {"v100": 0.0}}, "rates: all are 0"),
        ({"env": {"A-B": "x"}}, "env: 'A-B' is no name of a variable"),
        ({"env": {"FAIRLEAD_JOB": "x"}}, "env: FAIRLEAD_JOB is set by Fairlead itself"),
        ({"env": {"RANK": "0"}}, "env: RANK is set by Fairlead itself"),
        ({"env": {"A": "\0"}}, "env.A: must not hold a NUL"),
        ({"env": {"A": "x" * 200_000}}, "env: at most 131,072 bytes"),
        (
            {"command": ("a" * 80_000,), "env": {"A": "x" * 80_000}},
            "command, container and env together: at most 131,072 bytes, got 160,004",
        ),
        ({"max_retries": -1}, "max_retries: must be from 0 to 1000000, got -1"),
        ({"retry_on": (1, 256)}, "retry_on: must be from 1 to 255, got 256"),
        ({"no_retry_on": (0,)}, "no_retry_on: must be from 1 to 255, got 0"),
        (
            {"retry_on": (1,), "no_retry_on": (2,)},
            "retry_on and no_retry_on are both given; at most one",
        ),
        ({"stall_timeout_s": -1.0}, "stall_timeout_s: must be from 0"),
        ({"start_timeout_s": float("nan")}, "start_timeout_s: must be from 0"),
        ({"on_stall": "shrug"}, "on_stall: must be 'report' or 'restart', got 'shrug'"),
    ],
)
def test_what_no_cluster_could_run_is_refused(change: dict[str, Any], message: str) -> None:
    check_spec(GOOD)
    with pytest.raises(InputError) as refused:
        check_spec(msgspec.structs.replace(GOOD, **change), "here")
    assert str(refused.value).startswith("here: ")
    assert message in str(refused.value)


def test_a_progress_url_is_for_unmanaged_jobs_and_their_own_node() -> None:
    good = msgspec.structs.replace(
        GOOD, unmanaged=True, progress_url="http://127.0.0.1:{port}/progress"
    )
    check_spec(good)
    with pytest.raises(InputError, match="job: progress_url: is for jobs with unmanaged = true"):
        check_spec(msgspec.structs.replace(good, unmanaged=False))
    far = msgspec.structs.replace(good, progress_url="http://10.0.0.1/")
    with pytest.raises(
        InputError, match=r"job: progress_url: must be on 127\.0\.0\.1.*10\.0\.0\.1/"
    ):
        check_spec(far)


def test_prefork_is_a_truth_value_or_auto(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('command = "x"\ntotal_steps = 1\nprefork = "auto"\n')
    assert read_spec(path).prefork == "auto"
    path.write_text('command = "x"\ntotal_steps = 1\nprefork = "always"\n')
    with pytest.raises(InputError, match="prefork"):
        read_spec(path)


def test_progress_that_is_kept_is_said_of_unmanaged_jobs_alone() -> None:
    check_spec(msgspec.structs.replace(GOOD, unmanaged=True, keeps_progress=True))
    with pytest.raises(InputError, match="job: keeps_progress: is for jobs with unmanaged = true"):
        check_spec(msgspec.structs.replace(GOOD, keeps_progress=True))


def test_a_bad_field_of_a_toml_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('command = "a"\n\n# how long\ntotal_steps = 0\n[rates]\nv100 = -1\n')
    with pytest.raises(InputError, match=r"a\.toml:4: total_steps: must be"):
        read_spec(path)
    path.write_text(path.read_text().replace("= 0", "= 9"))
    with pytest.raises(InputError, match=r"a\.toml:6: rates\.v100: "):
        read_spec(path)


def test_only_programs_without_the_iterator_are_parked_as_they_are() -> None:
    plain = msgspec.structs.replace(GOOD, unmanaged=True, park="stop")
    check_spec(plain)
    assert plain.is_suspended
    assert not msgspec.structs.replace(plain, park=True).is_suspended
    for other in (
        msgspec.structs.replace(plain, unmanaged=False),
        msgspec.structs.replace(plain, container=PODMAN),
    ):
        with pytest.raises(InputError, match="job: park: 'stop' is for jobs with unmanaged = true"):
            check_spec(other)


def test_another_word_for_parking_is_named_with_what_there_is() -> None:
    fields = {"command": "x", "total_steps": 5, "unmanaged": True}
    assert make_spec({**fields, "park": "stop"}, "f").park == "stop"
    with pytest.raises(InputError, match="f: park: must be true, false or 'stop', got 'wait'"):
        make_spec({**fields, "park": "wait"}, "f")


@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_a_pipe_is_no_description(tmp_path: Path, name: str) -> None:
    """Nobody may ever write into it."""
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(InputError, match=rf"{name}: is no regular file$"):
        read_spec(path)
