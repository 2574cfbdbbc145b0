"""The tool that takes what a process has on its devices to the memory of the host."""

import asyncio
import os
from pathlib import Path

import pytest

from fairlead.cluster.agent import suspension


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / suspension.TOOL
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def test_its_end_is_not_taken_for_that_of_an_orphan(tool: Path, tmp_path: Path) -> None:
    """The agent waits for whatever its first thread is the parent of: it has adopted that. A tool that was
    started there ended with 255 where the agent was quicker."""
    begun = tmp_path / "begun"
    tool.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 1\n")
    first = Path(f"/proc/self/task/{os.getpid()}/children")
    before = first.read_text()

    async def run() -> str:
        call = asyncio.create_task(suspension.toggle(1))
        while not begun.exists():
            await asyncio.sleep(0.01)
        assert first.read_text() == before
        return await call

    assert asyncio.run(run()) == ""


def test_what_it_says_as_it_fails_is_told(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.write_text("#!/bin/sh\necho one\necho no such context\nexit 3\n")
    assert asyncio.run(suspension.toggle(1)) == "exit code 3; no such context"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(suspension, "LIMIT_S", 0.1)
    assert asyncio.run(suspension.toggle(1)) == "no answer within 0.1 s"
    tool.unlink()
    monkeypatch.setenv("PATH", str(tool.parent))
    assert asyncio.run(suspension.toggle(1)) == "No such file or directory"
