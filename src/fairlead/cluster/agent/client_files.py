"""The training side as a directory of its own, for jobs whose Python does not have it."""

import shutil
from pathlib import Path

import fairlead
from fairlead.client.version import __version__
from fairlead.errors import ConfigError

# Below the package: what the distribution fairlead-client consists of (client/pyproject.toml).
CLIENT_FILES = (
    "__init__.py",
    "client",
    "errors.py",
    "py.typed",
)


def is_offered(state: Path) -> bool:
    """Return whether the copy is there."""
    return (state / f"client-{__version__}").is_dir()


def offer_client(state: Path) -> Path:
    """Copy the training side to ``state/client-VERSION`` and return that, for PYTHONPATH.

    A copy, because links would lead nowhere inside a container; anew at every start of the agent, because a
    checkout changes without its version. Raises ConfigError where it cannot be written.
    """
    source = Path(fairlead.__file__).parent
    folder = state / f"client-{__version__}"
    partial = state / ".client.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "fairlead").mkdir(parents=True)
        for name in CLIENT_FILES:
            _copy(source / name, partial / "fairlead" / name)
        _let_all_read(partial)
        for old in state.glob("client-*"):
            shutil.rmtree(old)
        partial.rename(folder)
    except OSError as problem:
        # copytree collects (source, target, why) of each file, and copyfile names the source.
        why = problem.strerror or problem.args[0][0][2]
        raise ConfigError(f"--state {state}: cannot be written: {why}") from None
    return folder


def _let_all_read(folder: Path) -> None:
    """Jobs may run as another user than the agent."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)
