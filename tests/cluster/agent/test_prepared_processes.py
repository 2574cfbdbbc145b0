"""Starts from a process that has imported what the script does, found from the script."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest
from tests.cluster.agent.cluster import (
    WAIT_S,
    RunningAgent,
    Server,
    cluster,
    plain,
)

from fairlead.cluster.agent.prepared_processes import MAX_PREPARED
from fairlead.cluster.agent.script_imports import find_imports

SHOWS = (
    "import os, sys\n"
    "print([sys.argv[1:], __name__, __file__, os.getcwd(), list(dict.fromkeys(sys.path)), {names}])\n"
    "print('forked' if 'fairlead.cluster.agent.zygote' in open('/proc/self/cmdline').read() else 'execd')\n"
)


def test_known_packages_are_found_at_the_top_level_of_a_script() -> None:
    source = (
        b"import numpy.linalg as la, os\nfrom .torch import x\nimport mine\nfrom json import loads\n"
        b"def f():\n    import scipy\n"
    )
    assert find_imports(source) == ["numpy"]
    assert find_imports(b"from numpy import *") == ["numpy"]
    assert find_imports(b"print(1)") == []
    for bad in (b"def", b"\x00", b"(" * 500):
        with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
            find_imports(bad)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path of the agent, with light packages under known names."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in ("einops", "pandas", "sklearn", "torchaudio"):
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    (folder / "timm.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return folder


def _script(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{'_'.join(names)}_job.py"
    shown = f"[{', '.join(f'{name}.__file__' for name in names)}]"
    path.write_text("".join(f"import {name}\n" for name in names) + SHOWS.format(names=shown))
    return path


async def _run(server: Server, number: int, script: Path, *words: str) -> tuple[str, str]:
    """(what the script shows, how it was started)."""
    await server.order(plain(number, sys.executable, str(script), *words, prepare=True, cwd="/"))
    status = await server.until_state((number, 1), "ended")
    assert status.exit_code == 0, status.reason
    message = await server.until_output(number, "d\n")
    shown, how = message.strip().splitlines()
    return shown, how


def _prepared(agent: RunningAgent) -> list[str]:
    """Modules of the prepared processes that there are."""
    found = []
    for process in agent.spawner.children():
        words = process.cmdline()
        if "fairlead.cluster.agent.zygote" in words and words[-1] == "for-script":
            found.append(words[-2])
    return found


async def _until_forked(server: Server, first: int, script: Path, *words: str) -> str:
    """What it shows once it is forked; the process needs its time to import."""
    async with asyncio.timeout(WAIT_S):
        for number in range(first, first + 900):
            shown, how = await _run(server, number, script, *words)
            if how == "forked":
                return shown
            await asyncio.sleep(0.1)
    raise AssertionError("it is never forked")


def test_a_script_is_forked_once_its_imports_are_known_and_runs_as_before(
    tmp_path: Path, packages: Path
) -> None:
    async def scenario() -> None:
        script = _script(tmp_path / "code", "einops", "pandas")
        async with cluster(tmp_path / "s") as (server, agent):
            shown, how = await _run(server, 1000, script, "--lr", "0.1")
            assert how == "execd"
            assert await _until_forked(server, 1001, script, "--lr", "0.1") == shown
            assert _prepared(agent) == ["einops,pandas"]
            # A module beside the script is the user's own, and is imported by that script alone.
            other = _script(tmp_path / "shadowed", "einops", "pandas")
            other.with_name("einops.py").write_text("NAME = 'mine'\n")
            for number in (1901, 1902, 1903):
                shown, how = await _run(server, number, other)
                assert how == "execd"
                assert str(other.with_name("einops.py")) in shown
            (zygote,) = [p for p in agent.spawner.children() if "for-script" in p.cmdline()]
            zygote.kill()
            psutil.wait_procs([zygote], timeout=WAIT_S)
            await _until_forked(server, 1904, script)  # exec'd meanwhile, and nothing fails

    asyncio.run(scenario())


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_start_does_not_wait_for_a_prepared_process_that_does_not_answer(
    tmp_path: Path, packages: Path, killed: bool
) -> None:
    async def scenario() -> None:
        script = _script(tmp_path / "code", "einops")
        async with cluster(tmp_path / "s") as (server, agent):
            await _until_forked(server, 1, script)
            (zygote,) = [p for p in agent.spawner.children() if "for-script" in p.cmdline()]
            zygote.suspend()
            if not killed:
                assert (await _run(server, 2000, script))[1] == "execd"
            else:
                await server.order(plain(2000, sys.executable, str(script), prepare=True, cwd="/"))
                await server.until(lambda: (2000, 1) in server.statuses)
                zygote.kill()
                status = await server.until_state((2000, 1), "ended")
                assert (status.exit_code, status.reason) == (0, "")
                assert "execd" in await server.until_output(2000, "d\n")
            assert not zygote.is_running()

    asyncio.run(scenario())


def test_what_starts_threads_as_it_is_imported_is_not_forked(
    tmp_path: Path, packages: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        script = _script(tmp_path / "code", "timm")
        async with cluster(tmp_path / "s") as (server, agent):
            message = ""
            async with asyncio.timeout(WAIT_S):
                number = 1
                while "an import has started threads; jobs are exec'd" not in message:
                    assert (await _run(server, number, script))[1] == "execd"
                    number += 1
                    message += "".join(capfd.readouterr())
            for more in range(3):
                assert (await _run(server, number + more, script))[1] == "execd"
            assert _prepared(agent) == []
            message += "".join(capfd.readouterr())
            assert message.count("prepared process timm:") == 1, "it is not tried again"

    asyncio.run(scenario())


def test_the_least_recently_used_one_goes_for_another(tmp_path: Path, packages: Path) -> None:
    async def scenario() -> None:
        names = ["einops", "pandas", "sklearn", "torchaudio"]
        assert len(names) == MAX_PREPARED + 1
        scripts = {name: _script(tmp_path / "code", name) for name in names}
        async with cluster(tmp_path / "s") as (server, agent):
            for i, name in enumerate(names[:3]):
                await _until_forked(server, 1000 * (i + 1), scripts[name])
            await _run(server, 1, scripts["einops"])
            await _until_forked(server, 4000, scripts["torchaudio"])
            assert sorted(_prepared(agent)) == ["einops", "sklearn", "torchaudio"]

    asyncio.run(scenario())


def test_a_job_with_variables_that_are_read_on_import_is_execd(
    tmp_path: Path, packages: Path
) -> None:
    async def scenario() -> None:
        script = _script(tmp_path / "code", "einops")
        async with cluster(tmp_path / "s") as (server, _):
            await _until_forked(server, 1000, script)
            command = (sys.executable, str(script))
            await server.order(plain(1, *command, prepare=True, cwd="/", env={"OMP_X": "1"}))
            await server.until_output(1, "execd")

    asyncio.run(scenario())
