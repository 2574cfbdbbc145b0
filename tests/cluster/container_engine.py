"""Plays ``podman run [options] IMAGE COMMAND...``: IMAGE is the prefix of a Python installation.

Where it may (as root), the command gets a file system of its own in which there is nothing but that
installation, what the system's libraries need, and what ``--volume`` names; everywhere its environment is
that of ``--env`` alone. Its arguments are appended to a file beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEM = ("usr", "bin", "lib", "lib64", "etc", "dev", "proc")
SWITCHES = ("--rm", "--init")


def main() -> None:
    if sys.argv[1] == "--inside":
        inside(json.loads(sys.argv[2]))
    with Path(__file__).with_suffix(".args").open("a") as out:
        out.write(json.dumps(sys.argv[1:]) + "\n")
    assert sys.argv[1] == "run"
    given, rest = options(sys.argv[2:])
    image, *command = rest
    env = {name: os.environ[name] for name in given["--env"]} | {"PATH": f"{image}/bin:/usr/bin"}
    if (
        os.geteuid() == 0
        and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0
    ):
        settings = {"image": image, "command": command, "env": env, **given}
        words = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__]
        os.execvp(words[0], [*words, "--inside", json.dumps(settings)])
    os.chdir(given["--workdir"][0])
    os.execvpe(command[0], command, env)


def options(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    given: dict[str, list[str]] = {"--env": [], "--volume": []}
    while words and words[0].startswith("--"):
        name = words.pop(0)
        if name not in SWITCHES:
            given.setdefault(name, []).append(words.pop(0))
    return given, words


def inside(settings: dict[str, list[str]]) -> None:
    """In a mount namespace: make the root, and become the command."""
    root = Path(tempfile.mkdtemp())
    mount("-t", "tmpfs", "none", str(root))
    for name in SYSTEM:
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
        elif Path("/", name).exists():
            bind(f"/{name}:/{name}", root)
    bind(f"{settings['image']}:{settings['image']}", root)
    for volume in settings["--volume"]:
        bind(volume, root)
    os.chroot(root)
    os.chdir(settings["--workdir"][0])
    command = settings["command"]
    os.execvpe(command[0], command, settings["env"])  # type: ignore[arg-type]


def bind(volume: str, root: Path) -> None:
    source, target = volume.split(":")[:2]
    there = root / target.lstrip("/")
    if Path(source).is_dir():
        there.mkdir(parents=True, exist_ok=True)
    else:
        there.parent.mkdir(parents=True, exist_ok=True)
        there.touch()
    mount("--rbind", source, str(there))
    if volume.endswith(":ro"):
        mount("-o", "remount,bind,ro", str(there))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main()
