"""Files that hold a token: written by a server when it first starts, read by whoever calls it."""

import os
from pathlib import Path

from fairlead.client.durable import make_durable
from fairlead.errors import ConfigError

LARGEST = 4096  # bytes; a token has some 50


def write_token(path: Path, token: str) -> None:
    """Write it for its owner alone; on return it survives a loss of power. Raises OSError."""
    whole = path.with_name(f"{path.name}.new")
    whole.unlink(missing_ok=True)
    file = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as text:
        text.write(token + "\n")
        text.flush()
        os.fsync(text.fileno())
    whole.replace(path)
    make_durable(path.parent)


def read_token(path: Path, *, option: str = "") -> str:
    """The token in a file. option: that named the file. Raises ConfigError."""
    where = f"{option} {path}".strip()
    try:
        with path.open("rb") as file:  # a pipe, too: --token-file <(pass show fairlead)
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ConfigError(f"{where}: is no token")
        token = content.decode().strip()
    except FileNotFoundError:
        raise ConfigError(
            f"{where}: there is no such file; `fairlead serve` writes admin.token and agent.token into its "
            "state directory when it first starts"
        ) from None
    except OSError as problem:
        raise ConfigError(f"{where}: cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: is no token") from None
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{where}: is no token")
    if not token:
        raise ConfigError(
            f"{where}: is empty; `fairlead serve --new-tokens` writes new tokens for admin and agent"
        )
    return token
