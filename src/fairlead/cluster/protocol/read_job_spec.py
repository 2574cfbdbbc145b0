"""Job descriptions: from TOML and JSON files, and what is wrong with one."""

import codecs
import json
import re
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead.cluster.protocol.arrays import parse_array
from fairlead.cluster.protocol.conversion_errors import describe_error, shown
from fairlead.cluster.protocol.dependencies import MAX_DEPENDENCIES, parse_dependency
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.json_problems import json_problem
from fairlead.cluster.protocol.progress_url import parse_progress_url
from fairlead.cluster.protocol.runtime import (
    CONDA_NAME,
    container_error,
    named,
)
from fairlead.errors import InputError
from fairlead.model.limits import MAX_WEIGHT, MIN_WEIGHT
from fairlead.model.toml import parse_toml
from fairlead.model.toml_lines import naming_lines

# Smallest and largest value of each number; the OpenAPI description shows them too.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "total_steps": (1, 2**53 - 1),
    "scale_factor": (1, 4096),
    "weight": (MIN_WEIGHT, MAX_WEIGHT),
    "slo_s": (1, 1e10),
    "grace_s": (0, 86_400),
    "finish_grace_s": (0, 86_400),
    "log_bytes": (1_000, 10**8),
    "max_retries": (0, 1_000_000),
    "start_timeout_s": (0, 10**9),
    "stall_timeout_s": (0, 10**9),
}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
RATES = (0.0, 1e9)  # steps/s
SPEEDUPS = (1e-3, 1e4)
MAX_DEVICE_NUMBERS = 64
MIN_RATE = 1e-9  # steps/s, but for 0: solvers do not bear what is next to nothing
MAX_CODES = 255
SPECS = "specs"  # what errors call the jobs of one submission, with their positions
MAX_NAME = 200  # characters of a name or a family
MAX_PATH = 4_096
MAX_WORDS, MAX_VARIABLES, MAX_RATES = 4_096, 1_024, 1_000
JOB_BYTES = (
    1 << 17
)  # of command, container and env together: all jobs of a node must fit its orders
LARGEST_FILE = 1 << 20  # bytes

