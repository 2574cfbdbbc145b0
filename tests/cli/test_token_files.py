"""Files that hold a token."""

import os
import stat
from pathlib import Path

import pytest

from fairlead.cli.token_files import read_token, write_token
from fairlead.errors import ConfigError


def test_what_is_written_is_read_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    for token in ("first", "second"):
        write_token(path, token)
        assert read_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no such file"),
        (b"", "is empty; `fairlead serve --new-tokens` writes new tokens"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "is no token"),
        (b"a" * 3_000_000, "is no token"),
    ],
)
def test_a_file_without_a_token_is_named(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / "agent.token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^--token-file {path}: {sentence}"):
        read_token(path, option="--token-file")


def test_what_never_ends_is_not_read_on(tmp_path: Path) -> None:
    path = tmp_path / "agent.token"
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=f"^{path}: is no token$"):
        read_token(path)


def test_a_pipe_is_read() -> None:
    """As of a shell's ``--token-file <(pass show fairlead)``."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        pipe.write("secret-of-mine\n")
    try:
        assert read_token(Path(f"/dev/fd/{reading}")) == "secret-of-mine"
    finally:
        os.close(reading)
