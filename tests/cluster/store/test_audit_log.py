"""The audit log: whole lines, in order, whoever writes, whatever is written, whenever a process is killed."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fairlead.cluster.protocol.audit import AuditEntry, AuditFilter, audit_time
from fairlead.cluster.store.audit_log import NAME, AuditLimits, AuditLog, read_audit
from fairlead.errors import InputError, StoreError

ALL = AuditFilter()
SMALL = AuditLimits(file_bytes=2_000, files=3)


def entry(number: int, **fields: str) -> AuditEntry:
    given = {"time": audit_time(number), "action": "cancel", "object": f"job {number}", **fields}
    return msgspec.convert({"outcome": "accepted", **given}, AuditEntry)


def everything(directory: Path, wanted: AuditFilter = ALL, limit: int = 7) -> list[AuditEntry]:
    entries, cursor, more = [], "", True
    while more:
        page = read_audit(directory, wanted, cursor, limit)
        entries += page.entries
        cursor, more = page.cursor, page.more
    return entries


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append([entry(0), entry(1)])
    AuditLog(tmp_path).append([entry(2)])
    assert everything(tmp_path) == [entry(0), entry(1), entry(2)]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_no_name_can_forge_a_line_or_reach_the_terminal(tmp_path: Path) -> None:
    bad = 'x\n{"time": "2026"}\r\x1b]0;title\x07\x9b31m\u2028\u202e\udcff'.encode(
        "utf-8", "replace"
    ).decode()
    AuditLog(tmp_path).append([entry(0, user=bad, object=bad, forwarded_for=bad)])
    data = (tmp_path / NAME).read_bytes()
    assert data.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in data[:-1])
    (found,) = everything(tmp_path)
    assert found.user == bad


def test_files_are_closed_by_size_and_the_oldest_removed(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, SMALL)
    for number in range(200):
        log.append([entry(number)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [NAME, f"{NAME}.1", f"{NAME}.2"]
    found = everything(tmp_path)
    kept = len(found)
    assert 20 < kept < 100
    assert found == [entry(number) for number in range(200 - kept, 200)]


def test_a_page_goes_on_where_the_one_before_ended_though_files_get_other_names(
    tmp_path: Path,
) -> None:
    log = AuditLog(tmp_path, AuditLimits(file_bytes=2_000, files=50))
    log.append([entry(number) for number in range(5)])
    page = read_audit(tmp_path, ALL, "", 3)
    assert (page.entries, page.more) == ([entry(0), entry(1), entry(2)], True)
    for number in range(5, 100):
        log.append([entry(number)])
    rest, cursor, more = [], page.cursor, True
    while more:
        page = read_audit(tmp_path, ALL, cursor, 10)
        rest += page.entries
        cursor, more = page.cursor, page.more
    assert rest == [entry(number) for number in range(3, 100)]
    assert read_audit(tmp_path, ALL, cursor, 10).entries == []
    log.append([entry(100)])
    assert read_audit(tmp_path, ALL, cursor, 10).entries == [entry(100)]


def test_a_rotation_that_was_killed_loses_nothing(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, AuditLimits(file_bytes=500, files=20))
    for number in range(30):
        log.append([entry(number)])
    for _ in range(2):  # killed twice after the first names were changed
        numbers = sorted(
            (int(path.suffix[1:]) for path in tmp_path.iterdir() if path.name != NAME), reverse=True
        )
        (tmp_path / f"{NAME}.{numbers[0]}").rename(tmp_path / f"{NAME}.{numbers[0] + 1}")
    log.append([entry(30)])
    assert everything(tmp_path) == [entry(number) for number in range(31)]


def test_filters(tmp_path: Path) -> None:
    AuditLog(tmp_path).append(
        [entry(10, user="ann"), entry(20, user="bob"), entry(30, user="ann", action="submit")]
    )

    def times(**wanted: str) -> list[str]:
        return [found.time for found in everything(tmp_path, AuditFilter(**wanted))]

    assert times(user="ann") == [audit_time(10), audit_time(30)]
    assert times(action="submit") == [audit_time(30)]
    assert times(since=audit_time(20)) == [audit_time(20), audit_time(30)]
    assert times(until=audit_time(20)) == [audit_time(10)]


def test_the_rest_of_a_line_that_was_cut_is_left_and_skipped(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append([entry(0), entry(1)])
    path = tmp_path / NAME
    os.truncate(path, path.stat().st_size - 10)
    assert everything(tmp_path) == [entry(0)]
    log.append([entry(2)])
    assert everything(tmp_path) == [entry(0), entry(2)]


@pytest.mark.parametrize("cursor", ["x", "1-2-3", "-1-1", "9" * 30])
def test_a_cursor_that_was_never_given_is_refused(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(InputError, match="cursor"):
        read_audit(tmp_path, ALL, cursor, 10)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be written"):
        AuditLog(state).append([entry(0)])
    assert not (tmp_path / "elsewhere").exists()


def test_where_the_disk_is_full_nothing_of_an_entry_is_written(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append([entry(0)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, ((tmp_path / NAME).stat().st_size + 20, before[1])
        )
        with pytest.raises(StoreError, match="cannot be written"):
            log.append([entry(1), entry(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    log.append([entry(3)])
    assert (tmp_path / NAME).read_bytes().count(b"\n") == 2
    assert everything(tmp_path) == [entry(0), entry(3)]


WRITER = """
import sys
from pathlib import Path
from fairlead.cluster.protocol.audit import AuditEntry
from fairlead.cluster.store.audit_log import AuditLimits, AuditLog
log = AuditLog(Path(sys.argv[1]), AuditLimits(file_bytes=3000, files=1000))
for number in range(int(sys.argv[3])):
    log.append([AuditEntry(time="", user=sys.argv[2], action=str(number), outcome="accepted")])
    print(number, flush=True)
"""


def test_several_processes_write_and_one_is_killed(tmp_path: Path) -> None:
    def start(name: str, count: int) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", WRITER, str(tmp_path), name, str(count)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    lasting = [start(name, 150) for name in ("a", "b")]
    killed = start("killed", 10**9)
    with killed:
        assert killed.stdout is not None
        for _ in range(50):
            killed.stdout.readline()
        killed.kill()
        acknowledged = 50 + len(killed.stdout.read().splitlines())
    for process in lasting:
        process.communicate()
        assert process.returncode == 0
    found = everything(tmp_path, limit=1000)
    for name, least, most in (
        ("a", 150, 150),
        ("b", 150, 150),
        ("killed", acknowledged, acknowledged + 1),
    ):
        written = [one.action for one in found if one.user == name]
        assert written == [str(number) for number in range(len(written))]
        assert least <= len(written) <= most
    for path in tmp_path.iterdir():
        for line in path.read_text().splitlines():
            json.loads(line)