# What the agent sets for every rank (fairlead.client.messages); a job cannot set it.
RESERVED = frozenset(
    {
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"),
    }
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def read_spec(path: str | Path) -> JobSpec:
    """A job from a ``.toml`` or ``.json`` file, checked; InputError names the file and the field.

    In a file ``command`` and ``container`` may be one string, split as a shell would split it. A job
    without a name is named after its file.
    """
    path = Path(path)
    with naming_lines(path):
        return _read_spec(path)


def _read_spec(path: Path) -> JobSpec:
    content = read_content(path, "a job")
    if isinstance(content, dict):
        content.setdefault("name", path.stem)
    return make_spec(content, str(path))


def make_spec(content: Any, where: str, *, strict: bool = True) -> JobSpec:
    """A job from its fields as a file has them, checked; InputError says ``WHERE: FIELD: what is wrong``.
    ``command`` and ``container`` may be one string. strict: False = numbers may come as text."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected a table of fields, got {shown(content)}")
    content = dict(content)
    devices = content.get("devices")
    if isinstance(devices, list) and devices and all(type(one) is int for one in devices):
        content.setdefault("scale_factor", min(devices))
    for name in ("command", "container"):
        given = content.get(name, [])
        if isinstance(given, str):
            content[name] = _words(where, name, given)
        elif not isinstance(given, list):
            raise InputError(
                f"{where}: {name}: expected one string or a list of words, got {shown(given)}"
            )
    try:
        spec = msgspec.convert(content, JobSpec, strict=strict)
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{where}: {describe_error(problem, content, JobSpec, strict=strict)}"
        ) from None
    check_spec(spec, where)
    return spec


def check_spec(spec: JobSpec, where: str = "job") -> None:
    """Raise InputError, with ``where``, field and value, for what no cluster could run."""
    _check_command(where, "command", spec.command)
    _check_runtime(where, spec)
    _check_progress(where, spec)
    for name, (least, most) in BOUNDS.items():
        value = getattr(spec, name)
        if value is not None:
            _check_number(f"{where}: {name}", value, least, most)
    for name in ("family", "name"):
        _check_text(where, name, getattr(spec, name), MAX_NAME)
    for name in ("cwd", "checkpoint_dir"):
        _check_path(where, name, getattr(spec, name))
    if spec.checkpoint_dir and not spec.checkpoint_dir.strip("/"):
        what = f"must be a directory of this job's own, got {shown(spec.checkpoint_dir)}"
        raise InputError(f"{where}: checkpoint_dir: {what}")
    _check_failing(where, spec)
    _check_after(where, spec.after)
    _check_array(where, spec)
    _check_devices(where, spec)
    _check_rates(where, spec.rates)
    _check_colocated(where, spec)
    _check_env(where, spec.env)
    variables = (text for pair in spec.env.items() for text in pair)
    texts = (*spec.command, *spec.container, *variables)
    check_size(where, "command, container and env together", texts)


def read_content(path: Path, what: str) -> Any:
    """The values of a ``.toml`` or ``.json`` file. what: is described there. Raises InputError."""
    if path.suffix not in (".toml", ".json"):
        raise InputError(f"{path}: {what} is described in a .toml or a .json file")
    try:
        status = path.stat()
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):  # it may never end
            raise InputError(f"{path}: is no regular file")
        if status.st_size > LARGEST_FILE:
            raise InputError(f"{path}: is larger than {LARGEST_FILE:,} bytes")
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    try:
        if path.suffix == ".json":
            content = msgspec.json.decode(data)
            refuse_repeated(data, str(path))
            return content
        return parse_toml(data.decode(), str(path), InputError)
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    except msgspec.DecodeError as problem:
        found = json_problem(data)
        raise InputError(f"{path}: {found or f'is not JSON: {problem}'}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply") from None


def refuse_repeated(data: bytes, where: str) -> None:
    """Refuse JSON with an object in which a name stands twice: parsers take the last value, in silence.
    Raises InputError, and as ``json.loads`` for what is no JSON."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        names = set()
        for name, _ in pairs:
            if name in names:
                told = name if _PLAIN_NAME.fullmatch(name) else shown(name)
                raise InputError(f"{where}: {told}: is given twice")
            names.add(name)

    json.loads(
        data, object_pairs_hook=check, parse_int=str, parse_float=str
    )  # values are of no use


def _words(where: str, name: str, command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as problem:
        raise InputError(f"{where}: {name}: {problem} in {shown(command)}") from None


def _check_command(where: str, name: str, command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise InputError(f"{where}: {name}: must not be empty")
    if len(command) > MAX_WORDS:
        raise InputError(f"{where}: {name}: at most {MAX_WORDS:,} words, got {len(command):,}")
    for position, word in enumerate(command):
        _check_bytes(where, f"{name}[{position}]", word)
    check_size(where, name, command)


def _check_progress(where: str, spec: JobSpec) -> None:
    if spec.standby and spec.unmanaged:
        raise InputError(
            f"{where}: standby: is for jobs with the iterator, in which a process can wait; "
            "this one has unmanaged = true"
        )
    if spec.keeps_progress and not spec.unmanaged:
        raise InputError(
            f"{where}: keeps_progress: is for jobs with unmanaged = true; others keep theirs as it is"
        )
    if spec.park == "stop" and (not spec.unmanaged or spec.container):
        raise InputError(
            f"{where}: park: 'stop' is for jobs with unmanaged = true, and without a container"
        )
    if not spec.progress_url:
        return
    if not spec.unmanaged:
        raise InputError(
            f"{where}: progress_url: is for jobs with unmanaged = true; the iterator tells of others"
        )
    try:
        parse_progress_url(spec.progress_url)
    except ValueError as problem:
        raise InputError(
            f"{where}: progress_url: {problem}, got {shown(spec.progress_url)}"
        ) from None


def _check_runtime(where: str, spec: JobSpec) -> None:
    """Check that at most one runtime is given."""
    given = named(spec.runtime)
    if len(given) > 1:
        raise InputError(f"{where}: {given[0]} and {given[1]} are both given; at most one can be")
    for name in ("python", "venv"):
        _check_path(where, name, getattr(spec, name))
    if spec.conda.startswith("/"):
        _check_path(where, "conda", spec.conda)
    elif spec.conda and not CONDA_NAME.fullmatch(spec.conda):
        raise InputError(
            f"{where}: conda: must be a name or an absolute path, got {shown(spec.conda)}"
        )
    if spec.container:
        _check_command(where, "container", spec.container)
        if problem := container_error(spec.container, spec.unmanaged):
            raise InputError(f"{where}: container: {problem}")


def _check_number(place: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # so NaN is refused too
        raise InputError(f"{place}: must be from {least:.15g} to {most:.16g}, got {shown(value)}")


def check_weight(weight: float, name: str = "weight") -> None:
    """InputError where a job cannot have this weight. name: what its owner calls it."""
    _check_number(name, weight, *BOUNDS["weight"])


def _check_text(where: str, name: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise InputError(f"{where}: {name}: at most {longest:,} characters, got {len(text):,}")
    if not text.isprintable():
        raise InputError(f"{where}: {name}: must be printable, got {shown(text)}")


def _check_bytes(where: str, name: str, text: str) -> None:
    """Raise InputError unless the system can be given the text as a C string in UTF-8."""
    if "\0" in text:
        raise InputError(f"{where}: {name}: must not hold a NUL character, got {shown(text)}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"{where}: {name}: is not valid Unicode, got {shown(text)}")


def check_size(where: str, name: str, texts: Iterable[str]) -> None:
    """Raise InputError where these are more than a job may have."""
    size = sum(len(text.encode()) + 1 for text in texts)
    if size > JOB_BYTES:
        raise InputError(f"{where}: {name}: at most {JOB_BYTES:,} bytes, got {size:,}")


def _check_path(where: str, name: str, text: str) -> None:
    _check_text(where, name, text, MAX_PATH)
    if text and not text.startswith("/"):
        raise InputError(f"{where}: {name}: must be an absolute path, got {shown(text)}")
    if ".." in text.split("/"):
        raise InputError(f"{where}: {name}: must not climb with '..', got {shown(text)}")


def _check_failing(where: str, spec: JobSpec) -> None:
    for name in ("retry_on", "no_retry_on"):
        codes = getattr(spec, name)
        if len(codes) > MAX_CODES:
            raise InputError(f"{where}: {name}: at most {MAX_CODES} exit codes, got {len(codes)}")
        for code in codes:
            _check_number(f"{where}: {name}", code, 1, 255)
    if spec.on_stall not in ("restart", "report"):
        raise InputError(
            f"{where}: on_stall: must be 'report' or 'restart', got {shown(spec.on_stall)}"
        )
    if spec.retry_on and spec.no_retry_on:
        raise InputError(f"{where}: retry_on and no_retry_on are both given; at most one can be")


def _check_after(where: str, after: tuple[str, ...]) -> None:
    if len(after) > MAX_DEPENDENCIES:
        raise InputError(f"{where}: after: at most {MAX_DEPENDENCIES:,} jobs, got {len(after):,}")
    for text in after:
        try:
            parse_dependency(text)
        except ValueError as problem:
            raise InputError(f"{where}: after: {problem}, got {shown(text)}") from None


def _check_array(where: str, spec: JobSpec) -> None:
    if not spec.array:
        return
    try:
        parse_array(spec.array)
    except ValueError as problem:
        raise InputError(f"{where}: array: {problem}, got {shown(spec.array)}") from None
    if spec.checkpoint_dir:
        raise InputError(
            f"{where}: checkpoint_dir and array are both given; each task has a directory of its own"
        )


def _check_devices(where: str, spec: JobSpec) -> None:
    """Check the numbers of devices of an elastic job."""
    if spec.speedups and not spec.devices:
        raise InputError(
            f"{where}: speedups: are for jobs with devices, the numbers that it may have"
        )
    if not spec.devices:
        return
    if len(spec.devices) > MAX_DEVICE_NUMBERS:
        raise InputError(
            f"{where}: devices: at most {MAX_DEVICE_NUMBERS} numbers, got {len(spec.devices)}"
        )
    for number in spec.devices:
        _check_number(f"{where}: devices", number, *BOUNDS["scale_factor"])
    if sorted(set(spec.devices)) != list(spec.devices):
        raise InputError(f"{where}: devices: must ascend, got {shown(list(spec.devices))}")
    if spec.scale_factor not in spec.devices:
        numbers = ", ".join(map(str, spec.devices))
        raise InputError(
            f"{where}: scale_factor: must be one of devices ({numbers}), got {spec.scale_factor}"
        )
    for name, speedup in spec.speedups.items():
        if name not in map(str, spec.devices):
            raise InputError(f"{where}: speedups: {shown(name)} is none of the numbers in devices")
        _check_number(f"{where}: speedups.{name}", speedup, *SPEEDUPS)
    for name, refused in (("unmanaged", spec.unmanaged), ("standby", spec.standby)):
        if refused:
            raise InputError(
                f"{where}: devices: is for jobs with the iterator that are started anew on other numbers; "
                f"this one has {name} = true"
            )


def _check_rates(where: str, rates: Mapping[str, float]) -> None:
    if len(rates) > MAX_RATES:
        raise InputError(f"{where}: rates: at most {MAX_RATES:,}, got {len(rates):,}")
    for accelerator, rate in rates.items():
        if not ACCELERATOR.fullmatch(accelerator):
            raise InputError(f"{where}: rates: {shown(accelerator)} is no accelerator type")
        _check_number(f"{where}: rates.{accelerator}", rate, *RATES)
        if 0 < rate < MIN_RATE:
            raise InputError(
                f"{where}: rates.{accelerator}: expected 0 or at least {MIN_RATE:g} steps/s, got {rate:g}"
            )
    if rates and not any(rates.values()):
        raise InputError(f"{where}: rates: all are 0, so the job could run nowhere")


def _check_colocated(where: str, spec: JobSpec) -> None:
    """Raise InputError unless the job's rates beside others are valid."""
    if spec.colocated_fraction is not None:
        _check_number(f"{where}: colocated_fraction", spec.colocated_fraction, 0.0, 1.0)
    if len(spec.colocated_fractions) > MAX_RATES:
        problem_text = f"at most {MAX_RATES:,}, got {len(spec.colocated_fractions):,}"
        raise InputError(f"{where}: colocated_fractions: {problem_text}")
    for other, fraction in spec.colocated_fractions.items():
        _check_text(where, "colocated_fractions", other, MAX_NAME)
        _check_number(f"{where}: colocated_fractions.{other}", fraction, 0.0, 1.0)
    if colocates(spec) and not spec.rates:
        raise InputError(
            f"{where}: colocated_fraction: needs the job's rates beside it, of which it is a part"
        )


def colocates(spec: JobSpec) -> bool:
    """Return whether a job states how fast it is beside others."""
    return spec.colocated_fraction is not None or bool(spec.colocated_fractions)


def _check_env(where: str, env: Mapping[str, str]) -> None:
    if len(env) > MAX_VARIABLES:
        raise InputError(f"{where}: env: at most {MAX_VARIABLES:,} variables, got {len(env):,}")
    for name, value in env.items():
        if len(name) > MAX_NAME or not VARIABLE.fullmatch(name):
            raise InputError(f"{where}: env: {shown(name)} is no name of a variable")
        if name in RESERVED or name.startswith("FAIRLEAD_"):
            raise InputError(f"{where}: env: {name} is set by Fairlead itself")
        _check_bytes(where, f"env.{name}", value)
    check_size(where, "env", (text for pair in env.items() for text in pair))
